"""`wm curriculum --jobs N`: N environments at a time, each a curriculum of its own in a process of its own."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import IO

import psutil

from stages import console
from stages.curriculum.outcome import Verdict, recorded
from stages.curriculum.pipeline import Pipeline
from stages.session import Session
from wm.errors import DiskProblem, WmError

LOOK_SECONDS = 0.3
LEADER = "WM_LEADER"  # the process that runs environments side by side, in the environment of theirs


def leave_with_leader() -> None:
    """In the process of one environment: end when the one that began it is killed, so that the same command can go on
    at once. Does nothing elsewhere."""
    if LEADER in os.environ:
        threading.Thread(target=_leave_with, args=(int(os.environ[LEADER]),), daemon=True).start()


def _leave_with(leader: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(leader).wait()
    os._exit(1)


def cores_each(session: Session, jobs: int) -> int:
    """How many processes play for each of so many environments, and how many threads train for it."""
    return max(session.processes // jobs, 1)


def run_in_parallel(
    session: Session, jobs: int, strict: bool, words: Sequence[str], chains: list[Pipeline]
) -> list[Verdict]:
    """Run every chain by the command line `words`, narrowed to its environment and its share of the machine. A signal
    is passed on, and every process ends as it would alone; a full disk ends them all."""
    cores = cores_each(session, jobs)
    share = [f"--workers={cores}", "--jobs=1", "--json"]
    # OMP_NUM_THREADS is torch's: more threads would fight for the cores.
    surroundings = {"OMP_NUM_THREADS": str(cores), **os.environ, LEADER: str(os.getpid())}
    if session.disk_limit is not None:
        share.append(f"--disk-budget={session.disk_limit // len(chains)}")
    running: list[subprocess.Popen[str]] = []
    lock, over = threading.Lock(), threading.Event()

    def run(chain: Pipeline) -> Verdict | None:
        with lock:
            if over.is_set():
                return None
            command = [sys.executable, "-m", "stages", *words, f"--envs={chain.env}", *share]
            process = subprocess.Popen(
                command,
                env=surroundings,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C reaches it once, through us
            )
            running.append(process)
        assert process.stderr is not None
        with process.stderr as lines:
            last = _pass_on(chain.env, lines)
        code = process.wait()
        if code == 0:
            return recorded(chain) or Verdict(chain, failure=WmError("its record is gone"))
        if strict or code == DiskProblem.exit_code:
            over.set()
        failure = WmError(last.removeprefix("wm: "))
        failure.exit_code = code
        return Verdict(chain, failure=failure)

    def stop() -> None:
        with lock:
            over.set()
            for process in running:
                process.terminate()

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run, chain) for chain in chains]
        stopped = False
        while wait(futures, LOOK_SECONDS).not_done:
            if (session.stop() or over.is_set()) and not stopped:
                stopped = True
                stop()
    session.stop.raise_if_stopped()
    verdicts = [verdict for future in futures if (verdict := future.result()) is not None]
    for verdict in verdicts:
        if verdict.failure is not None and verdict.failure.exit_code == DiskProblem.exit_code:
            raise DiskProblem(str(verdict.failure))
    return verdicts


def _pass_on(env: str, lines: IO[str]) -> str:
    """Show what a process says, with its environment before it; returns the last line."""
    last = ""
    for line in lines:
        last = line.strip()
        if last:
            console.say(f"{env} | {last}")
    return last
