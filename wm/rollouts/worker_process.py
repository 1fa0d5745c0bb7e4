"""One worker process: its loop over tasks, its heartbeat, how it starts, and the pipe to it.

A worker is never forked from this process: torch keeps threads that a fork would freeze.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import psutil

from wm.envs.registration import one_line
from wm.envs.shown_warnings import ShownOnce
from wm.errors import UsageProblem, WmError, end_of_process
from wm.runtime import Runtime
from wm.telemetry.malloc import trim

TRIM_ABOVE = 64 << 20  # bytes of growth after which malloc returns free memory, which takes up to 40 ms
# Steps, or a second where they are slow: a message for each of them would wake the parent as often.
_HEARTBEAT_EVERY = 32
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Bytes of each with torch, V, M, C and environments.
PLAYERS_PARENT, SERVER, FORKED, SPAWNED = 350_000_000, 200_000_000, 250_000_000, 450_000_000
_SAFE_PATH = "PYTHONSAFEPATH"
_MARK = "WORLD_MODELS_WORKER"  # a variable that the processes inherit which an environment starts
_NAME = "wm worker"
_RUNS_PROGRAM = 113  # the exit code of a worker that would begin its parent's work; environments hardly take it
_SLOW_TO_IMPORT = ("numpy", "torch", "wm.rollouts.collection", "wm.rollouts.agents")
_pipe: Any = None  # a worker's end of its pipe
_sending = threading.RLock()  # threads of an environment may warn, and so may what a garbage collection here ends
_clock = Runtime().clock
_heartbeats, _sent = 0, 0.0  # their number, and when the latest was sent


def heartbeat(length: int = 0) -> None:
    """Report from within a task that it is alive: call it at every step, with the episode's length so far. Does nothing
    outside a worker."""
    global _heartbeats, _sent
    if _pipe is None:
        return
    _heartbeats, now = _heartbeats + 1, _clock()
    if _heartbeats % _HEARTBEAT_EVERY == 0 or now >= _sent + 1.0:
        _sent = now
        _send("alive", length)


def _send(kind: str, value: Any, memory: int = 0) -> None:
    with _sending:
        _pipe.send((kind, value, memory))


def _serve(pipe: Any, safe_path: str) -> None:
    """A worker's loop: receive a task, run it, reply."""
    global _pipe
    _pipe = pipe
    # Python has read it; programs that an environment starts find their modules as ever.
    os.environ[_SAFE_PATH] = safe_path
    # Inherited by what an environment starts, so that it can be found when its worker has died.
    os.environ[_MARK] = str(os.getpid())
    warnings.showwarning = ShownOnce(lambda *warned: _send("warned", warned))  # the parent hears all workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    # Windows has no SIGHUP.
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A daemon: it must not keep a worker alive that has finished.
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    process, trimmed = psutil.Process(), 0  # bytes after the last trim
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            # The pipe ends where the parent has died.
            _kill_children(os.getpid())
            return
        heartbeat()  # it has started, and imported what the task needs
        try:
            with contextlib.chdir("."):  # an environment that goes elsewhere in a step does not move the next task
                reply = ("done", function(*arguments))
            # Here, so that a result that cannot be pickled is an error of its task and not of the pipe.
            pickle.dumps(reply)
        except WmError as error:
            reply = ("refused", error)
        except (Exception, SystemExit) as error:  # environments outside this project may raise anything
            reply = ("raised", one_line(error))
        memory = process.memory_info().rss
        if memory > trimmed + TRIM_ABOVE and trim():
            memory = trimmed = process.memory_info().rss
        _send(*reply, memory)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    _kill_children(os.getpid())
    os._exit(1)


def _kill_children(pid: int) -> None:
    """Kill the processes that an environment has started in this worker, such as its simulator: nobody else would."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()


def _kill_orphans(pid: int) -> None:
    """The same for a worker that has died: what it started has another parent by now, often in a session of its own."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_MARK) == str(pid):
                process.kill()


