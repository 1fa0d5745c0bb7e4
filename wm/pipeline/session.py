"""What every stage is given: paths, seed, limits, and the Runtime and Workspace for the library."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from wm.artifacts.disk import DiskBudget
from wm.artifacts.provenance import describe_program
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import Run
from wm.artifacts.workspace import Workspace, check_name, env_slug, is_reserved, usual_run
from wm.errors import UsageProblem
from wm.runtime import LOCAL, Runtime, or_default

if TYPE_CHECKING:
    from wm.envs.registry import EnvConfig

S = TypeVar("S", bound="Session")

_DEPENDENTS = {
    "vae": ("latents", "mdnrnn", "controller", "dream", "evaluation"),
    "latents": ("mdnrnn", "controller", "dream", "evaluation"),
    "mdnrnn": ("controller", "dream", "evaluation"),
    "controller": ("dream", "evaluation"),
}


@dataclass(frozen=True)
class Session:
    """One call of a stage: the environment with its paths, the seed, and the limits of the machine. A Python program
    gives its own Runtime as `caller`; without one nothing is shown, and everything runs in this process. `command` is
    the command line that does the same."""

    env: str
    seed: int = 0
    data: tuple[Path, ...] = ()
    run: Path | None = None
    name: str | None = None
    device: str = "auto"
    disk_limit: int | None = None
    keep_current: bool = False
    caller: Runtime | None = None
    command: str = ""

    @property
    def data_path(self) -> Path:
        """The dataset, where a stage takes one. Raises UsageProblem if there are several."""
        if len(self.data) > 1:
            raise UsageProblem(f"--data is given {len(self.data)} times; this command takes one dataset.")
        return self.data_paths[0]

    @property
    def data_paths(self) -> tuple[Path, ...]:
        """The datasets of a training, the first of them the one V was trained on."""
        return self.data or (Path("data") / f"{env_slug(self.env)}.zarr",)

    @property
    def run_path(self) -> Path:
        """The folder of the environment's artifacts."""
        return self.run or usual_run(self.env)

    @property
    def processes(self) -> int:
        """How many processes play."""
        return max(self.runtime.workers, 1)

    def for_env(self: S, env: str) -> S:
        """The same for another environment."""
        return replace(self, env=env, data=(), run=None, name=None)

    def budget(self, target: Path) -> DiskBudget:
        """The disk budget at `target`."""
        return DiskBudget(target, self.disk_limit)

    @property
    def workspace(self) -> Workspace:
        """Where the environment's datasets and artifacts are."""
        return Workspace(self.env, self.run_path, self.data_paths)

    @property
    def runtime(self) -> Runtime:
        """What the library uses of the program it runs in."""
        return or_default(self.caller)

    @property
    def leads(self) -> bool:
        """Whether this process writes: any but those that torchrun started beside the first one."""
        ranks = self.runtime.ranks
        return ranks is None or ranks.leads

    def make_run(
        self, name: str, kind: str, version: int, settings: dict[str, Any], inputs: dict[str, str], seeded: bool = True
    ) -> Run:
        """The run of an artifact of this environment; the seed counts as a setting. Raises RecipeMismatch if the folder
        is the run of another environment."""
        from wm.run_models import require_run_of

        require_run_of(self.workspace)
        recipe = Recipe(kind, version, {"seed": self.seed, **settings} if seeded else settings, inputs)
        return Run(self.run_path, name, recipe, _DEPENDENTS.get(kind, ()))

    def provenance(self, started: float, env: "EnvConfig | None" = None) -> dict[str, Any]:
        """Versions, commit, device, wall time, command and renderer: recorded with a result, not part of its recipe.
        `started` is what the clock of the Runtime said."""
        runtime = self.runtime
        return {
            **({"render": env.render} if env else {}),
            **describe_program(),
            "device": self.device,
            **_executor_used(runtime),
            "seed": self.seed,
            "wall_seconds": round(runtime.clock() - started, 1),
            "command": self.command.encode(errors="backslashreplace").decode(),  # a path may be no UTF-8
            "finished": runtime.now(),
        }


def _executor_used(runtime: Runtime) -> dict[str, Any]:
    """The kind of executor, where it is not this machine, and whether its CPUs may differ."""
    if runtime.executor == LOCAL:
        return {}
    return {"executor": runtime.executor.partition(":")[0], "any_cpu": runtime.any_cpu}


def stage_name(session: Session, default: str, init_from: str | None = None) -> str:
    """The artifact's name: `--name`, or the stage's own. Raises UsageProblem for a reserved name, and for that of the
    artifact that the run `init_from` starts it from: published, it would be another source, and the same command would
    train again."""
    name = check_name("--name", session.name or default)
    if name != default and is_reserved(name, default):
        other = f"choose another, such as {default}-2"
        raise UsageProblem(f"--name is {name!r}, which is reserved for other artifacts of a run; {other}.")
    if init_from and name == default and realpath(init_from) == realpath(session.run_path):
        raise UsageProblem(
            f"--init-from is {init_from}, so {default} would replace the one it starts from; give --name {default}-2, "
            "or another --run."
        )
    return name


def command_line(stage: str, env: str, options: Mapping[str, Iterable[Any]]) -> str:
    """What runs `stage` from a shell with these values of each option."""
    words = ["wm", stage, "--env", env]
    for option, values in options.items():
        for value in values:
            words += [f"--{option}", os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    return shlex.join(words)


def command_again(stage: str, preset: str | None, options: Mapping[str, Any], settings: Sequence[str]) -> str:
    """What runs `stage` with the options of another command, and these settings besides."""
    data = () if stage == "train-controller" else options["data"]  # which has it only from a config file
    once = {"run": options["run"], "preset": preset, "config": options["config"], "seed": options["seed"] or None}
    given = {name: () if value is None else (value,) for name, value in once.items()}
    return command_line(stage, options["env"], {"data": data, **given, "set": (*options["set"], *settings)})
