import signal

import pytest

from stages import console
from wm.errors import Stopped
from wm.units import format_duration


def test_times_are_for_people() -> None:
    assert [format_duration(value) for value in (42, 185, 7800)] == ["42 s", "3 min 5 s", "2 h 10 min"]


def test_a_table_is_aligned() -> None:
    assert console.table(["a", "bb"], [["ccc", "d"]]) == "a    bb\n---  --\nccc  d"


def test_a_table_wraps_its_widest_column_between_words_and_after_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    text = console.table(["name", "value"], [["path", "runs/Pong/evaluation/x"], ["words", "one two three four"]])
    assert text.splitlines()[2:] == ["path   runs/Pong/", "       evaluation/x", "words  one two three", "       four"]
    monkeypatch.setenv("COLUMNS", "200")
    assert "one two three four" in console.table(["name", "value"], [["words", "one two three four"]])


def test_colour_is_for_terminals_and_not_under_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["a", "missing"]]
    plain = console.table(["b", "state"], rows)
    assert console.table(["b", "state"], rows, {"missing": "warning"}) == plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b[33mmissing\x1b[0m" in console.table(["b", "state"], rows, {"missing": "warning"})
    monkeypatch.setenv("NO_COLOR", "1")
    assert console.table(["b", "state"], rows, {"missing": "warning"}) == plain


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
