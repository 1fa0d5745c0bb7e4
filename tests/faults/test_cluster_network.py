"""A cluster over a network that can be cut: its second worker is in a network namespace of its own."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.rollouts.clusters import dask_process
from tests.rollouts.test_dask_cluster import work
from wm.rollouts import executor_workers
from wm.rollouts.workers import open_workers
from wm.runtime import Runtime

HERE, THERE = "10.213.77.1", "10.213.77.2"
NAME = f"wm{os.getpid()}"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.extra("cluster"),
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None,
        reason="network namespaces need root and ip",
    ),
]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def link() -> Iterator[str]:
    """The name of a link between this machine and a namespace NAME."""
    try:
        ip("netns", "add", NAME)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made: {error.stderr.decode()[:100]}")
    try:
        ip("link", "add", f"{NAME}a", "type", "veth", "peer", "name", f"{NAME}b", "netns", NAME)
        ip("addr", "add", f"{HERE}/24", "dev", f"{NAME}a")
        ip("link", "set", f"{NAME}a", "up")
        for words in (["addr", "add", f"{THERE}/24", "dev", f"{NAME}b"], ["link", "set", f"{NAME}b", "up"]):
            ip("-n", NAME, *words)
        ip("-n", NAME, "link", "set", "lo", "up")
        yield f"{NAME}a"
    finally:
        ip("netns", "del", NAME)


def test_a_link_that_is_down_costs_the_tasks_that_are_asked_again(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_workers, "SOONEST", 1.0)
    results = {}
    with ExitStack() as stack:
        stack.enter_context(dask_process(tmp_path, "scheduler", "--host", HERE, "--port", "8791"))
        address = f"tcp://{HERE}:8791"
        for number, before in enumerate([(), ("ip", "netns", "exec", NAME)]):
            (tmp_path / str(number)).mkdir()
            options = ("worker", address, "--nthreads", "1", "--nworkers", "1")
            stack.enter_context(dask_process(tmp_path / str(number), *options, before=before))
        runtime = Runtime(time.monotonic, executor=f"dask:{address}")
        workers = stack.enter_context(open_workers(runtime))
        until = time.monotonic() + 120
        while workers.count < 2 and time.monotonic() < until:  # the second one joins
            list(workers.map(work, [(0,)]))
        assert workers.count == 2
        for number, value in workers.map(work, [(k,) for k in range(12)]):
            results[number] = value
            if len(results) == 4:
                ip("link", "set", link, "down")
    assert results == {k: k for k in range(12)}
