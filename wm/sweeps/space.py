"""The space of a sweep: a TOML file whose names are settings of one stage.

    learning_rate = {low = 1e-4, high = 1e-2, log = true}
    num_envs = {low = 8, high = 64, step = 8}
    units = [64, 128]

A range has the type and lies within the bounds of its setting; so does every choice.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wm.errors import UsageProblem
from wm.settings import COMMANDS, Settings
from wm.settings.base import Field, check, convert, find_setting, public_name, value_type
from wm.settings.sources import read_toml
from wm.sweeps.objective import OBJECTIVES

DIGITS = 4  # of a float that is tried: people read them, and repeat the best by typing it
_EXPECTED = "expected a list of values, or {low = ..., high = ...}"


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; of the logarithm evenly with `log`, else `step` apart if it is
    given. Whole numbers if both are."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __str__(self) -> str:
        more = ", log" if self.log else f", step {_number(self.step)}" if self.step else ""
        return f"{_number(self.low)} to {_number(self.high)}{more}"

    @property
    def ends(self) -> tuple[Any, ...]:
        """Its ends, which are valid if all between them are."""
        return self.low, self.high

    def has(self, value: Any) -> bool:
        """Whether a value that was tried can be of it."""
        return type(value) in (int, float) and self.low <= value <= self.high

    def rounded(self, value: float) -> float:
        """A float of the range with few digits; a whole number as it is."""
        if isinstance(value, int):
            return value
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


def _number(value: float) -> str:
    """With six digits, or with all where that would be another number: a recipe tells one range from another."""
    text = f"{value:g}"
    return text if float(text) == value else str(value)


@dataclass(frozen=True)
class Choices:
    """One of these values."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return " | ".join(map(str, self.values))

    @property
    def ends(self) -> tuple[Any, ...]:
        """All of them."""
        return self.values

    def has(self, value: Any) -> bool:
        """Whether a value that was tried can be of it."""
        return value in self.values


Space = Mapping[str, Range | Choices]  # by the name of the field


def read_space(path: Path, stage: str) -> dict[str, Range | Choices]:
    """The space in a file, for settings of `stage`. Raises MissingInput without the file, and UsageProblem for an
    unknown name, a wrong type, a value outside the setting's bounds, and a setting that is no part of a sweep."""
    space: dict[str, Range | Choices] = {}
    for name, value in read_toml(path, "space file", _EXPECTED).items():
        item = find_setting(COMMANDS[stage], name, stage)
        _require_comparable(stage, item)
        if item.name in space:
            raise UsageProblem(f"{path} has {public_name(item)} twice; give it once.")
        if isinstance(value, list):
            space[item.name] = _choices(item, value, str(path))
        elif isinstance(value, dict):
            space[item.name] = _range(item, value, str(path))
        else:
            fixed = f"give a fixed value with --set {public_name(item)}={value}"
            raise UsageProblem(f"{path}: {public_name(item)} is {repr(value)[:80]}; {_EXPECTED}, or {fixed}.")
    if not space:
        raise UsageProblem(f"{path} names no setting; expected such as learning_rate = {{low = 1e-4, high = 1e-2}}.")
    return space


def _require_comparable(stage: str, item: Field) -> None:
    name = public_name(item)
    if not item.metadata["result"]:
        raise UsageProblem(f"{name} cannot change the result of wm {stage}; leave it out of the space.")
    if item.name in OBJECTIVES[stage].defined_by:
        raise UsageProblem(
            f"{name} is part of what validates wm {stage}, so values of it cannot be compared by "
            f"{OBJECTIVES[stage].words}; leave it out of the space, and give it with --set."
        )


def _choices(item: Field, values: Sequence[Any], source: str) -> Choices:
    if not values:
        raise UsageProblem(f"{source}: {public_name(item)} is an empty list; expected values to choose from.")
    converted = tuple(dict.fromkeys(_value(item, value, source) for value in values))
    return Choices(converted)


def _value(item: Field, value: Any, source: str) -> Any:
    """A value of the setting's type and within its bounds. A number with a fraction is no whole number."""
    converted = convert(item, value, source)
    if isinstance(value, float) and converted != value:
        raise UsageProblem(f"{public_name(item)} is {value} ({source}); expected {value_type(item).__name__}.")
    try:
        check(item, converted)
    except UsageProblem as error:
        raise UsageProblem(f"{source}: {error}") from None
    return converted


def _range(item: Field, table: Mapping[str, Any], source: str) -> Range:
    name, kind = public_name(item), value_type(item)
    if kind not in (int, float) or item.metadata["choices"] is not None:
        raise UsageProblem(f"{source}: {name} has no range; expected a list of values, such as {name} = [...].")
    if unknown := set(table) - {"low", "high", "log", "step"}:
        raise UsageProblem(f"{source}: {name} has {sorted(unknown)[0]!r}; expected low, high, log and step.")
    if missing := {"low", "high"} - set(table):
        raise UsageProblem(f"{source}: {name} lacks {' and '.join(sorted(missing))}; {_EXPECTED}.")
    low, high = (_value(item, table[end], source) for end in ("low", "high"))
    log, step = table.get("log", False), table.get("step")
    if not isinstance(log, bool):
        raise UsageProblem(f"{source}: log of {name} is {repr(log)[:80]}; expected true or false.")
    if low is None or high is None or not low < high:
        raise UsageProblem(f"{source}: {name} goes from {low} to {high}; expected low below high.")
    if step is not None and (log or type(step) not in {kind, int} or not 0 < step <= high - low):
        raise UsageProblem(
            f"{source}: step of {name} is {repr(step)[:80]}; expected a part of {high - low:g} as {kind.__name__}, "
            "without log."
        )
    if log and low <= 0:
        raise UsageProblem(f"{source}: {name} begins at {low}; with log expected low above 0.")
    return Range(low, high, log, step)


def corners(space: Space, base: Settings) -> list[Settings]:
    """The base with the first end of every setting, and with each other end in its turn: what a plan measures. Raises
    UsageProblem where they contradict each other or the base."""
    first = {name: each.ends[0] for name, each in space.items()}
    others = itertools.chain.from_iterable(({name: end} for end in each.ends[1:]) for name, each in space.items())
    return [dataclasses.replace(base, **(first | other)) for other in ({}, *others)]


def require_fit(corners: Sequence[Settings], check: Callable[[Settings], None]) -> None:
    """Raise the UsageProblem of `check` if all corners have one: every trial would fail of it."""
    problems = []
    for settings in corners:
        try:
            check(settings)
        except UsageProblem as problem:
            # One corner may contradict itself where others do not, so all are asked first.
            problems.append(problem)
        else:
            return
    raise problems[0]


def assignments(values: Mapping[str, Any], stage: str) -> list[str]:
    """`--set` arguments that give these values."""
    fields = {item.name: item for item in dataclasses.fields(COMMANDS[stage])}
    return [f"{public_name(fields[name])}={_text(value)}" for name, value in values.items()]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)
