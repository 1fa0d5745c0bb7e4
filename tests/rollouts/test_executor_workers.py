import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.rollouts.clusters import nothing
from wm.artifacts import manifest
from wm.errors import BadData, WorkerFailed
from wm.rollouts import executor_workers
from wm.rollouts.artifact_transfer import find_folders, run_task
from wm.rollouts.executor_workers import ExecutorWorkers
from wm.rollouts.players import portion_size

Answer = Callable[[bytes, Mapping[str, Any]], bytes]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def workers_of(pool: Executor, answer: Answer, count: int = 2, **attachments: Any) -> ExecutorWorkers:
    return ExecutorWorkers(pool, answer, attachments, lambda: count, nothing, time.monotonic)


def run(task: bytes, attachments: Mapping[str, Any] | None = None) -> bytes:
    """An answer in this process."""
    return pickle.dumps(("done", run_task(*find_folders(task, Path("nowhere")))))


def test_a_late_task_is_asked_again_and_the_first_answer_counts(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_workers, "SOONEST", 0.05)
    asked: list[int] = []
    stopped = threading.Event()

    def answer(task: bytes, attachments: Mapping[str, Any]) -> bytes:
        number = pickle.loads(pickle.loads(run(task))[1])
        asked.append(number)
        if number == 3 and asked.count(3) == 1:
            stopped.wait()  # as on a machine that was stopped
        return run(task)

    results = list(workers_of(pool, answer).map(abs, [(k,) for k in range(6)]))
    stopped.set()
    assert sorted(results) == [(k, k) for k in range(6)]
    assert asked.count(3) == 2
    assert len(asked) == 7


@pytest.mark.parametrize(("episodes", "times"), [(1, 3), (64, 1)])
def test_a_task_of_many_episodes_may_take_as_many_times_as_long(
    episodes: int, times: int, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_workers, "SOONEST", 0.02)
    asked: list[bytes] = []
    ended = threading.Event()
    began = time.monotonic()

    def answer(task: bytes, attachments: Mapping[str, Any]) -> bytes:
        asked.append(task)
        ended.wait()
        return run(task)

    def check() -> None:
        if time.monotonic() - began > 1.5:
            ended.set()

    workers = ExecutorWorkers(pool, answer, {}, lambda: 1, check, time.monotonic, timeout=0.1)
    assert list(workers.map(abs, [(-1,)], episodes=episodes)) == [(0, 1)]
    assert len(asked) == times


def test_a_task_is_asked_three_times_at_most_as_long_as_none_answers(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_workers, "SOONEST", 0.02)
    asked: list[bytes] = []
    stopped = threading.Event()
    began = time.monotonic()

    def answer(task: bytes, attachments: Mapping[str, Any]) -> bytes:
        asked.append(task)
        if pickle.loads(pickle.loads(run(task))[1]) == 1:
            stopped.wait()
        return run(task)

    def check() -> None:
        if time.monotonic() - began > 1.5:
            stopped.set()

    workers = ExecutorWorkers(pool, answer, {}, lambda: 4, check, time.monotonic)
    assert sorted(workers.map(abs, [(0,), (1,)])) == [(0, 0), (1, 1)]
    assert len(asked) == 4


def test_a_task_that_fails_is_given_up_also_while_it_is_asked_again(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_workers, "SOONEST", 0.05)

    def answer(task: bytes, attachments: Mapping[str, Any]) -> bytes:
        if pickle.loads(pickle.loads(run(task))[1]) == 1:
            time.sleep(0.2)  # so that it is late each time
            return pickle.dumps(("failed", "its worker sent no heartbeat"))
        return run(task)

    with pytest.raises(WorkerFailed, match=r"task 1 failed 3 times; the last time its worker sent no heartbeat\."):
        list(workers_of(pool, answer, count=4).map(abs, [(0,), (1,)]))


def test_what_a_worker_lacks_is_sent_to_it_and_only_then(pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    folder = tmp_path / "vae"
    folder.mkdir()
    (folder / "weights.safetensors").write_bytes(b"w" * 1000)
    (folder / "curve.png").write_bytes(b"p" * 1000)
    manifest.write(folder, {"kind": "vae"})
    sent: list[int] = []
    own = tmp_path / "cache"

    def answer(task: bytes, attachments: Mapping[str, Any]) -> bytes:
        sent.append(len(attachments))
        if "machine" not in attachments and not own.exists():
            return pickle.dumps(("lacks", ["machine"]))
        own.mkdir(exist_ok=True)
        return run(task)

    workers = workers_of(pool, answer, count=1, machine={"python": "3"})
    assert [value for _, value in workers.map(os.path.basename, [(folder,)] * 3)] == ["vae"] * 3
    assert sent == [0, 1, 0, 0]
    assert workers.pickler.files(next(iter(workers.pickler._folders))).keys() == {manifest.NAME, "weights.safetensors"}


def test_an_error_of_ours_is_raised_and_one_of_the_executor_is_a_failure(pool: ThreadPoolExecutor) -> None:
    def refuse(task: bytes, attachments: Mapping[str, Any]) -> bytes:
        return pickle.dumps(("refused", BadData("bad")))

    def break_(task: bytes, attachments: Mapping[str, Any]) -> bytes:
        raise OSError("no such\nworker")

    with pytest.raises(BadData, match="bad"):
        list(workers_of(pool, refuse).map(abs, [(1,)]))
    with pytest.raises(WorkerFailed, match=r"task 0 failed 3 times; .* answered OSError: no such worker\."):
        list(workers_of(pool, break_).map(abs, [(1,)]))


def test_a_task_that_the_executor_lost_is_sent_again() -> None:
    class Losing(Executor):
        lost = False

        def submit(self, function: Any, /, *arguments: Any, **_: Any) -> "Future[Any]":  # type: ignore[override]
            future: Future[Any] = Future()
            if self.lost:
                future.set_result(function(*arguments))
            else:
                self.lost = future.cancel()
                future.set_running_or_notify_cancel()
            return future

    assert list(workers_of(Losing(), run, count=1).map(abs, [(-1,), (2,)])) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(("workers", "size"), [(1, 8), (8, 8), (64, 8), (128, 4), (256, 2), (512, 1), (1000, 1)])
def test_there_are_two_portions_for_every_worker(workers: int, size: int) -> None:
    assert portion_size(64 * 16, workers) == size
