"""What every stage is: a plan, a result, and the life of its artifact, written once.

A stage opens its inputs, says which artifact it makes (`Session.make_run`), and hands `run_stage` the work that fills
the artifact's folder. Whether the artifact is up to date, restored from the archive, resumed or created is decided
here, and nowhere else.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stages import console
from stages.session import Session
from wm.artifacts.runs import Artifact, Builder, Run
from wm.envs.registry import EnvConfig
from wm.units import format_duration, format_size

UP_TO_DATE, RESTORED, RESUMED, CREATED = "up to date", "restored", "resumed", "created"
_PICTURES = (".png", ".gif")


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
        return self.what.startswith(UP_TO_DATE)

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
        low, high = (format_duration(value) for value in self.seconds)
        span = low if low == high else f"{low} to {high}"
        return (
            f"{self.stage} -> {self.target}: {self.what}; disk about {format_size(self.disk + self.scratch)}, "
            f"memory about {format_size(self.memory)}, time about {span}"
        )


@dataclass(frozen=True)
class Result:
    """What a stage did. `status` is created, resumed, restored or up to date; `seconds` is what it took. People are
    shown `table`, if there is one, instead of `summary`."""

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

    def __str__(self) -> str:
        """For people: the artifact, what happened to it, and its figures."""
        duration = "" if self.status == UP_TO_DATE else f" in {format_duration(self.seconds)}"
        pictures = [f"  {picture}" for picture in self.pictures]
        return "\n".join([f"{self.path}: {self.status}{duration}", self.table or console.wrap(self.summary), *pictures])


def plan_stage(stage: str, run: Run, estimate: Callable[[], Plan]) -> Plan:
    """The plan of an artifact: nothing to do, or `estimate` with the reason why a finished one is stale."""
    if run.current() is not None:
        return Plan(stage, run.folder, UP_TO_DATE, 0, 0, (0, 0))
    plan = estimate()
    why = run.why_stale()
    return replace(plan, target=run.folder, what=plan.what + (f" ({why})" if why else ""))


def run_stage(
    session: Session,
    stage: str,
    run: Run,
    need: tuple[int, str],
    summary: Callable[[Artifact], str],
    work: Callable[[Builder], dict[str, Any]],
    env: EnvConfig | None = None,
) -> Result:
    """Return the finished artifact of `run`, or make it: check the disk budget for `need` (bytes, what for), let `work`
    fill the builder's folder and return the metrics, and publish. `env` is recorded with what rendered the frames.

    Raises DiskProblem before anything is written, RecipeMismatch with --keep-current, and what `work` raises.
    """
    if (current := run.current()) is not None:
        return _result(stage, current, summary, UP_TO_DATE)
    started = time.monotonic()
    session.budget(run.folder).require(need[0], 0, need[1])
    with run.build(session.keep_current, session.runtime.log) as builder:
        if builder.restored is not None:
            return _result(stage, builder.restored, summary, RESTORED)
        metrics = work(builder)
        artifact = builder.publish(metrics, session.provenance(started, env))
    return _result(stage, artifact, summary, RESUMED if builder.resumed else CREATED)


def _result(stage: str, artifact: Artifact, summary: Callable[[Artifact], str], status: str) -> Result:
    pictures = sorted(artifact.folder / name for name in artifact.manifest["files"] if name.endswith(_PICTURES))
    return Result(
        stage,
        status,
        artifact.folder,
        artifact.fingerprint,
        artifact.metrics,
        summary(artifact),
        artifact.wall_seconds,
        pictures,
    )
