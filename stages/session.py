"""What every stage is given: where things are, how to run, and whom to tell."""

import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import console
from wm.artifacts.disk import DiskBudget, show_size
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import Artifact, Builder, Run
from wm.errors import MissingPackage, UsageProblem
from wm.rollouts.workers import WORKER_TIMEOUT, Workers
from wm.telemetry.usage import hold_to_device

if TYPE_CHECKING:
    from wm.envs.registry import EnvConfig

_DEPENDENTS = {
    "vae": ("latents", "mdnrnn", "controller", "dream", "evaluation"),
    "latents": ("mdnrnn", "controller", "dream", "evaluation"),
    "mdnrnn": ("controller", "dream", "evaluation"),
    "controller": ("dream", "evaluation"),
}
_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "box2d", "zstandard", "cma")


@dataclass(frozen=True)
class Plan:
    """What a stage would do, for `--dry-run`: sentences, bytes that stay on `disk`, those that are needed meanwhile
    (`scratch`), memory and seconds, of episodes how many `rows`, and how many of the bytes are `latents`."""

    stage: str
    target: Path
    what: str
    disk: int
    memory: int
    seconds: tuple[float, float]
    rows: int = 0
    scratch: int = 0
    latents: int = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self.what.startswith("up to date")

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "stage": self.stage,
            "target": str(self.target),
            "what": self.what,
            "disk_bytes": self.disk,
            "scratch_bytes": self.scratch,
            "memory_bytes": self.memory,
            "seconds": list(self.seconds),
        }

    def __str__(self) -> str:
        low, high = (console.show_time(value) for value in self.seconds)
        span = low if low == high else f"{low} to {high}"
        return (
            f"{self.stage} -> {self.target}: {self.what}; disk about {show_size(self.disk + self.scratch)}, "
            f"memory about {show_size(self.memory)}, time about {span}"
        )


@dataclass(frozen=True)
class Result:
    """What a stage did: `status` is made, resumed, restored or up to date; `seconds` is what it took. People are shown
    `table`, if there is one, instead of `summary`."""

    stage: str
    status: str
    path: Path
    fingerprint: str
    metrics: dict[str, Any]
    summary: str
    seconds: float
    pictures: list[Path] = field(default_factory=list)
    table: str = ""

    def as_json(self) -> dict[str, Any]:
        """The one object that `--json` prints."""
        return {
            "stage": self.stage,
            "status": self.status,
            "artifact": str(self.path),
            "fingerprint": self.fingerprint,
            "metrics": self.metrics,
            "wall_seconds": self.seconds,
            "pictures": [str(path) for path in self.pictures],
        }


@dataclass(frozen=True)
class Session:
    """One invocation: an environment's places, the seed, the machine's share, and the manners."""

    env: str
    seed: int = 0
    data: tuple[Path, ...] = ()
    run: Path | None = None
    name: str | None = None
    device: str = "auto"
    workers: int = 0
    disk_limit: int | None = None
    memory_limit: int | None = None
    snapshot: bool = False
    keep_current: bool = False
    stop: console.Stop = field(default_factory=console.Stop)

    @property
    def slug(self) -> str:
        """The environment's name in paths: `ALE/Seaquest-v5` becomes `ALE-Seaquest-v5`."""
        return self.env.replace("/", "-").replace(":", "-")

    @property
    def data_path(self) -> Path:
        """The dataset, where a stage takes one. Raises UsageProblem if there are several."""
        if len(self.data) > 1:
            raise UsageProblem(f"--data is given {len(self.data)} times; this command takes one dataset.")
        return self.data_paths[0]

    @property
    def data_paths(self) -> tuple[Path, ...]:
        """The datasets of a training, the first of them the one V was trained on."""
        return self.data or (Path("data") / f"{self.slug}.zarr",)

    @property
    def run_path(self) -> Path:
        """The folder of the environment's artifacts."""
        return self.run or Path("runs") / self.slug

    @property
    def processes(self) -> int:
        """How many processes play: as asked, else one per core."""
        return self.workers or max(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, 1)

    def for_env(self, env: str) -> "Session":
        """The same for another environment."""
        return replace(self, env=env, data=(), run=None, name=None)

    def command(self, verb: str) -> str:
        """The command line that makes something for this environment."""
        return f"wm {verb} --env {shlex.quote(self.env)}"

    def budget(self, target: Path) -> DiskBudget:
        """The disk budget at `target`."""
        return DiskBudget(target, self.disk_limit)

    def open_workers(self) -> Workers:
        """The processes that play; they give up when a signal arrives."""
        return Workers(self.processes, self.stop.raise_if_stopped, time.monotonic, _patience())

    def make_run(
        self, name: str, kind: str, version_: int, settings: dict[str, Any], inputs: dict[str, str], seeded: bool = True
    ) -> Run:
        """The run of an artifact of this environment; the seed counts as a setting."""
        chosen = {"seed": self.seed, **settings} if seeded else settings
        return Run(self.run_path, name, Recipe(kind, version_, chosen, inputs), _DEPENDENTS.get(kind, ()))

    def provenance(self, began: float, env: "EnvConfig | None" = None) -> dict[str, Any]:
        """Versions, commit, device, wall time and command, and who drew the frames: recorded beside a result, not part
        of its identity."""
        return {
            **({"render": env.render} if env else {}),
            "versions": {name: version_of(name) for name in _PACKAGES} | {"wm": version_of("wm")},
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "commit": _commit(),
            "device": self.device,
            "seed": self.seed,
            "wall_seconds": round(time.monotonic() - began, 1),
            "command": shlex.join(["wm", *sys.argv[1:]]),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }


def _patience() -> float:
    """Seconds without a sign of life after which a worker is replaced."""
    text = os.environ.get("WM_PATIENCE", str(WORKER_TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise UsageProblem(f"WM_PATIENCE is {text!r}; expected a number of seconds above 0.")
    return seconds


def pick_device(asked: str) -> str:
    """Resolve `auto`, and refuse a device that is not there."""
    import torch

    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked == "auto":
        asked = "cuda" if present["cuda"] else "mps" if present["mps"] else "cpu"
    if not present[asked]:
        raise MissingPackage(f"--device is {asked} but this torch sees none; use --device cpu or auto.")
    hold_to_device()
    return asked


def stage_name(session: Session, default: str) -> str:
    """The artifact's name: `--name`, or the stage's own."""
    return check_name("--name", session.name or default)


def check_name(option: str, name: str) -> str:
    """`name`, if it can be that of an artifact. Raises UsageProblem otherwise."""
    if not all(part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in name.split("/")):
        raise UsageProblem(f"{option} is {name!r}; expected letters, digits, '-', '_' and '.'.")
    return name


def up_to_date(stage: str, artifact: Artifact, summary: str, status: str = "up to date") -> Result:
    """The result of a stage that had nothing to do."""
    seconds = float(artifact.manifest["provenance"]["wall_seconds"])
    pictures = sorted(path for path in artifact.folder.iterdir() if path.suffix in (".png", ".gif"))
    return Result(stage, status, artifact.folder, artifact.fingerprint, artifact.metrics, summary, seconds, pictures)


def made(stage: str, builder: Builder, artifact: Artifact, summary: str) -> Result:
    """The result of a stage that did something."""
    status = "resumed" if builder.resumed else "made"
    return up_to_date(stage, artifact, summary, status)


def version_of(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of this source tree, with `+` when it is changed; None for an installed package."""
    here = Path(__file__).resolve().parent.parent
    if not (here / ".git").exists():
        return None
    try:
        told = ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
        return subprocess.run(told, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
