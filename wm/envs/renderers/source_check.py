"""A check that gymnasium's source is the version that our renderers reproduce."""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from wm.errors import MissingPackage


def source_digest(functions: Sequence[Callable[..., Any]]) -> str:
    """Sixteen hex digits of the functions' source."""
    text = "".join(inspect.getsource(function) for function in functions)
    # 64 bits: this tells versions apart, and is no protection against forgery.
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def require_known_source(name: str, functions: Sequence[Callable[..., Any]], digests: Sequence[str]) -> None:
    """Raise MissingPackage unless the functions' source has one of the digests.

    Our renderers follow gymnasium line by line. If gymnasium changes a line, their frames would be subtly wrong.
    """
    if source_digest(functions) not in digests:
        raise MissingPackage(
            f"gymnasium {version('gymnasium')} draws {name} in a way that our exact renderer was not tested against; "
            "use --render gymnasium, which is slower, or `pip install gymnasium==1.4.0`."
        )