def end_if_starting() -> None:
    """End this process if it is a worker that runs its parent's program again, as each does before its first task. A
    program without `if __name__ == "__main__":` would begin its work in every one."""
    process = multiprocessing.current_process()
    if process.name == _NAME and getattr(process, "_inheriting", False):
        os._exit(_RUNS_PROGRAM)


def slow_imports() -> list[str]:
    """The slow packages that this process has imported, which its workers will import too."""
    return [name for name in _SLOW_TO_IMPORT if name in sys.modules]


def _context(preload: list[str]) -> Any:
    """How workers start. On Linux they are forked from a server that has imported `preload` and runs nothing: a worker
    then starts at once and shares that memory. Elsewhere each is spawned.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preload)
    return context


@contextlib.contextmanager
def _variables(values: dict[str, str]) -> Iterator[None]:
    """Variables that processes inherit which are started within."""
    previous = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def outside_working_folder() -> contextlib.AbstractContextManager[None]:
    """Processes of `multiprocessing` that are started within import what this one would. They are `python -c`, which
    looks first in the working folder: that may be a stranger's, with a numpy.py in it."""
    return _variables({_SAFE_PATH: "1"})


@contextlib.contextmanager
def _without_program_from_stdin() -> Iterator[None]:
    """A new process runs its parent's program again, which has no file where Python read it from its standard input."""
    program: Any = sys.modules["__main__"]
    file = getattr(program, "__file__", None)
    if file is None or os.path.exists(file):
        yield
        return
    del program.__file__
    try:
        yield
    finally:
        program.__file__ = file


def playing_memory(count: int) -> int:
    """Bytes of a process, of `count` workers that play with V, M and C for it, and of their fork server."""
    return PLAYERS_PARENT + (SERVER + count * FORKED if sys.platform == "linux" else count * SPAWNED)


class Worker:
    """One process and the pipe to it. `task` is the number of its current task, None when idle. It will need the
    packages `preload` (None: those that are slow and imported here)."""

    def __init__(self, preload: list[str] | None = None) -> None:
        end_if_starting()
        context = _context(slow_imports() if preload is None else preload)
        self.pipe, theirs = context.Pipe()
        arguments = theirs, os.environ.get(_SAFE_PATH, "")
        self.process = context.Process(target=_serve, args=arguments, daemon=True, name=_NAME)
        # One thread a process: several would fight for the same cores. The environment is read when numpy loads.
        with _variables(dict.fromkeys(_THREADS, "1")), outside_working_folder(), _without_program_from_stdin():
            self.process.start()
        theirs.close()
        self.task: int | None = None
        self.started = False  # until its first message
        self.ended = False  # as its pipe tells, before the fork server may have heard of it
        self.last_message = 0.0
        self.memory = 0  # after its first task
        self.grown = 0

    def messages(self) -> list[tuple[str, Any, int]]:
        """(kind, value, memory) of its new messages; the last is ("failed", reason) if its process has ended, or
        ("refused", a WmError) if the program cannot have workers."""
        messages: list[tuple[str, Any, int]] = []
        try:
            while self.pipe.poll():
                messages.append(self.pipe.recv())
        except (EOFError, OSError):
            self.ended = True
            # Seconds. A process that was killed ends at once; this only bounds a wait for one that the kernel holds.
            self.process.join(timeout=5)
            code = self.process.exitcode
            if code == _RUNS_PROGRAM:
                problem = (
                    "a worker runs this program again as it starts; let the program's work stand under `if __name__"
                )
                return [*messages, ("refused", UsageProblem(f'{problem} == "__main__":`, or leave out workers.'), 0)]
            messages.append(("failed", f"its worker ended with {end_of_process(code)}", 0))
        return messages

    def end(self) -> None:
        """Kill the process, and those that it has started."""
        if self.process.pid is not None:
            alive = self.process.is_alive() and not self.ended
            (_kill_children if alive else _kill_orphans)(self.process.pid)
        self.process.kill()
        self.process.join(timeout=5)
        self.pipe.close()
