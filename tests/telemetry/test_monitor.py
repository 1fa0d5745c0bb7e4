import time
from pathlib import Path

import pytest

from stages import console
from wm.telemetry.monitor import SECONDS, ResourceMonitor


def test_it_sees_the_most_memory_and_what_is_left_on_disk(tmp_path: Path) -> None:
    place = tmp_path / "vae"
    with ResourceMonitor([place]) as gauge:
        before = gauge.memory
        held = bytearray(200_000_000)
        making = tmp_path / "vae.partial"
        making.mkdir()
        (making / "checkpoint").write_bytes(bytes(3_000_000))
        time.sleep(3 * SECONDS)
        assert 3_000_000 <= gauge.left < 3_100_000
        del held
        (making / "checkpoint").write_bytes(bytes(1_000_000))
        making.rename(place)
    assert gauge.memory - before > 150_000_000
    assert 1_000_000 <= gauge.left < 1_100_000


def test_progress_tells_what_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "PLAIN_SECONDS", 0.0)
    with ResourceMonitor([tmp_path]), console.progress("train", 10, "steps") as progress:
        progress.update(1)
    assert "train: 1/10 steps, using " in (told := capsys.readouterr().err)
    assert "of memory" in told
    with console.progress("train", 10, "steps") as progress:
        progress.update(1)
    assert "using" not in capsys.readouterr().err
