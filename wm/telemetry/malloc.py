"""What glibc's malloc does with memory that is freed: it keeps it for later, in holes that look like a leak."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h


def trim() -> bool:
    """Let malloc give back what is free. Returns whether it can: glibc's does."""
    if not sys.platform.startswith("linux"):
        return False
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is None:
        return False
    give_back(0)
    return True


def keep_freed() -> None:
    """Let malloc keep what is freed for what comes next: every update needs the same memory again. With frames in
    pieces (`models/dreamer/layers.py`) that saves a fifth of a Dreamer's update (7.1 s to 5.7 s at the sizes of
    benchmarks/dreamer_step.py), the larger part of it the pieces."""
    if sys.platform.startswith("linux"):
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)
        if set_option is not None:
            set_option(_TRIM_THRESHOLD, 1 << 30)
            set_option(_MMAP_THRESHOLD, 1 << 25)
