"""Values that a program gives."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.errors import UsageProblem, shown


def whole(name: str, value: Any, least: int, hint: str = "", most: int | None = None) -> int:
    """`value` as an int. Raises UsageProblem unless it is a whole number from `least` to `most`, which True and False
    are not; `hint` says what else there is."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        # What is no whole number is refused below, as a number that is too small.
        number = least - 1
    if number < least:
        raise UsageProblem(f"{name} is {shown(value)}; expected a whole number of at least {least}{hint}.")
    if most is not None and number > most:
        raise UsageProblem(f"{name} is {shown(value)}; expected at most {most}.")
    return number


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """`value`, if it is one of these texts. Raises UsageProblem otherwise."""
    if not isinstance(value, str) or value not in choices:
        raise UsageProblem(f"{name} is {shown(value)}; expected one of {', '.join(choices)}.")
    return value


def as_array(name: str, value: Any) -> NDArray[Any]:
    """`value` as an array of whatever type and shape. Raises UsageProblem for what is none, such as lists of different
    lengths, or a tensor that records gradients or is on a GPU."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise UsageProblem(
            f"{name}: a {type(value).__name__} that NumPy cannot take ({why}); expected an array."
        ) from None
