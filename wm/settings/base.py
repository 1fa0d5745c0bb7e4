"""What a setting is: a field of a frozen dataclass with a sentence and a bound, declared once.

Options, presets, variables and the reference in docs derive from the declaration. A setting with a `section` has an
option of its own, listed under that heading of the command's help. Every setting can be given by `--set name=value`, a
variable, a preset or a config file. `result=False` marks what cannot change the result; it is left out of
fingerprints. This package imports nothing heavy: `wm --help` reads it.
"""

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from operator import itemgetter
from typing import Any, TypeVar, get_args

from wm.errors import UsageProblem, shown
from wm.masks import masked_rows

# Of numbers without a bound of their own: no training counts so far, products of whole ones fit 64 bits, and those of
# others the floats of a network.
MOST = 10**9
MOST_EPISODES = 10**6  # of an evaluation or validation: the list of them is built before the first is played
MOST_IN_BATCH = 10**5  # frames, windows or dreams that are in memory together; of the smallest frames, 0.3 GB
LARGEST_SEED = 2**53  # the largest integer that is read from files (wm/artifacts/json_reader.py)
LONGEST = 10**4  # steps of a window or a dream, for each of which memory is allocated before the first
_MOST_DIGITS = 30  # of a number in a sentence
_NEAR = 0.65  # likeness of two names: that of vea and vae, a swap in three letters, is 0.67
_OF_ZERO = re.compile(r"\b0: (.+?)(?:[.;](?: |$)| \()")  # what 0 means, in the sentence of a setting
T = TypeVar("T")

WANTED = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}  # by the type of a setting
Field = dataclasses.Field[Any]


