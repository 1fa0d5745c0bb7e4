"""One writer at a time. The kernel releases flock when the process dies, so no lock is ever stale."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from wm.artifacts import durable
from wm.errors import Locked


@contextmanager
def exclusive(target: Path) -> Iterator[None]:
    """Hold the lock of `target`, a file next to it. Raises Locked, which names the process that holds the lock."""
    durable.make_folder(target.parent)
    owner = target.with_name(f".{target.name}.owner")
    lock = filelock.FileLock(target.with_name(f".{target.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise Locked(f"{target} is being written by {_holder(owner)}; wait for it or stop it.") from None
    try:
        owner.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def _holder(owner: Path) -> str:
    try:
        process = json.loads(owner.read_text())
        return f"process {process['pid']} on {process['host']}"
    except (OSError, ValueError, KeyError):
        return "another process"
