"""What belongs to the whole process, and is put back where an environment of somebody else has changed it: the working
directory, the handlers of signals, the umask, a lowered recursion limit, and how NumPy and torch compute.

With an environment's handlers no signal would end a command, and with its umask nobody, or anybody, could read what is
written; without gradients, or in doubles, nothing could be trained, and where NumPy raises for every underflow hardly
anything be measured. Within its own calls an environment finds NumPy and torch as its constructor has set them.
"""

import os
import signal
import sys
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # see _read_state
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from contextvars import Context, copy_context
from random import getstate
from typing import Any, NamedTuple, TypeVar

import numpy as np

# Signals that end a command. Windows has no SIGHUP.
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class _Torch(NamedTuple):
    """The type and the device of new tensors, and whether operations are recorded for gradients, as in a new process
    and here."""

    dtype: str = "torch.float32"
    device: str = "cpu"
    gradients: bool = True


Result = TypeVar("Result")
_of_environments: _Torch | None = None  # where it differs from this process'
_UNCHANGED = nullcontext()
# NumPy keeps in a context what np.seterr and np.seterrcall set.
_context: Context | None = None  # of environments, once one was built


class _State(NamedTuple):
    """The handlers of signals, the rights that new files do not get, and how deep calls may be nested."""

    handlers: list[Any]
    umask: int
    depth: int


@contextmanager
def preserved() -> Iterator[None]:
    """The working directory and a _State, around a call of an environment that may change them."""
    state = _read_state()
    try:
        with chdir("."):
            yield
    finally:
        _put_back(state)


def outside() -> tuple[str, _State]:
    """The working directory and a _State as they are, for `put_back` after a step, which is too short for `kept`."""
    return os.getcwd(), _read_state()


def put_back(before: tuple[str, _State]) -> None:
    """Undo what has changed since `outside` returned this."""
    folder, state = before
    if os.getcwd() != folder:
        os.chdir(folder)
    _put_back(state)


# At every step. signal.getsignal looks for a name of what the function in C returns: 5 us instead of 0.1.
def _read_state() -> _State:
    umask = os.umask(0o077)  # there is no other way to read it
    os.umask(umask)
    return _State([getsignal(number) for number in _SIGNALS], umask, sys.getrecursionlimit())


def _put_back(state: _State) -> None:
    for number, handler in zip(_SIGNALS, state.handlers, strict=True):
        changed = handler is not None and getsignal(number) is not handler
        if changed and threading.current_thread() is threading.main_thread():  # no other thread can set one
            signal.signal(number, handler)
    os.umask(state.umask)
    if sys.getrecursionlimit() < state.depth:  # a higher one harms nobody, and its steps may need it
        sys.setrecursionlimit(state.depth)


def generators() -> tuple[Any, str]:
    """The states of Python's and of NumPy's random generator, which only environments draw from."""
    return getstate(), str(np.random.get_state(legacy=False))


def learnt_context(build: Callable[..., Result], *arguments: Any) -> Result:
    """The result of importing and constructing an environment, in the context of the environments before it; how it
    leaves this context is how `in_context` finds it."""
    global _context
    context = (_context or copy_context()).copy()
    try:
        return context.run(build, *arguments)
    finally:
        _context = context


def in_context(call: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
    """The result of an environment's method in a copy of their context, which is gone afterwards. A copy takes 0.1 us,
    reading what np.geterr tells eight times that."""
    return (_context or copy_context()).copy().run(call, *arguments, **options)


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
