import signal

import pytest

from stages import console
from wm.errors import Stopped
from wm.units import format_duration


def test_times_are_for_people() -> None:
    assert [format_duration(value) for value in (42, 185, 7800)] == ["42 s", "3 min 5 s", "2 h 10 min"]


def test_a_table_is_aligned() -> None:
    assert console.table(["a", "bb"], [["ccc", "d"]]) == "a    bb\n---  --\nccc  d"


def test_plain_progress_has_an_eta(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "PLAIN_SECONDS", 0.0)
    with console.progress("train", 10, "steps") as progress:
        progress.update(5, loss="1.5")
    assert "train: 5/10 steps, loss 1.5, about 0 s left" in capsys.readouterr().err


def test_the_first_signal_is_noted_and_the_loops_see_it() -> None:
    stop = console.Stop()
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        stop.install()
        stop.raise_if_stopped()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped) as caught:
            stop.raise_if_stopped()
        assert caught.value.exit_code == 143
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
