"""What belongs to the whole process, and is put back where an environment of somebody else has changed it: the working
directory, the handlers of signals, and how torch computes.

With an environment's handlers no signal would end a command; without gradients, or in doubles, nothing could be
trained. Within its own calls an environment finds torch as it has set it.
"""

import os
import signal
import sys
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # see _handlers
from collections.abc import Iterator
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from random import getstate
from typing import Any, NamedTuple

import numpy as np

# Signals that end a command. Windows has no SIGHUP.
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class _Torch(NamedTuple):
    """The type and the device of new tensors, and whether operations are recorded for gradients, as in a new process
    and here."""

    dtype: str = "torch.float32"
    device: str = "cpu"
    gradients: bool = True


_of_environments: _Torch | None = None  # where it differs from this process'
_UNCHANGED = nullcontext()


@contextmanager
def preserved() -> Iterator[None]:
    """The working directory and the handlers of signals, around a call of an environment that may change them."""
    handlers = _handlers()
    try:
        with chdir("."):
            yield
    finally:
        _put_back(handlers)


def outside() -> tuple[str, list[Any]]:
    """The working directory and the handlers of signals as they are, for `put_back` after a step, which is too short
    for `kept`."""
    return os.getcwd(), _handlers()


def put_back(state: tuple[str, list[Any]]) -> None:
    """Undo what has changed since `outside` returned this."""
    folder, handlers = state
    if os.getcwd() != folder:
        os.chdir(folder)
    _put_back(handlers)


# At every step. signal.getsignal looks for a name of what the function in C returns: 5 us instead of 0.1.
def _handlers() -> list[Any]:
    return [getsignal(number) for number in _SIGNALS]


def _put_back(handlers: list[Any]) -> None:
    for number, handler in zip(_SIGNALS, handlers, strict=True):
        changed = handler is not None and getsignal(number) is not handler
        if changed and threading.current_thread() is threading.main_thread():  # no other thread can set one
            signal.signal(number, handler)


def generators() -> tuple[Any, str]:
    """The states of Python's and of NumPy's random generator, which only environments draw from."""
    return getstate(), str(np.random.get_state(legacy=False))


def torch_of_environments() -> AbstractContextManager[None]:
    """torch as environments have set it, around their calls."""
    return _UNCHANGED if _of_environments is None else _set_apart(_of_environments)


@contextmanager
def learnt_torch() -> Iterator[None]:
    """The same around the import and the constructor of an environment, which decide how it is set."""
    global _of_environments
    ours = _read()
    with torch_of_environments():
        try:
            yield
        finally:
            theirs = _read()
            _of_environments = None if theirs == ours else theirs
            _set(ours)


@contextmanager
def _set_apart(theirs: _Torch) -> Iterator[None]:
    ours = _read()
    _set(theirs)
    try:
        yield
    finally:
        _set(ours)


def _read() -> _Torch:
    """As it is now; without torch, as it will be once it is imported."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return _Torch()
    return _Torch(str(torch.get_default_dtype()), str(torch.get_default_device()), torch.is_grad_enabled())


def _set(state: _Torch) -> None:
    torch: Any = sys.modules.get("torch")
    if torch is None or state == _read():
        return
    torch.set_default_dtype(getattr(torch, state.dtype.removeprefix("torch.")))
    torch.set_default_device(None if state.device == "cpu" else state.device)
    torch.set_grad_enabled(state.gradients)
