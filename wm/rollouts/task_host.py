"""Plays tasks that arrive as bytes, in a process that is not ours: a worker of a cluster.

A host runs each task in a child process, of the kind that plays on one machine. What is watched there is watched here
too: heartbeats, memory, deaths. The cluster's process only passes bytes on, so it answers the cluster at any time.
"""

import pickle
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wm.artifacts.manifest import sha256_json
from wm.errors import RecipeMismatch
from wm.rollouts.artifact_transfer import Lacking, find_folders, run_task, store
from wm.rollouts.machine import CPU, describe_machine, differences, sources_digest
from wm.rollouts.process_workers import ProcessWorkers

IDLE_SECONDS = 60.0  # without a task, after which the processes end, each with 170 to 450 MB
CHILDREN = 2  # processes, each for a connection: two commands on one cluster take turns, and to start one takes seconds
_IMPORTED = sources_digest()  # a host may live on while its files of wm are replaced


class Terms(NamedTuple):
    """What holds for all tasks of one connection: its `token`, the name of the attachment that this machine is compared
    with, seconds without a heartbeat after which a task's process is replaced, a clock that pickles, and the slow
    packages that tasks import."""

    token: str
    machine: str
    timeout: float
    clock: Callable[[], float]
    imports: list[str]


def expected_machine(any_cpu: bool) -> tuple[str, dict[str, str]]:
    """The attachment for `Terms` and its name: what every machine that plays must have in common with this one."""
    expected = describe_machine()
    if any_cpu:
        del expected[CPU]
    return sha256_json(expected), expected


class TaskHost:
    """A place where tasks run one after the other, in a process that is another for each connection; those of the last
    `CHILDREN` connections are kept.

    `name` is this worker's in sentences, `cache` its folder for models. `check` is called four times a second during a
    task; an error that it raises ends the task. `log` takes lines for people.
    """

    def __init__(self, name: str, cache: Path, check: Callable[[], None], log: Callable[[str], None]) -> None:
        self._name, self._cache, self._check, self._log = name, cache, check, log
        self._children: dict[str, ProcessWorkers] = {}  # by token, the one of the last task last
        self._ending = threading.Timer(IDLE_SECONDS, self.close)  # started after a task
        self._running = threading.Lock()

    def answer(self, terms: Terms, task: bytes, attachments: Mapping[str, Any]) -> bytes:
        """The pickled reply (kind, value): that of `ProcessWorkers.run_once`, with results pickled once more, or
        ("lacks", names of attachments that the task must be sent with). An empty task describes the machine."""
        self._ending.cancel()
        with self._running:
            reply = self._reply(terms, task, attachments)
        self._ending = threading.Timer(IDLE_SECONDS, self._end_idle)
        self._ending.daemon = True
        self._ending.start()
        return pickle.dumps(reply)

    def _reply(self, terms: Terms, task: bytes, attachments: Mapping[str, Any]) -> tuple[str, Any]:
        if terms.token not in self._children:
            if terms.machine not in attachments:
                return "lacks", [terms.machine]
            if problem := self._problem(attachments[terms.machine]):
                return "refused", RecipeMismatch(problem)
            self._children[terms.token] = self._child_of(terms)
        return self._run(terms, task, attachments) if task else ("done", pickle.dumps(describe_machine()))

    def _run(self, terms: Terms, task: bytes, attachments: Mapping[str, Any]) -> tuple[str, Any]:
        for digest in attachments.keys() - {terms.machine}:
            store(self._cache, digest, attachments[digest])
        try:
            call = find_folders(task, self._cache)
        except Lacking as lacking:
            # No error: the caller sends the files, and the task again.
            return "lacks", lacking.digests
        child = self._children[terms.token] = self._children.pop(terms.token)
        for token in list(self._children)[:-CHILDREN]:
            self._children.pop(token).close()
        return child.run_once(run_task, call)

    def _child_of(self, terms: Terms) -> ProcessWorkers:
        return ProcessWorkers(1, self._check, terms.clock, terms.timeout, log=self._log, preload=terms.imports)

    def _problem(self, expected: dict[str, str]) -> str:
        """Why this machine would not give the same returns; empty if it would."""
        if sources_digest() != _IMPORTED:
            return f"the worker {self._name} began before its files of wm changed; restart it."
        differing = differences(expected, describe_machine())
        if not differing:
            return ""
        advice = "give it the packages and sources of this machine, and restart it"
        if all(text.startswith(f"{CPU} ") for text in differing):
            advice = "leave it out, or accept other last digits with --executor-any-cpu"
        return f"the worker {self._name} would not give the same returns: {', '.join(differing)}; {advice}."

    def close(self) -> None:
        """End the processes."""
        while self._children:
            self._children.popitem()[1].close()

    def _end_idle(self) -> None:
        if self._running.acquire(blocking=False):  # else a task has just begun
            try:
                self.close()
            finally:
                self._running.release()
