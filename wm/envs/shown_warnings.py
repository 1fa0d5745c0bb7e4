"""Python's warnings, each shown once: an environment of somebody else may warn at every step, in every process."""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

MOST = 5  # texts of one line of code: where it tells a number, every step has another one
LEFT_OUT = " (further warnings of this line are left out)"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")  # gymnasium's
Show = Callable[[str, type[Warning], str, int], None]  # the text without its category, and what warn_explicit takes


class ShownOnce:
    """Takes the place of `warnings.showwarning`: `show` is called for the first of equal warnings, on one line.

    A category that is not Python's own stands in the text, so that another process can show it.
    """

    def __init__(self, show: Show) -> None:
        self._show = show
        self._shown: defaultdict[tuple[str, int], set[str]] = defaultdict(set)

    def __call__(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
    ) -> None:
        from wm.envs.registration import one_line  # with gymnasium, which help and completion do without

        known = next(base for base in category.__mro__ if base.__module__ == "builtins")
        text = one_line(message if isinstance(message, Warning) else category(message))
        text = _COLOURS.sub("", text).removeprefix(f"{known.__name__}: ").removesuffix(LEFT_OUT)
        shown = self._shown[filename, lineno]
        if text in shown or len(shown) == MOST:
            return
        shown.add(text)
        self._show(text if len(shown) < MOST else text + LEFT_OUT, known, filename, lineno)
