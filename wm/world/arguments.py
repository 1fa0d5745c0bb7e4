"""Whole numbers that a program gives."""

import operator
from typing import Any

from wm.errors import UsageProblem


def whole(name: str, value: Any, least: int, hint: str = "") -> int:
    """`value` as an int. Raises UsageProblem unless it is a whole number from `least` on; `hint` says what else there
    is."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise UsageProblem(f"{name} is {value!r}; expected a whole number of at least {least}{hint}.")
    return number
