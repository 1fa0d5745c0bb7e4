"""What a stage would do: the plan of `--dry-run`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wm.artifacts.runs import Run
from wm.pipeline.stage import UP_TO_DATE
from wm.units import format_duration, format_size


@dataclass(frozen=True)
class Plan:
    """What a stage would do, for `--dry-run`: sentences, bytes that stay on `disk`, those that are needed meanwhile
    (`scratch`), memory, the least and the most seconds, of episodes how many `rows`, and how many of the bytes are
    `latents`. `fixed_work`: its steps are set beforehand, so the most is nearer than the least."""

    stage: str
    target: Path
    what: str
    disk: int
    memory: int
    seconds: tuple[float, float]
    rows: int = 0
    scratch: int = 0
    latents: int = 0
    fixed_work: bool = False

    @property
    def likely_seconds(self) -> float:
        """Most episodes end early, and with them the stages that play a set number of them."""
        return self.seconds[self.fixed_work]

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


def plan_stage(stage: str, run: Run, estimate: Callable[[], Plan]) -> Plan:
    """The plan of an artifact: nothing to do, or `estimate` with the reason why a finished one is stale."""
    if run.current() is not None:
        return Plan(stage, run.folder, UP_TO_DATE, 0, 0, (0, 0))
    plan = estimate()
    why = run.why_stale() or run.damage()
    return replace(plan, target=run.folder, what=plan.what + (f" ({why})" if why else ""))


def repeated(plans: Sequence[Plan], times: int, stage: str, target: Path, what: str) -> Plan:
    """What `stage` would do that runs one of these plans so often, whichever needs more."""
    disk, scratch, memory = (max(getattr(plan, need) for plan in plans) for need in ("disk", "scratch", "memory"))
    seconds = min(plan.seconds[0] for plan in plans) * times, max(plan.seconds[1] for plan in plans) * times
    return Plan(stage, target, what, disk * times, memory, seconds, scratch=scratch)
