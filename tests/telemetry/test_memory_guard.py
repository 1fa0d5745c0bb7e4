import time
from pathlib import Path

from wm.runtime import Runtime
from wm.telemetry.memory_guard import MAX_LINES, MIN_LINES, MemoryGuard


def alarms(folder: Path, runtime: Runtime, unexplained: float) -> list[str]:
    """Alarms of a training whose memory grows by 1 MB a step, of which this share is unexplained."""
    guard, sentences = MemoryGuard(runtime, folder, 10_000), []
    for step in range(0, 2000, 10):
        line = {
            "step": step, "rss_anon_mb": 300 + step, "children_mb": 0.0, "memory_free_mb": 4000.0,
            "unexplained_mb": unexplained * step, "buffers_mb": (1 - unexplained) * step,
        }  # fmt: skip
        sentences.append(guard.check(line))
    return [sentence for sentence in sentences if sentence]


def test_a_leak_raises_an_alarm_and_a_buffer_does_not(tmp_path: Path) -> None:
    assert alarms(tmp_path, Runtime(time.monotonic), 0.0) == []
    assert (
        "memory grows by 1000.0 kB a step that no buffer explains" in alarms(tmp_path, Runtime(time.monotonic), 1.0)[0]
    )
    assert MAX_LINES >= MIN_LINES


def test_memory_above_the_limit_raises_an_alarm(tmp_path: Path) -> None:
    limited = Runtime(time.monotonic, memory_limit=1_000_000_000)
    first = alarms(tmp_path, limited, 0.0)[0]
    assert "at step 710, more than --memory-limit 1.0 GB" in first


def test_snapshots_are_written_after_a_quarter_and_near_the_end(tmp_path: Path) -> None:
    log: list[str] = []
    guard = MemoryGuard(Runtime(time.monotonic, log.append, memory_snapshots=True), tmp_path, 100)
    for step in (10, 30, 50, 96, 99):
        guard.check({"step": step, "rss_anon_mb": 1.0, "children_mb": 0.0})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory-00000030.json", "memory-00000096.json"]
    assert len(log) == 2