def setting(
    default: T,
    sentence: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    section: str = "",
    result: bool = True,
    newer: bool = False,
    algorithm: str = "",
) -> T:
    """Declare a setting: its default, a sentence for the help, its bounds (without `high` MOST, without `low` -MOST),
    the help's section its option stands in (empty: no option), whether it can change the result, and the only
    `algorithm` that it means something to. Earlier artifacts lack a `newer` setting: its default means what they
    did."""
    metadata = {
        "sentence": sentence,
        "low": low,
        "high": high,
        "choices": choices,
        "section": section,
        "result": result,
        "newer": newer,
        "algorithm": algorithm,
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
        """The settings that enter a fingerprint, as given: without newer ones at their defaults, and without those of
        another algorithm."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        left_out = self.of_other_algorithms(values)
        left_out |= {
            item.name
            for item in dataclasses.fields(self)
            if not item.metadata["result"] or (item.metadata["newer"] and values[item.name] == item.default)
        }
        return {name: value for name, value in values.items() if name not in left_out}

    @classmethod
    def of_other_algorithms(cls, values: Mapping[str, Any]) -> set[str]:
        """The names of settings that mean nothing to the algorithm these values choose."""
        return set()


def public_name(item: Field) -> str:
    """`in_` -> `in`: the name by which people give a setting."""
    return item.name.rstrip("_")


def option_name(item: Field) -> str:
    """`max_steps` -> `--max-steps`."""
    return "--" + public_name(item).replace("_", "-")


def given_as(item: Field) -> str:
    """How people give it: `--max-steps`, or `--set max_steps` without an option."""
    return option_name(item) if item.metadata["section"] else f"--set {public_name(item)}"


def value_type(item: Field) -> type:
    """int, float, str or bool; of `float | None` float."""
    kinds = [kind for kind in get_args(item.type) if kind is not type(None)]
    kind: type = kinds[0] if kinds else item.type  # type: ignore[assignment]
    return kind


def takes_none(item: Field) -> bool:
    """Whether the setting can be left without a value."""
    return type(None) in get_args(item.type)


def default_text(item: Field) -> str:
    """The default as help and reference show it; of a 0 with a meaning that the sentence tells, this meaning."""
    default = item.default
    if isinstance(default, bool):
        return "yes" if default else "no"
    if default == 0 and (meaning := _OF_ZERO.search(item.metadata["sentence"])) is not None:
        return meaning[1]
    if isinstance(default, float):
        return f"{default:g}"
    return "none" if default in (None, "") else str(default)


def check(item: Field, value: Any) -> None:
    """Raise UsageProblem, by the name it is given with, if `value` is of another type than declared, outside the
    declared bounds or choices, or is no finite number."""
    if value is None:
        return
    low, high, choices = item.metadata["low"], item.metadata["high"], item.metadata["choices"]
    name, kind = given_as(item), value_type(item)
    if not _is_a(value, kind):
        raise UsageProblem(f"{name} is {shown(value)}; expected {WANTED[kind]}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageProblem(f"{name} is {value}; expected a finite number.")
    high = MOST if high is None and isinstance(value, int | float) else high
    low = -MOST if low is None and isinstance(value, int | float) else low
    if choices is not None and value not in choices:
        raise UsageProblem(f"{name} is {shown(value)}; expected one of {', '.join(map(str, choices))}.")
    if low is not None and not value >= low:
        raise UsageProblem(f"{name} is {_number_text(value)}; expected at least {_bound(low)}.")
    if high is not None and not value <= high:
        raise UsageProblem(f"{name} is {_number_text(value)}; expected at most {_bound(high)}.")


def _is_a(value: object, kind: type) -> bool:
    """Whether a value, such as that of an edited recipe, has a setting's type. For Python True is an int, and for us an
    int is a float."""
    return isinstance(value, bool) == (kind is bool) and isinstance(value, (int, float) if kind is float else kind)


def check_mask(mask: str) -> None:
    """Raise UsageProblem for a text that is no mask of frames."""
    try:
        masked_rows(mask)
    except ValueError:
        raise UsageProblem(
            f"--set mask is {shown(mask)}; expected none, flicker, or rows in percent of the height, such as 12-88."
        ) from None


def _number_text(value: Any) -> str:
    """A value in a sentence; a number of very many digits is not written out."""
    too_long = isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS
    return f"a number of more than {_MOST_DIGITS} digits" if too_long else str(value)


def _bound(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def suggestion(name: str, names: Iterable[str]) -> str:
    """What a mistyped name is answered with: the nearest of `names`, else all of them."""
    names = list(names)
    near = nearest(name, names)
    return f"did you mean {near}?" if near else f"expected one of {', '.join(names)}."


def nearest(name: str, names: Iterable[str]) -> str:
    """The one of `names` that a mistyped name was meant to be; empty if none is near."""
    likeness, near = max(((_likeness(name, other), other) for other in names), key=itemgetter(0), default=(0.0, ""))
    return near if likeness >= _NEAR else ""


def _likeness(name: str, other: str) -> float:
    """From 0 to 1, of what follows the words with which both names begin: `--` or `WM_TRAIN_VAE_` makes none like
    another. The beginning of a name is like it."""
    if name and other.startswith(name):
        return 1.0
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(name, other, strict=False))))
    begin = max(name.rfind(separator, 0, same) for separator in "-_ ") + 1
    return difflib.SequenceMatcher(None, name[begin:], other[begin:]).ratio()


def find_setting(group: type[Settings], name: str, command: str) -> Field:
    """The setting that people call `name`. Raises UsageProblem with the nearest name."""
    items = {public_name(item): item for item in dataclasses.fields(group)}
    key = name.replace("-", "_").rstrip("_")
    if key not in items:
        raise UsageProblem(f"{command} has no setting {name!r}; {suggestion(key, items)}")
    return items[key]


def convert(item: Field, value: Any, source: str) -> Any:
    """A value of a setting from text, or from TOML. Raises UsageProblem where the type differs."""
    if takes_none(item) and (value is None or (isinstance(value, str) and value.lower() in ("", "none"))):
        return None
    expected = value_type(item)
    if expected is bool:
        text = value.lower() if isinstance(value, str) else shown(value).lower()
        if text in ("true", "1", "yes", "false", "0", "no"):
            return text in ("true", "1", "yes")
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            if (converted := expected(value)) == value or isinstance(value, str) or expected is not int:
                return converted  # 2.5 is no whole number
        except (TypeError, ValueError, OverflowError):
            # What cannot be converted is told below, with its source.
            pass
    raise UsageProblem(f"{public_name(item)} is {shown(value)[:80]} ({source}); expected {WANTED[expected]}.")
