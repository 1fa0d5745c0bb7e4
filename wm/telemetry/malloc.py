"""Settings of glibc's malloc, which keeps freed memory for later, in holes that look like a leak."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h


def trim() -> bool:
    """Let malloc return its free memory to the system. Returns whether it can: glibc's does."""
    if not sys.platform.startswith("linux"):
        return False
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is None:
        return False
    malloc_trim(0)
    return True


def keep_freed() -> None:
    """Let malloc keep freed memory for the next update, which needs as much again.

    With frames in pieces (`models/dreamer/layers.py`) a Dreamer's update takes 5.7 s instead of 7.1 s at the sizes of
    benchmarks/dreamer_step.py. The pieces save the larger part.
    """
    if sys.platform.startswith("linux"):
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)
        if set_option is not None:
            # A gigabyte: freed memory below it stays with the process.
            set_option(_TRIM_THRESHOLD, 1 << 30)
            # 32 MB is the most that glibc takes; above, a block is mapped for itself and returned when it is freed.
            set_option(_MMAP_THRESHOLD, 1 << 25)
