"""Collecting and training from Python: `wm.collect`, `wm.train_vae`, `wm.train_mdnrnn` and `wm.train_controller`.

Each does what the command of its name does, with the same settings, and makes the same artifact, byte by byte: what one
has begun, the other resumes. Nothing is printed, and no WM_* variable is read.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from wm import extras
from wm.arguments import one_of
from wm.artifacts.disk import require_possible
from wm.artifacts.workspace import folder, folders
from wm.errors import UsageProblem, shown
from wm.pipeline import collect as collecting
from wm.pipeline import train_controller as controller_training
from wm.pipeline import train_mdnrnn as mdnrnn_training
from wm.pipeline import train_vae as vae_training
from wm.pipeline.session import Session, command_line
from wm.pipeline.stage import Result
from wm.rollouts.worker_process import end_if_starting
from wm.runtime import Runtime
from wm.settings import CollectSettings, ControllerSettings, MdnRnnSettings, Settings, VaeSettings
from wm.settings.base import LARGEST_SEED, convert, find_setting
from wm.settings.sources import Sources, find_preset
from wm.units import LARGEST_SIZE, parse_size

PathLike = str | os.PathLike[str]
Paths = PathLike | Sequence[PathLike] | None
G = TypeVar("G", bound=Settings)
DEVICES = ("auto", "cpu", "cuda", "mps")
_TURN = RLock()  # threads take turns: initial weights come from torch's generator, of which a process has one


def collect(
    env: str,
    *,
    data: PathLike | None = None,
    run: PathLike | None = None,
    preset: str | None = None,
    seed: int = 0,
    disk_budget: int | str | None = None,
    keep_current: bool = False,
    runtime: Runtime | None = None,
    **settings: Any,
) -> Result:
    """Play episodes and store their frames, actions and rewards, as `wm collect` does: `wm.collect("Pong", episodes=50,
    size=64)`.

    `data` is the dataset, by default `data/<Env>.zarr`. Episodes that it has are kept, so the same call resumes, and
    one that asks for more plays the rest. `run` is where the controller of `policy="controller"` is. The other
    arguments are those of `train_vae`. Result.path is the dataset.

    Raises UsageProblem for a wrong name or value, and EnvironmentFault where the environment breaks. Raises DiskProblem
    before anything is written, or when the budget is used up; everything committed so far is usable then.
    """
    call = _Call("collect", env, preset, settings)
    session = call.session(data, run, None, seed, "auto", disk_budget, keep_current, runtime)
    with _TURN:
        return collecting.collect(session, call.resolve(CollectSettings))


def train_vae(
    env: str,
    *,
    data: Paths = None,
    run: PathLike | None = None,
    name: str | None = None,
    preset: str | None = None,
    seed: int = 0,
    device: str = "auto",
    disk_budget: int | str | None = None,
    keep_current: bool = False,
    runtime: Runtime | None = None,
    **settings: Any,
) -> Result:
    """Train V on episodes, as `wm train-vae` does: `wm.train_vae("Pong", preset="laptop", latent=32, seed=1)`.

    `env` is the environment's name, `data` the path of the dataset, or several, by default `data/<Env>.zarr`. `run` is
    the folder of the environment's artifacts, by default `runs/<Env>`, and `name` that of a variant in it. `settings`
    are those of docs/settings.md by their names, over those of the `preset`. `device` is auto, cpu, cuda or mps.
    `disk_budget` are bytes, or a text such as "500MB". An artifact of another recipe moves to the archive of the run;
    with `keep_current` the call is refused instead. `runtime` shows progress and messages, is asked whether to stop,
    and says how many processes play: they import the script that calls, which therefore needs its `if __name__ ==
    "__main__":`. Without a runtime nothing is shown, and all is done in this process. Ctrl-C interrupts, and the same
    call resumes from the last checkpoint.

    Raises UsageProblem for a wrong name or value, MissingInput without episodes, and DiskProblem before anything is
    written. Raises RecipeMismatch where data, run and environment do not belong together, and Locked while another
    process makes the same artifact. Raises MissingPackage for a device that torch does not find.
    """
    call = _Call("train-vae", env, preset, settings)
    session = call.session(data, run, name, seed, device, disk_budget, keep_current, runtime)
    with _TURN:
        return vae_training.train_vae(session, call.resolve(VaeSettings))


def train_mdnrnn(
    env: str,
    *,
    data: Paths = None,
    run: PathLike | None = None,
    name: str | None = None,
    preset: str | None = None,
    seed: int = 0,
    device: str = "auto",
    disk_budget: int | str | None = None,
    keep_current: bool = False,
    runtime: Runtime | None = None,
    **settings: Any,
) -> Result:
    """Train M, as `wm train-mdnrnn` does: `wm.train_mdnrnn("Pong", hidden=256)`. Episodes are encoded by the run's V
    first, where that is not done. The arguments and errors are those of `train_vae`; MissingInput also without V.
    """
    call = _Call("train-mdnrnn", env, preset, settings)
    session = call.session(data, run, name, seed, device, disk_budget, keep_current, runtime)
    resolved = call.resolve(MdnRnnSettings)
    mdnrnn_training.require_used(session, resolved, settings)
    with _TURN:
        return mdnrnn_training.train_mdnrnn(session, resolved)


def train_controller(
    env: str,
    *,
    run: PathLike | None = None,
    name: str | None = None,
    preset: str | None = None,
    seed: int = 0,
    disk_budget: int | str | None = None,
    keep_current: bool = False,
    runtime: Runtime | None = None,
    **settings: Any,
) -> Result:
    """Evolve C, or train it by gradient, as `wm train-controller` does: `wm.train_controller("Pong", algo="ppo",
    in_="dream")`. Then `wm.load(result.run)` is a world whose C acts.

    The arguments, without data and device, and the errors are those of `train_vae`; MissingInput without V or M.
    """
    call = _Call("train-controller", env, preset, settings)
    session = call.session(None, run, name, seed, "auto", disk_budget, keep_current, runtime)
    with _TURN:
        return controller_training.train_controller(session, call.resolve(ControllerSettings))


@dataclasses.dataclass(frozen=True)
class _Call:
    """A stage's name, its environment, and what its settings are given by."""

    stage: str
    env: str
    preset: str | None
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Numbers of numpy are numbers, too. Raises UsageProblem for what is no name."""
        if not isinstance(self.env, str) or not self.env.strip() or "\0" in self.env:
            raise UsageProblem(f"env is {shown(self.env)}; expected the name of an environment, such as 'Pong'.")
        if not isinstance(self.preset, str | None):
            raise UsageProblem(f"preset is {shown(self.preset)}; expected the name of one, such as 'laptop', or None.")
        items = self.settings.items()
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in items}
        object.__setattr__(self, "settings", plain)

    def resolve(self, group: type[G]) -> G:
        """The settings. Raises UsageProblem for one that the stage does not have, or that is out of bounds."""
        items = {name: find_setting(group, name, self.stage) for name in self.settings}
        source = f"wm.{self.stage.replace('-', '_')}"
        values = {item.name: convert(item, self.settings[name], source) for name, item in items.items()}
        sources = Sources(None if self.preset is None else find_preset(self.preset))
        return sources.resolve(self.stage, group, self.env, values)[0]

    def session(
        self,
        data: Paths,
        run: PathLike | None,
        name: str | None,
        seed: int,
        device: str,
        disk_budget: int | str | None,
        keep_current: bool,
        runtime: Runtime | None,
    ) -> Session:
        """What the stage is given. Raises UsageProblem for a value that the command's option would refuse."""
        end_if_starting()
        extras.require_versions()
        if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed <= LARGEST_SEED:
            raise UsageProblem(f"seed is {shown(seed)}; expected a whole number from 0 to 2^53.")
        seed = int(seed)
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise UsageProblem(f"name is {shown(name)}; expected that of an artifact, or None for the stage's.")
        one_of("device", device, DEVICES)
        paths = () if data is None else folders("data", data)
        if data is not None and not paths:
            raise UsageProblem("data is empty; expected the path of a dataset, or None for data/<Env>.zarr.")
        at = () if run is None else (folder("run", run),)
        if not isinstance(keep_current, bool):
            raise UsageProblem(f"keep_current is {shown(keep_current)}; expected True or False.")
        places = {"data": paths, "run": at, "name": () if name is None else (name,)}
        session = Session(
            self.env,
            seed,
            paths,
            at[0] if at else None,
            name,
            device,
            None if disk_budget is None else _bytes(disk_budget),
            keep_current,
            runtime,
            self.command(places, seed),
        )
        for path in (*session.data_paths, session.run_path):
            require_possible(path)
        return session

    def command(self, places: Mapping[str, Sequence[Any]], seed: int) -> str:
        """The command line that does the same; it is recorded with the artifact."""
        options = {**places, "preset": [self.preset] if self.preset else [], "seed": [seed] if seed else []}
        options["set"] = [
            f"{name.rstrip('_')}={value if isinstance(value, str) else shown(value)}"
            for name, value in self.settings.items()
            if value is not None
        ]
        return command_line(self.stage, self.env, options)


def _bytes(disk_budget: int | str) -> int:
    """Bytes, or what a text says of them. Raises UsageProblem for other values."""
    if isinstance(disk_budget, str):
        return parse_size(disk_budget, "disk_budget")
    if isinstance(disk_budget, bool) or not isinstance(disk_budget, Real) or not 0 <= disk_budget <= LARGEST_SIZE:
        raise UsageProblem(
            f"disk_budget is {shown(disk_budget)}; expected a number of bytes, or a text such as '500MB'."
        )
    return int(disk_budget)
