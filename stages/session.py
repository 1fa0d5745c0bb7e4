"""What every stage is given: paths, seed, limits, and the Runtime and Workspace for the library."""

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import console
from wm import __version__
from wm.artifacts.disk import DiskBudget
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import Run
from wm.artifacts.workspace import Workspace, env_slug, is_reserved
from wm.errors import UsageProblem
from wm.runtime import WORKER_TIMEOUT, OpenTracker, Runtime

if TYPE_CHECKING:
    from wm.envs.registry import EnvConfig

_DEPENDENTS = {
    "vae": ("latents", "mdnrnn", "controller", "dream", "evaluation"),
    "latents": ("mdnrnn", "controller", "dream", "evaluation"),
    "mdnrnn": ("controller", "dream", "evaluation"),
    "controller": ("dream", "evaluation"),
}
_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "box2d", "zstandard", "zarr", "numcodecs", "cma")


def _unwatched(runtime: Runtime) -> Runtime:
    return runtime


@dataclass(frozen=True)
class Session:
    """One call of a command: the environment with its paths, the seed, and the limits of the machine. A Python program
    gives its own Runtime as `caller`: then nothing is printed, and `workers` is the caller's. `track` names trackers;
    without, TensorBoard has the metrics where it is installed. `watched` returns the Runtime of a training that is
    watched, as a sweep watches its trials."""

    env: str
    seed: int = 0
    data: tuple[Path, ...] = ()
    run: Path | None = None
    name: str | None = None
    device: str = "auto"
    workers: int = 0
    worker_timeout: float = WORKER_TIMEOUT
    disk_limit: int | None = None
    memory_limit: int | None = None
    snapshot: bool = False
    track: tuple[str, ...] = ()
    keep_current: bool = False
    stop: console.Stop = field(default_factory=console.Stop)
    caller: Runtime | None = None
    watched: Callable[[Runtime], Runtime] = _unwatched

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
        return self.run or Path("runs") / env_slug(self.env)

    @property
    def processes(self) -> int:
        """How many processes play: as asked, else one per core."""
        if self.caller is not None:
            return max(self.caller.workers, 1)
        return self.workers or max(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, 1)

    def for_env(self, env: str) -> "Session":
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
        """What the library uses of this process."""
        return self.watched(self.caller or self._own_runtime())

    def _own_runtime(self) -> Runtime:
        return Runtime(
            clock=time.monotonic,
            log=console.say,
            progress=console.progress,
            stop_requested=lambda: self.stop.signal is not None,
            raise_if_stopped=self.stop.raise_if_stopped,
            workers=self.processes,
            worker_timeout=self.worker_timeout,
            memory_limit=self.memory_limit,
            memory_snapshots=self.snapshot,
            track=self._trackers(),
        )

    def _trackers(self) -> OpenTracker | None:
        if not self.track:
            return None
        from wm.telemetry.trackers import trackers

        return trackers(self.track, console.say)

    def make_run(
        self, name: str, kind: str, version_: int, settings: dict[str, Any], inputs: dict[str, str], seeded: bool = True
    ) -> Run:
        """The run of an artifact of this environment; the seed counts as a setting. Raises RecipeMismatch if the folder
        is the run of another environment."""
        from wm.pretrained import require_run_of

        require_run_of(self.workspace)
        recipe = Recipe(kind, version_, {"seed": self.seed, **settings} if seeded else settings, inputs)
        return Run(self.run_path, name, recipe, _DEPENDENTS.get(kind, ()))

    def provenance(self, started: float, env: "EnvConfig | None" = None) -> dict[str, Any]:
        """Versions, commit, device, wall time, command and renderer: recorded with a result, not part of its recipe."""
        return {
            **({"render": env.render} if env else {}),
            "versions": {name: version_of(name) for name in _PACKAGES} | {"wm": __version__},
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "commit": _commit(),
            "device": self.device,
            "seed": self.seed,
            "wall_seconds": round(time.monotonic() - started, 1),
            "command": shlex.join(["wm", *sys.argv[1:]] if self.caller is None else ["python", *sys.argv]),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }


def stage_name(session: Session, default: str) -> str:
    """The artifact's name: `--name`, or the stage's own. Raises UsageProblem for a reserved name."""
    name = check_name("--name", session.name or default)
    if name != default and is_reserved(name, default):
        other = f"choose another, such as {default}-2"
        raise UsageProblem(f"--name is {name!r}, which is reserved for other artifacts of a run; {other}.")
    return name


def check_name(option: str, name: str) -> str:
    """`name`, if it can be that of an artifact. Raises UsageProblem otherwise."""
    if not all(part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in name.split("/")):
        raise UsageProblem(f"{option} is {name!r}; expected letters, digits, '-', '_' and '.'.")
    return name


def version_of(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of this source tree, with `+` when it is changed; None for an installed package."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
