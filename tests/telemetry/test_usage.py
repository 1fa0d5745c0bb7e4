"""Readings of memory, and what is made of them: a slope, its interval, an assessment with its reason."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import ROOT
from wm.rollouts.process_workers import ProcessWorkers
from wm.telemetry import heap_snapshot
from wm.telemetry import usage as memory
from wm.telemetry.malloc import trim
from wm.telemetry.trend import column_trend, estimate_trend, judge, phases
from wm.telemetry.usage import Meter, children_memory, optimizer_bytes


def lines(count: int = 200, every: int = 50, **columns: Any) -> list[dict[str, Any]]:
    """Lines of metrics; a column is a function of the step."""
    flat = {"rss_anon_mb": lambda s: 400.0, "buffers_mb": lambda s: 50.0, "unexplained_mb": lambda s: 0.0}
    random = np.random.default_rng(0)
    return [
        {"step": every * number, "process": 1, "memory_free_mb": 8000.0}
        | {name: log(every * number) + random.normal(0, 0.5) for name, log in (flat | columns).items()}
        for number in range(count)
    ]


def test_a_reading_counts_allocations_and_the_buffers_that_explain_them(tmp_path: Path) -> None:
    meter = Meter(tmp_path)
    first = meter.read(0)
    buffer = np.ones(40_000_000, np.uint8)
    with (tmp_path / "file").open("wb") as file:
        file.truncate(2_000_000)
    second = meter.read(buffer.nbytes)
    third = meter.read(0)
    assert first["unexplained_mb"] == 0
    assert second["rss_anon_mb"] - first["rss_anon_mb"] > 38
    assert abs(second["unexplained_mb"]) < 3
    assert third["unexplained_mb"] > 37
    assert second["disk_mb"] == 2
    assert all(isinstance(value, float | int) for value in second.values())


_RETURNED = """
from wm.telemetry.malloc import trim
from wm.telemetry.usage import anonymous_memory
trim()
baseline = anonymous_memory()
both = [(bytearray(100_000), bytearray(2_000)) for _ in range(800)]
small, most = [pair[1] for pair in both], anonymous_memory()
del both  # what stays lies between what is freed, so that only a trim returns it
trim()
print(most - baseline, anonymous_memory() - baseline)
"""


def test_memory_returned_to_the_system_is_not_counted() -> None:
    """In a process of its own: what other tests left on the heap keeps some of it."""
    if not trim():
        pytest.skip("this malloc cannot be made to give memory back")
    done = subprocess.run([sys.executable, "-c", _RETURNED], cwd=ROOT, capture_output=True, text=True, check=True)
    most, left = map(int, done.stdout.split())
    assert most > 78_000_000
    assert left < 20_000_000


def test_children_are_counted() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "x = bytearray(60_000_000); print(1, flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    assert children_memory() > 55_000_000
    child.communicate(b"\n")


_held: list[bytearray] = []


def hold(size: int) -> int:
    """In a worker: keep so many bytes."""
    _held.append(bytearray(size))
    return size


def test_workers_are_counted_whichever_process_forked_them() -> None:
    with ProcessWorkers(1, lambda: None, time.monotonic) as workers:
        list(workers.map(hold, [(1,)]))
        baseline = children_memory()
        list(workers.map(hold, [(60_000_000,)]))
        assert abs(children_memory() - baseline - 60_000_000) < 2_000_000


def test_weights_gradients_and_moments_are_counted() -> None:
    layer = torch.nn.Linear(100, 100)
    optimizer = torch.optim.Adam(layer.parameters())
    assert optimizer_bytes(optimizer) == 4 * 10_100
    layer(torch.ones(1, 100)).sum().backward()
    optimizer.step()
    assert optimizer_bytes(optimizer) == 4 * (4 * 10_100 + 2)  # and two counters of steps


def test_the_slope_ignores_outliers_and_its_interval_covers_it() -> None:
    steps = np.arange(300) * 10.0
    values = 0.01 * steps + np.random.default_rng(0).normal(0, 1, 300)
    values[::29] += 500  # a few outliers do not move it
    result = estimate_trend(steps.tolist(), values.tolist())
    assert result.slope == pytest.approx(0.01, rel=0.05)
    assert result.low < 0.01 < result.high
    assert result.drift == pytest.approx(30, rel=0.06)
    assert result.correlation > 0.8


@pytest.mark.parametrize(
    ("word", "columns"),
    [
        ("flat", {}),
        ("leaking", {"rss_anon_mb": lambda s: 400 + 0.005 * s, "unexplained_mb": lambda s: 0.005 * s}),
        ("filling a buffer", {"rss_anon_mb": lambda s: 400 + 0.005 * s, "buffers_mb": lambda s: 50 + 0.005 * s}),
        ("at capacity", {"memory_free_mb": lambda s: 120.0}),
    ],
)
def test_assessments(word: str, columns: dict[str, Any]) -> None:
    result = judge(lines(**columns))
    assert result.word == word, result.reason


@pytest.mark.parametrize(
    ("word", "columns"),
    [
        ("flat", {}),
        ("leaking", {"cuda_blocks_small": lambda s: 8000 + 8.5 * s, "cuda_allocated_mb": lambda s: 500 + 0.2 * s}),
        ("fragmenting", {"cuda_reserved_mb": lambda s: 900 + 0.02 * s}),
        ("at capacity", {"cuda_retries": lambda s: s // 100}),
    ],
)
def test_assessments_on_a_device(word: str, columns: dict[str, Any]) -> None:
    names = {"blocks_small": 8000.0, "allocated_mb": 500.0, "reserved_mb": 900.0, "retries": 0.0}
    columns_of_device = {f"cuda_{name}": (lambda s, value=value: value) for name, value in names.items()} | columns
    log = lines(**columns_of_device)
    for line in log:
        line["cuda_retries"] = round(line["cuda_retries"] / 10) * 10
    result = judge(log)
    assert result.word == word, result.reason


def test_only_the_last_process_and_what_comes_after_the_fill_are_judged() -> None:
    log = lines(rss_anon_mb=lambda s: 300 + 0.02 * min(s, 5000), unexplained_mb=lambda s: 0.02 * min(s, 5000))
    assert judge(log).word == "leaking"
    for line in log:
        line["replay"] = min(line["step"], 5000)
    assert {name: len(part) for name, part in phases(log).items()} == {"filling": 100, "full": 100}
    assert judge(log).word == "flat"
    for line in log[:150]:
        line["process"] = 0
    assert sum(len(part) for part in phases(log).values()) == 50
    assert judge(log[:8]).word == "too short to tell"


def test_readings_after_a_trim_are_preferred() -> None:
    log = lines(unexplained_mb=lambda s: 0.05 * s)
    for number, line in enumerate(log):
        line["trimmed"] = float(number % 5 == 0)
        if number % 5 == 0:
            line["unexplained_mb"] = 0.0
    assert judge(log).word == "flat"


def test_a_heap_snapshot_names_what_grew(tmp_path: Path) -> None:
    heap_snapshot.save(tmp_path, 10)
    weight = torch.ones(7, requires_grad=True)
    alive = [weight * 2 for _ in range(50)]
    heap_snapshot.save(tmp_path, 20)
    growth = {what: (size, count) for what, size, count in heap_snapshot.growth(tmp_path)}
    assert growth["tensor [7] torch.float32, output of MulBackward0"] == (50 * 28, 50)
    assert len(alive) == 50
    assert len(heap_snapshot.take()) <= heap_snapshot.MAX_ENTRIES


def test_the_cuda_allocators_counters_are_read_by_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = {
        f"{kind}.{pool}.current": size * (1 if pool == "small_pool" else 1000)
        for kind, size in (("allocated_bytes", 1e6), ("reserved_bytes", 2e6), ("active_bytes", 3e6), ("active", 4))
        for pool in ("small_pool", "large_pool")
    }
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: stats | {"num_alloc_retries": 5})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (6e6, 7e6))
    result = memory.cuda_memory()
    for pool, factor in (("small", 1), ("large", 1000)):
        bytes_of = [result[f"cuda_{kind}_{pool}_mb"] for kind in ("allocated", "reserved", "active")]
        assert (*bytes_of, result[f"cuda_blocks_{pool}"]) == (factor, 2 * factor, 3 * factor, 4 * factor)
    assert (result["cuda_retries"], result["cuda_free_mb"], result["cuda_total_mb"]) == (5, 6, 7)


def test_cudas_own_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **named: arguments.update(named))
    heap_snapshot.record_allocations()
    assert arguments == {"max_entries": heap_snapshot.MAX_CUDA_HISTORY}


def test_a_missing_column_has_no_trend() -> None:
    assert column_trend(lines(), "cuda_allocated_mb") is None
