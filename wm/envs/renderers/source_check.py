"""Whether gymnasium's code is still the code that our own drawing was written after."""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from wm.errors import MissingPackage


def digest(functions: Sequence[Callable[..., Any]]) -> str:
    """Sixteen hex digits of the functions' source."""
    text = "".join(inspect.getsource(function) for function in functions)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def require(name: str, functions: Sequence[Callable[..., Any]], known: Sequence[str]) -> None:
    """Raise MissingPackage unless the functions' source is one of the known ones.

    What we override follows gymnasium line by line. If gymnasium changes a line, ours would be subtly wrong.
    """
    if digest(functions) not in known:
        raise MissingPackage(
            f"gymnasium {version('gymnasium')} draws {name} in a way that our exact drawing was not checked against; "
            "use --render gymnasium, which is slower, or `pip install gymnasium==1.4.0`."
        )
