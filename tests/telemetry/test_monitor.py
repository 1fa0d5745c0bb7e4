import time
from pathlib import Path

import pytest

from stages import progress
from wm.telemetry.monitor import INTERVAL, ResourceMonitor


def test_it_measures_the_peak_of_memory_and_the_size_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wm.telemetry.monitor.REST_EVERY", 1)
    place = tmp_path / "vae"
    with ResourceMonitor([place]) as monitor:
        idle = monitor.peak_memory
        allocated = bytearray(200_000_000)
        partial = tmp_path / "vae.partial"
        partial.mkdir()
        (partial / "checkpoint").write_bytes(bytes(3_000_000))
        time.sleep(3 * INTERVAL)
        assert 3_000_000 <= monitor.disk < 3_100_000
        del allocated
        (partial / "checkpoint").write_bytes(bytes(1_000_000))
        partial.rename(place)
    assert monitor.peak_memory - idle > 150_000_000
    assert 1_000_000 <= monitor.disk < 1_100_000


def test_progress_shows_the_memory_and_disk_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    with ResourceMonitor([tmp_path], progress.show_usage), progress.progress("train", 10, "steps") as bar:
        bar.update(1)
    assert "train: 1/10 steps, using " in (text := capsys.readouterr().err)
    assert "of memory" in text
    with progress.progress("train", 10, "steps") as bar:
        bar.update(1)
    assert "using" not in capsys.readouterr().err
