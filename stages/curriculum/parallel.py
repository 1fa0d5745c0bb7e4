"""`wm curriculum --jobs N`: N environments at a time, each a curriculum of its own in a process of its own."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import IO, NamedTuple

import psutil

from stages.curriculum.outcome import Outcome, recorded_outcome
from stages.curriculum.pipeline import Pipeline
from stages.progress import SideBySide
from stages.session import Session
from wm.artifacts import json_reader
from wm.artifacts.json_reader import COUNT, TEXT, or_null, table
from wm.errors import DiskProblem, WmError, end_of_process

POLL_SECONDS = 0.3  # between two looks at whether a signal or a process that failed ends the others
LEADER = "WM_LEADER"  # a Share as JSON, in the variables of a process that runs one environment
_SHARE = table({"leader": COUNT, "env": TEXT, "workers": COUNT, "disk_limit": or_null(COUNT)})


class Share(NamedTuple):
    """What one of several processes does: its environment, and its part of the machine. The process with the number
    `leader` started it."""

    leader: int
    env: str
    workers: int
    disk_limit: int | None


def read_share() -> Share | None:
    """The share of this process; None if it was not started by a curriculum."""
    if LEADER not in os.environ:
        return None
    return Share(**json_reader.parse(os.fsencode(os.environ[LEADER]), LEADER, _SHARE, "unset this variable"))


def exit_with(leader: int) -> None:
    """End this process when the process `leader` is killed, so that the same command can resume at once."""
    # A daemon, so that it does not keep a process alive whose work is done.
    threading.Thread(target=_exit_with, args=(leader,), daemon=True).start()


def _exit_with(leader: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        # _exit: other threads may hang in a library, and this must not wait for them.
        psutil.Process(leader).wait()
    os._exit(1)


def cores_each(session: Session, jobs: int) -> int:
    """How many processes play for each of so many environments, and how many threads train for it."""
    return max(session.processes // jobs, 1)


def run_in_parallel(
    session: Session,
    jobs: int,
    fail_fast: bool,
    words: Sequence[str],
    pipelines: Sequence[Pipeline],
    order: Sequence[str],
) -> list[Outcome]:
    """Run every pipeline by the command line `words` in a process with a Share, the environments of `order` first. A
    signal is passed on, and every process ends as it would alone; a full disk ends them all."""
    cores = cores_each(session, jobs)
    disk_limit = None if session.disk_limit is None else session.disk_limit // len(pipelines)
    running: list[subprocess.Popen[str]] = []
    lock, ending, display = threading.Lock(), threading.Event(), SideBySide()

    def run(pipeline: Pipeline) -> Outcome | None:
        with lock:
            if ending.is_set():
                return None
            process = _start(words, Share(os.getpid(), pipeline.env, cores, disk_limit))
            running.append(process)
        assert process.stderr is not None
        with process.stderr as lines:
            last = _forward(pipeline.env, lines, display)
        code = process.wait()
        if code == 0:
            return recorded_outcome(pipeline) or Outcome(pipeline, failure=WmError("its curriculum.json is missing"))
        if fail_fast or code == DiskProblem.exit_code:
            ending.set()
        return Outcome(pipeline, failure=_failure(code, last))

    def stop() -> None:
        with lock:
            ending.set()
            for process in running:
                process.terminate()

    with ThreadPoolExecutor(jobs) as pool:
        places = {env: place for place, env in enumerate(order)}
        started = sorted(pipelines, key=lambda pipeline: places.get(pipeline.env, len(places)))
        futures = {pipeline.env: pool.submit(run, pipeline) for pipeline in started}
        stopped = False
        while wait(futures.values(), POLL_SECONDS).not_done:
            if (session.stop() or ending.is_set()) and not stopped:
                stopped = True
                stop()
    session.stop.raise_if_stopped()
    outcomes = [outcome for each in pipelines if (outcome := futures[each.env].result()) is not None]
    for outcome in outcomes:
        if outcome.failure is not None and outcome.failure.exit_code == DiskProblem.exit_code:
            raise DiskProblem(str(outcome.failure))
    return outcomes


def _failure(code: int, last: str) -> WmError:
    """Why a process ended with an exit code: its `last` message, unless a signal ended it before it said anything."""
    failure = WmError(last.removeprefix("wm: "))
    failure.exit_code = code
    if code < 0:
        failure = WmError(
            f"its process ended with {end_of_process(code)}, as where memory is used up; the same command resumes, "
            "with fewer --jobs if memory was short."
        )
        failure.exit_code = 128 - code  # as a shell says of a command that a signal ended
    return failure


def _start(words: Sequence[str], share: Share) -> subprocess.Popen[str]:
    # With the path of this process: `-m` would look first in the working folder, which may have a click.py.
    program = f"import sys; sys.path[:] = {sys.path!r}; from stages.__main__ import main; main()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program, *words],
        # OMP_NUM_THREADS is torch's: more threads would compete for the cores.
        env={"OMP_NUM_THREADS": str(share.workers), **os.environ, LEADER: json.dumps(share._asdict())},
        # Results are read from its record; what it says comes through stderr.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches it once, through the leader
    )


def _forward(env: str, lines: IO[str], display: SideBySide) -> str:
    """Show the messages and the progress of a process, each after its environment; returns the last message."""
    last = ""
    for line in lines:
        if display.show(env, line):
            last = line.strip()
    display.end(env)
    return last
