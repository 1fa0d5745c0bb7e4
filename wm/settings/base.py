"""What a setting is: a field of a frozen dataclass with a sentence and a bound, declared once.

Options, presets and the reference in docs derive from the declaration. A setting with a `section` has an option of its
own, listed under that heading of the command's help. Every setting can be given by `--set name=value`, a preset or a
config file. `result=False` marks what cannot change the result; it is left out of fingerprints. This package imports
nothing heavy: `wm --help` reads it.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from wm.errors import UsageProblem

T = TypeVar("T")


def setting(
    default: T,
    sentence: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    section: str = "",
    result: bool = True,
) -> T:
    """Declare a setting: its default, a sentence for the help, its bounds, the help's section its option stands in
    (empty: no option), and whether it can change the result."""
    metadata = {
        "sentence": sentence,
        "low": low,
        "high": high,
        "choices": choices,
        "section": section,
        "result": result,
    }
    declared: T = field(default=default, metadata=metadata)
    return declared


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all groups: checks every bound at construction."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            check(item, getattr(self, item.name))

    def result_settings(self) -> dict[str, Any]:
        """The settings that enter a fingerprint, as given."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.metadata["result"]}


def public_name(item: "dataclasses.Field[Any]") -> str:
    """`in_` -> `in`: the name by which people give a setting."""
    return item.name.rstrip("_")


def option_name(item: "dataclasses.Field[Any]") -> str:
    """`max_steps` -> `--max-steps`."""
    return "--" + public_name(item).replace("_", "-")


def value_type(item: "dataclasses.Field[Any]") -> type:
    """int, float, str or bool; of `float | None` float."""
    kinds = [kind for kind in get_args(item.type) if kind is not type(None)]
    chosen: type = kinds[0] if kinds else item.type  # type: ignore[assignment]
    return chosen


def takes_none(item: "dataclasses.Field[Any]") -> bool:
    """Whether the setting can be left without a value."""
    return type(None) in get_args(item.type)


def check(item: "dataclasses.Field[Any]", value: Any) -> None:
    """Raise UsageProblem, by the name it is given with, if `value` is outside the declared bounds or choices."""
    if value is None:
        return
    low, high, choices = item.metadata["low"], item.metadata["high"], item.metadata["choices"]
    name = option_name(item) if item.metadata["section"] else f"--set {public_name(item)}"
    if choices is not None and value not in choices:
        raise UsageProblem(f"{name} is {value!r}; expected one of {', '.join(map(str, choices))}.")
    if low is not None and not value >= low:
        raise UsageProblem(f"{name} is {value}; expected at least {low:g}.")
    if high is not None and not value <= high:
        raise UsageProblem(f"{name} is {value}; expected at most {high:g}.")
