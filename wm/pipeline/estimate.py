"""What the stages of several environments need together: disk, memory and time."""

import heapq
import itertools
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from wm.errors import DiskProblem
from wm.pipeline.plan import Plan
from wm.units import format_duration, format_size


@dataclass(frozen=True)
class Estimate:
    """Plans by environment, which environments fail and why, the bytes left of the disk budget, what --keep keeps, how
    many environments train at a time, and a `folder` on the disk that is written to."""

    plans: dict[str, list[Plan]]
    failures: dict[str, str]
    budget: int | None
    keep: str = "all"
    jobs: int = 1
    folder: Path = Path()

    @property
    def disk(self) -> int:
        """The most bytes that are added at any time, with the scratch space of the largest stage. What --keep removes
        of an environment is gone before the next one starts."""
        ordered = [self.plans[env] for env in self.longest_first()]
        totals = [sum(plan.disk for plan in plans) for plans in ordered]
        removed = [sum(self._removed(plan) for plan in plans) for plans in ordered]
        most_bytes, kept_bytes = 0, 0
        for place, total in enumerate(totals):
            most_bytes = max(most_bytes, kept_bytes + sum(totals[place : place + self.jobs]))
            kept_bytes += total - removed[place]
        return most_bytes + self._at_a_time([plan.scratch for plan in plans] for plans in self.plans.values())

    def _removed(self, plan: Plan) -> int:
        data = plan.disk if plan.stage == "collect" and self.keep == "artifacts" else 0
        return data + (plan.latents if self.keep != "all" else 0)

    @property
    def memory(self) -> int:
        """The most memory that stages at the same time need."""
        return self._at_a_time([plan.memory for plan in plans] for plans in self.plans.values())

    def _at_a_time(self, needs: Iterable[list[int]]) -> int:
        """The largest needs of as many environments as train at a time, together."""
        return sum(sorted((max(stages, default=0) for stages in needs), reverse=True)[: self.jobs])

    @property
    def seconds(self) -> tuple[float, float]:
        """The least and the most."""
        ends = [[0.0] * self.jobs, [0.0] * self.jobs]
        for env in self.longest_first():  # each starts when one of those before it ends
            for end, durations in zip(ends, self._durations(env), strict=True):
                heapq.heapreplace(end, end[0] + durations)
        return max(ends[0]), max(ends[1])

    def _durations(self, env: str) -> tuple[float, float]:
        least, most = zip(*(plan.seconds for plan in self.plans[env]), strict=True)
        return sum(least), sum(most)

    def longest_first(self) -> list[str]:
        """The environments in the order in which they start where several train at a time, so that the last one does
        not train alone for long."""
        if self.jobs == 1:
            return list(self.plans)
        likely = {env: sum(plan.likely_seconds for plan in plans) for env, plans in self.plans.items()}
        return sorted(self.plans, key=lambda env: likely[env], reverse=True)

    @property
    def disk_problem(self) -> str:
        """Why it does not fit on the disk; empty if it does."""
        free, need = shutil.disk_usage(self.folder).free, format_size(self.disk)
        if self.disk > free:
            return f"all stages need about {need} of disk, and {format_size(free)} are free"
        if self.budget is not None and self.disk > self.budget:
            return f"all stages need about {need} of disk, and --disk-budget leaves {format_size(max(self.budget, 0))}"
        return ""

    @property
    def warnings(self) -> list[str]:
        """What will fail: environments, missing packages, the disk, the memory."""
        warnings = [f"{env} will fail: {reason}" for env, reason in self.failures.items()]
        if self.disk_problem:
            warnings.append(self.disk_problem)
        free = psutil.virtual_memory().available
        if self.memory > free:
            warnings.append(
                f"a stage needs about {format_size(self.memory)} of memory, and {format_size(free)} are free"
            )
        return warnings

    def require_disk(self) -> None:
        """Raise DiskProblem if it does not fit on the disk."""
        if self.disk_problem:
            raise DiskProblem(
                f"{self.disk_problem}; free some space, raise --disk-budget, take fewer environments, or give "
                "--keep artifacts."
            )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "environments": {env: [plan.as_json() for plan in plans] for env, plans in self.plans.items()},
            "disk_bytes": self.disk,
            "memory_bytes": self.memory,
            "seconds": list(self.seconds),
            "warnings": self.warnings,
        }

    def text(
        self, table: Callable[[Sequence[str], Sequence[Sequence[str]]], str], wrap: Callable[[str, str], str]
    ) -> str:
        """A line for every stage, and the warnings, laid out by `table(columns, rows)` and `wrap(text, indent)`."""
        rows = [
            [env, stage, plan.what, _size(plan.disk), _size(plan.memory), _duration(plan.seconds)]
            for env, plans in self.plans.items()
            for stage, plan in _with_rounds(plans)
        ]
        rows.append(["all", "", "", _size(self.disk), _size(self.memory), _duration(self.seconds)])
        lines = [table(["environment", "stage", "what", "disk", "memory", "time"], rows)]
        note = "estimated from short measurements on this machine; the time of C depends on its episodes' length"
        lines.append(wrap(note, ""))
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def _with_rounds(plans: list[Plan]) -> list[tuple[str, Plan]]:
    """Every plan with its stage's name, and the round after the first; each round starts with collecting. Alike plans
    of rounds in a row are one."""
    numbers = list(itertools.accumulate(plan.stage == "collect" for plan in plans))
    groups: list[list[tuple[int, Plan]]] = []
    for number, plan in zip(numbers, plans, strict=True):
        alike = (
            group
            for group in groups
            if (group[-1][1].stage, group[-1][1].what, group[-1][0]) == (plan.stage, plan.what, number - 1)
        )
        group = next(alike, None) if number > 2 else None
        if group is None:
            groups.append([(number, plan)])
        else:
            group.append((number, plan))
    return [(_stage_and_rounds(group), _together([plan for _, plan in group])) for group in groups]


def _stage_and_rounds(group: list[tuple[int, Plan]]) -> str:
    first, last, stage = group[0][0], group[-1][0], group[0][1].stage
    if last <= 1:
        return stage
    return f"{stage}, round {first}" if first == last else f"{stage}, rounds {first} to {last}"


def _together(plans: list[Plan]) -> Plan:
    """One plan after the other."""
    least, most = (sum(plan.seconds[edge] for plan in plans) for edge in (0, 1))
    disk, scratch = sum(plan.disk for plan in plans), max(plan.scratch for plan in plans)
    memory = max(plan.memory for plan in plans)
    return replace(plans[0], disk=disk, scratch=scratch, memory=memory, seconds=(least, most))


def _size(size: int) -> str:
    return format_size(size) if size else "-"


def _duration(seconds: tuple[float, float]) -> str:
    low, high = (format_duration(value) for value in seconds)
    return ("-" if high == "0 s" else low) if low == high else f"{low} to {high}"
