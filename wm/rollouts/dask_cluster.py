"""The workers of a Dask cluster. Its scheduler and workers are somebody's own; nothing here starts or ends them."""

import asyncio
import logging
import pickle
import queue
import re
import threading
import uuid
import warnings
from collections.abc import Mapping
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

from wm import extras
from wm.errors import MissingPackage, Unreachable, UsageProblem, WmError
from wm.rollouts.executor_workers import ExecutorWorkers
from wm.rollouts.machine import CPU
from wm.rollouts.task_host import TaskHost, Terms, expected_machine
from wm.rollouts.worker_process import slow_imports
from wm.runtime import Runtime

FORM = "dask:tcp://host:port or dask:tls://host:port"
_SPEC = re.compile(r"dask:((?:tcp|tls)://[\w.\-\[\]:]+:\d+)")
CONNECT_SECONDS = 15.0  # for a scheduler to answer, and for workers to describe themselves
ASK_EVERY = 2.0  # seconds between questions to the scheduler
# Seconds a worker between questions for every worker's last sign of life: each is 1 kB, so that is 20 kB a second.
ASK_ALL_EVERY = 0.05


def parse_executor(spec: str) -> str:
    """The scheduler's address in an executor `dask:...`. Raises UsageProblem for another form."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise UsageProblem(f"--executor is {spec!r}; expected local, {FORM}.")
    return match[1]


class _Ended(Exception):
    """Nobody waits for the task any more."""


_thread = threading.local()  # each thread of a worker runs one task at a time, in a process of its own


def answer(terms: bytes, task: bytes, attachments: Mapping[str, Any]) -> bytes:
    """As `TaskHost.answer`, with pickled terms: the scheduler, which unpickles arguments, sees builtin types alone.
    Runs in a worker of the cluster."""
    from multiprocessing import current_process

    from distributed import get_worker

    if current_process().daemon:  # a nanny's child, which may have no children; ours end with it by themselves
        current_process().daemon = False
    if not hasattr(_thread, "host"):
        worker = get_worker()
        _thread.host = TaskHost(worker.address, Path(worker.local_directory) / "wm-models", _check, _log)
    own: Terms = pickle.loads(terms)
    _thread.token = own.token
    host: TaskHost = _thread.host
    return host.answer(own, task, attachments)


def _check() -> None:
    """Raise _Ended if the task was cancelled: its client has gone, or another worker was faster."""
    from distributed import get_worker

    worker = get_worker()
    state = worker.state.tasks.get(worker.get_current_task())
    if state is None or state.state == "cancelled":
        raise _Ended


def _log(text: str) -> None:
    from distributed import get_worker

    get_worker().log_event(_thread.token, text)


def open_cluster(runtime: Runtime) -> ExecutorWorkers:
    """Connect to the cluster of `runtime.executor`. Raises MissingPackage without the extra, Unreachable where nothing
    answers in time, and RecipeMismatch for a worker that would not give the same returns."""
    extras.require("cluster", "--executor dask")
    cluster = Cluster(parse_executor(runtime.executor), runtime)
    try:
        cluster.wait_for_a_worker()
        cluster.compare_workers()
    except BaseException:
        cluster.close()
        raise
    return ExecutorWorkers(
        cluster.executor,
        cluster.answer,
        cluster.attachments,
        lambda: cluster.threads,
        cluster.check,
        runtime.clock,
        runtime.worker_timeout,
        cluster.place,
        cluster.close,
    )


class Cluster:
    """A connection to the scheduler at `address`."""

    def __init__(self, address: str, runtime: Runtime) -> None:
        self._address, self._runtime = address, runtime
        self._client = _connect(address, runtime)
        self.executor = self._client.get_executor(pure=False)  # a task that is asked again is another one for Dask
        name, expected = expected_machine(runtime.any_cpu)
        token = uuid.uuid4().hex
        terms = Terms(token, name, runtime.worker_timeout, runtime.clock, slow_imports())
        self.answer = partial(answer, pickle.dumps(terms))
        self.attachments = {name: expected}
        self.threads = 0  # of all workers
        self._homes: list[str] = []
        self._messages, self._logged = queue.SimpleQueue[str](), set[str]()
        self._client.subscribe_topic(token, lambda event: self._messages.put(str(event[1])))
        self._question: futures.Future[Any] | None = None
        self._asked_at = self._asked_all_at = self._alive = self._checked = runtime.clock()
        self._last_sign = 0.0  # by the scheduler's clock

    def check(self) -> None:
        """Raise Stopped, and Unreachable if the scheduler or all of its workers have gone."""
        self._runtime.raise_if_stopped()
        while not self._messages.empty():
            if (text := self._messages.get()) not in self._logged:
                self._logged.add(text)
                self._runtime.log(text)
        now, timeout = self._runtime.clock(), self._runtime.worker_timeout
        # A second is the usual time between two checks; what is beyond was spent elsewhere and is no silence.
        elsewhere = max(now - self._checked - 1.0, 0.0)  # this process trained between two maps, or was stopped
        self._checked, self._alive, self._asked_at = now, self._alive + elsewhere, self._asked_at + elsewhere
        if self._client.status not in ("running", "connecting"):
            raise Unreachable(self._gone("the connection was lost"))
        if self._question is not None and self._question.done():
            self._hear(self._question, now)
            self._question = None
        if self._question is None and now - self._asked_at >= ASK_EVERY:
            self._ask(now)
        if self._question is not None and now - self._asked_at > timeout:
            raise Unreachable(self._gone(f"it has not answered for {timeout:.0f} s"))
        # Three questions in a row without a sign of life.
        if now - self._alive > max(timeout, 3 * self._all_every):
            raise Unreachable(self._gone(f"none of its workers has given a sign of life for {now - self._alive:.0f} s"))

    def _gone(self, why: str) -> str:
        way_out = "what is finished is kept, and the same command resumes"
        return f"the cluster at {self._address} is out of reach: {why}; {way_out}."

    @property
    def _all_every(self) -> float:
        return max(ASK_EVERY, ASK_ALL_EVERY * self.threads)

    def _ask(self, now: float) -> None:
        """Ask for the number of threads, and now and then when each worker was last heard of."""
        every = now - self._asked_all_at >= self._all_every
        self._asked_at, self._asked_all_at = now, now if every else self._asked_all_at
        identity = self._client.scheduler.identity(n_workers=-1 if every else 0)
        self._question = asyncio.run_coroutine_threadsafe(identity, self._client.loop.asyncio_loop)

    def _hear(self, question: "futures.Future[Any]", now: float) -> None:
        if question.exception() is not None:
            return  # the client is connecting again, or it closes
        identity = question.result()
        self.threads = identity["total_threads"]
        last_sign = max((worker["last_seen"] for worker in identity["workers"].values()), default=0.0)
        if last_sign > self._last_sign:
            self._last_sign, self._alive = last_sign, now

    def wait_for_a_worker(self) -> None:
        """Return when there is a worker, and learn of all of them."""
        began, announced = self._runtime.clock(), False
        while True:
            workers = self._client.scheduler_info()["workers"]
            if workers:
                break
            self._runtime.raise_if_stopped()
            if not announced:
                announced = True
                self._runtime.log(f"waiting for a worker of the cluster at {self._address}")
            if self._runtime.clock() - began > self._runtime.worker_timeout:
                command = f"`dask worker {self._address} --nthreads 1`"
                raise Unreachable(f"the cluster at {self._address} has no worker; start some, such as with {command}.")
            # An Event that nobody sets: a wait that a signal ends. A quarter of a second is not noticed.
            threading.Event().wait(0.25)
        self.threads = sum(worker["nthreads"] for worker in workers.values())
        self._homes = [address for address in sorted(workers) for _ in range(workers[address]["nthreads"])]
        self._alive = self._runtime.clock()

    def compare_workers(self) -> None:
        """Have every worker compare its machine with this one. Those that do not answer now are compared before their
        first task."""
        addresses = {
            self.executor.submit(self.answer, b"", self.attachments, workers=[address]): address
            for address in dict.fromkeys(self._homes)
        }
        until, open_ = self._runtime.clock() + CONNECT_SECONDS, set(addresses)
        while open_ and self._runtime.clock() < until:
            self._runtime.raise_if_stopped()
            # Short, so that a stop is noticed soon; the limit is `until`.
            open_ = futures.wait(open_, timeout=0.25).not_done
        ours, others = expected_machine(any_cpu=False)[1][CPU], 0
        for future, address in addresses.items():
            if future in open_:
                future.cancel()
                self._runtime.log(f"the worker {address} has not answered for {CONNECT_SECONDS:.0f} s; others work on")
                continue
            others += self._description(future, address)[CPU] != ours
        if others:
            self._runtime.log(
                f"warning: {others} of {len(addresses)} workers have another kind of CPU, so the last digits of "
                "returns may differ from run to run"
            )

    def _description(self, future: "futures.Future[bytes]", address: str) -> dict[str, str]:
        try:
            _, value = pickle.loads(future.result())
        except Exception as error:
            # Whatever a foreign machine answers with is told, and it takes no part.
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise MissingPackage(
                f"the worker {address} cannot run tasks of wm: {why}; install wm on its machine and the scheduler's, "
                "and restart both."
            ) from None
        if isinstance(value, WmError):
            raise value
        description: dict[str, str] = pickle.loads(value)
        return description

    def place(self, number: int) -> dict[str, Any]:
        """Where task `number` runs, if that worker is still there."""
        # Another worker may take it: a slot's environments are rebuilt there from its actions.
        return {"workers": [self._homes[number % len(self._homes)]], "allow_other_workers": True}

    def close(self) -> None:
        """End the connection; tasks that still run end with it."""
        self._client.close(timeout=CONNECT_SECONDS)


def _connect(address: str, runtime: Runtime) -> Any:
    """A client of the scheduler. Raises Stopped, and Unreachable."""
    import dask
    from distributed import Client

    # Models are sent as they are, and what we say of a lost cluster is one sentence.
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 GiB"})
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    opened: futures.Future[Any] = futures.Future()

    def connect() -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of versions that differ: those that matter are compared
                opened.set_result(Client(address, timeout=CONNECT_SECONDS, set_as_default=False))
        except Exception as error:  # of sockets, TLS, handshakes
            opened.set_exception(error)

    # In a thread, because Dask's own limit does not hold for a peer that accepts and then says nothing.
    threading.Thread(target=connect, daemon=True).start()
    # Twice the limit that Dask is given and does not always keep.
    until = runtime.clock() + 2 * CONNECT_SECONDS
    while not opened.done() and runtime.clock() < until:
        runtime.raise_if_stopped()
        futures.wait([opened], timeout=0.25)
    if opened.done() and opened.exception() is None:
        return opened.result()
    error = opened.exception() if opened.done() else "it says nothing"
    why = " ".join(str(error).split()) or type(error).__name__
    way_out = "start one with `dask scheduler`, or leave out --executor"
    raise Unreachable(f"no Dask scheduler answers at {address} ({why[:200]}); {way_out}.")
