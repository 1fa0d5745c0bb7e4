"""One writer at a time. The kernel releases flock when the process dies, so no lock is ever stale."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from wm.artifacts import durable, json_reader, links, manifest
from wm.errors import BadData, Locked

OWNER = json_reader.table({"pid": json_reader.COUNT, "host": json_reader.TEXT})


@contextmanager
def exclusive(target: Path) -> Iterator[None]:
    """Hold the lock of `target`, which is there or will be made. Raises Locked as `locked`, and UsageProblem where it
    would be made inside something finished."""
    if not target.exists():
        manifest.require_outside(target)
    with locked(target):
        yield


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of `target`, a file next to it, or of a link next to what it leads to: one lock for all its names.
    Raises Locked, which names the process that holds the lock."""
    durable.make_folder(target.parent)
    beside = target.resolve() if target.exists() else target
    owner = links.refuse(beside.with_name(f".{beside.name}.owner"))
    place = beside.with_name(f".{beside.name}.lock")
    durable.open_file(place, "ab").close()  # filelock would wait for a folder that takes no files, as for a lock
    # No wait: a command that finds a lock ends with exit code 75, so that a script can try again.
    lock = filelock.FileLock(place, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise Locked(f"{target} is being written by {_holder(owner)}; wait for it or stop it.") from None
    try:
        with durable.open_file(owner, "wb") as file:
            # For the message alone: the lock is the flock, and a stale owner file locks nobody out.
            file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        try:
            yield
        finally:
            durable.remove(owner)
    finally:
        lock.release()


@contextmanager
def waited_for(target: Path) -> Iterator[None]:
    """Hold another lock of `target`, for a moment, once nobody else does: several processes may refresh it."""
    durable.make_folder(target.parent)
    place = target.with_name(f".{target.name}.refresh.lock")
    durable.open_file(place, "ab").close()  # as above
    with filelock.FileLock(place):
        yield


def _holder(owner: Path) -> str:
    try:
        process = json_reader.read(owner, OWNER)
        return f"process {process['pid']} on {process['host']}"
    except BadData:
        # The owner file is written after the lock is taken, so it may be missing or half written.
        return "another process"
