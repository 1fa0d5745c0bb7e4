"""Values that a program gives."""

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.errors import UsageProblem


def whole(name: str, value: Any, least: int, hint: str = "") -> int:
    """`value` as an int. Raises UsageProblem unless it is a whole number from `least` on; `hint` says what else there
    is."""
    try:
        number = operator.index(value)
    except TypeError:
        # What is no whole number is refused below, as a number that is too small.
        number = least - 1
    if number < least:
        raise UsageProblem(f"{name} is {value!r}; expected a whole number of at least {least}{hint}.")
    return number


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
