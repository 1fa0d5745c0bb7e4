import importlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages import console
from tests.conftest import ROOT
from tests.stages.conftest import Output, on_terminal
from wm.errors import Stopped
from wm.units import format_duration


def test_durations_are_for_people() -> None:
    assert [format_duration(value) for value in (42, 185, 7800)] == ["42 s", "3 min 5 s", "2 h 10 min"]


def test_a_table_is_aligned() -> None:
    assert console.table(["a", "bb"], [["ccc", "d"]]) == "a    bb\n---  --\nccc  d"


def test_a_table_wraps_its_widest_column_between_words_and_after_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    text = console.table(["name", "value"], [["path", "runs/Pong/evaluation/x"], ["words", "one two three four"]])
    assert text.splitlines()[2:] == ["path   runs/Pong/", "       evaluation/x", "words  one two three", "       four"]
    monkeypatch.setenv("COLUMNS", "200")
    assert "one two three four" in console.table(["name", "value"], [["words", "one two three four"]])


def test_a_name_below_a_heading_is_not_cut_while_another_column_can_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    name = "  archive/evaluation-controller-83f2"
    lines = console.table(["name", "figure"], [["runs/Pong"], [name, "validation of 40"]]).splitlines()
    assert "  evaluation-controller-83f2" in [line[:28] for line in lines]
    assert max(map(len, lines)) <= 40


def test_colour_is_for_terminals_and_not_under_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["a", "missing"]]
    plain = console.table(["b", "state"], rows)
    assert console.table(["b", "state"], rows, {"missing": "warning"}) == plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b[33mmissing\x1b[0m" in console.table(["b", "state"], rows, {"missing": "warning"})
    monkeypatch.setenv("NO_COLOR", "1")
    assert console.table(["b", "state"], rows, {"missing": "warning"}) == plain


def test_colour_is_for_terminals_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    assert console.color("ok", "good") == "\x1b[32mok\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert console.color("ok", "good") == "ok"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert console.color("ok", "good") == "ok"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_stored_and_the_loops_stop_at_it(number: int, code: int) -> None:
    stop = console.Stop()
    handlers = {number: signal.getsignal(number) for number in console.stop_signals()}
    try:
        stop.install()
        stop.raise_if_stopped()
        os.kill(os.getpid(), number)
        with pytest.raises(Stopped) as caught:
            stop.raise_if_stopped()
        assert caught.value.exit_code == code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_a_signal_during_an_import_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Within C++ that a module initializes, an exception would abort Python.
    (tmp_path / "slow_module.py").write_text(
        "import signal, time\nsignal.raise_signal(signal.SIGTERM)\ntime.sleep(0.2)\nloaded = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    handlers = {number: signal.getsignal(number) for number in console.stop_signals()}
    try:
        console.raise_on_signals()
        with pytest.raises(Stopped):
            _load_and_wait("slow_module")
        assert sys.modules["slow_module"].loaded
    finally:
        sys.modules.pop("slow_module", None)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _load_and_wait(name: str) -> None:
    importlib.import_module(name)
    time.sleep(10)


def test_a_hangup_that_nohup_ignores_stays_ignored() -> None:
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        console.Stop().install()
        console.raise_on_signals()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_table_breaks_between_words_as_long_as_another_column_can_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = console.table(
        ["stage", "plan"], [["train-controller", "sixty generations of sixteen candidates in reality"]]
    )
    assert "train-controller" in text
    assert max(map(len, text.splitlines())) <= 60


def test_control_characters_become_visible_for_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "a\x1b]0;b\x07\x9b2J\u202ec\udc80"
    shown = "a\\x1b]0;b\\x07\\x9b2J\\u202ec\\udc80"
    assert console.visible(evil) == shown
    assert shown in console.table(["name"], [[evil]])
    assert shown in console.wrap(evil)
    console.echo(evil)
    console.say(evil)
    written = capsys.readouterr()
    assert (written.out, written.err) == (f"{shown}\n", f"{shown}\n")
    console.print_json({"name": evil})
    written = capsys.readouterr()
    assert "\x1b" not in written.out
    assert json.loads(written.out) == {"name": evil}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    console.echo(console.color(f"bad {evil}", "bad") + evil)
    assert capsys.readouterr().out == f"\x1b[31mbad {shown}\x1b[0m{shown}\n"


def test_a_path_has_no_colours_on_a_terminal(workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = Path("data/\x1b[31md.zarr")
    Path("data/d.zarr").rename(evil)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for words in (
        ("info", str(evil)),
        ("view", str(evil)),
        ("export", str(evil), "--to", "npz", "--out", "\x1b[31mout"),
    ):
        text = output(*words)
        assert "\\x1b[31m" in text
        assert "\x1b[31m" not in text


def test_what_an_encoding_lacks_is_written_as_its_escape(workspace: Path) -> None:
    command = [sys.executable, "-m", "stages", "info", "data/d.zarr"]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert b"\\u2588" in done.stdout
    assert b"\\u2588" not in done.stderr
