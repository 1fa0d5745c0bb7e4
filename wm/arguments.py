"""Values that a program gives."""

import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.artifacts.object_store import refuse_address
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


def folder(name: str, value: Any) -> Path:
    """`value` as a path. Raises UsageProblem for what is none, for an empty one, and for an address."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise UsageProblem(f"{name} is {value!r}; expected the path of a folder.")
    refuse_address(name, text)
    return Path(text)


def folders(name: str, value: Any) -> tuple[Path, ...]:
    """A path, or those of a list. Raises UsageProblem as `folder`."""
    paths = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
    return tuple(folder(name, each) for each in paths)


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
