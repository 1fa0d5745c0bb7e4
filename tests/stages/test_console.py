import contextlib
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from stages import console
from stages.curriculum.side_by_side import SideBySide, line_within
from tests.conftest import ROOT
from tests.stages.conftest import Output
from wm.errors import Stopped
from wm.units import format_duration

if os.name == "posix":
    import fcntl
    import pty
    import termios


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 80 columns in place of stderr and stdout."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return stream


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


def test_plain_progress_has_an_eta(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "PLAIN_SECONDS", 0.0)
    with console.progress("train", 10, "steps") as progress:
        progress.update(5, loss="1.5")
    assert "train: 5/10 steps, loss 1.5 (start 1.5), about 0 s left" in capsys.readouterr().err


def test_a_bar_at_80_columns_shows_the_loss_against_its_start_and_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with console.progress("train-vae LunarLander", 600, "steps") as progress:
        for step, loss in ((100, "3000"), (200, "1408")):
            progress.update(step, loss=loss, error="31.25", kl="12.5", position_targets="9.75")
        progress._bar.refresh()
        line = terminal.getvalue().split("\r")[-1].rstrip()
    assert len(line) <= 80
    assert line.startswith("train-vae LunarLander:  33%|")
    assert "loss 1408 (start 3000)" in line
    assert "position targets" not in line
    assert len(line.split("|")[1]) >= console.SHORTEST_BAR


@pytest.mark.parametrize(
    ("columns", "start", "end"),
    [
        (120, "train-controller LunarLander:  67%|", ", best validation -110.5, mean -150.2"),
        (80, "train-controller LunarLander:  67%|", ", best validation -110.5"),
        (60, "train-controller LunarLander:  67%, best validation -110.5", ""),
        (42, "LunarLander:  67%, best validation -110.5", ""),
        (24, "train-controller…:  67%", ""),
    ],
)
def test_a_bar_yields_to_the_best_validation(
    columns: int, start: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    with console.progress("train-controller LunarLander", 60, "generations") as progress:
        progress.update(40, best_validation="-110.5", mean="-150.2")
        progress._bar.refresh()
        line = terminal.getvalue().split("\r")[-1].rstrip()
    assert len(line) < columns
    assert line.startswith(start)
    assert end in line


BAR = """
from stages import console
with console.progress("train-controller LunarLander", 60, "generations") as progress:
    for done in (20, 40, 60):
        progress.update(done, best_validation=f"{done - 150}.5", mean="-150.2")
        progress._bar.refresh()
        console.say(f"after {done}")
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_on_a_pseudo_terminal_no_line_is_cut_or_mixed_with_another() -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen([sys.executable, "-c", BAR], stdout=follower, stderr=follower, env=variables, cwd=ROOT)
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal ends with the process
        while data := os.read(leader, 1 << 16):
            shown += data
    os.close(leader)
    assert process.wait() == 0, shown
    states = [state.rstrip() for state in re.split("[\r\n]+", shown.decode()) if state.strip()]
    assert all(len(state) < 60 for state in states)
    assert [state for state in states if "after" in state] == ["after 20", "after 40", "after 60"]
    assert "train-controller LunarLander:  67%, best validation -110.5" in states


def test_processes_side_by_side_have_a_line_each_and_messages_stand_above(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "50")
    shown = SideBySide()
    assert not shown.show("Pong", "\ttrain-vae Pong: 10/600 steps\tloss 3000\tabout 2 min left\n")
    assert not shown.show("CarRacing", "\tcollect CarRacing: 3/50 episodes\n")
    assert shown.show("Pong", "warning: low memory\n")
    assert not shown.show("Pong", "\n")
    text = terminal.getvalue()
    shown.end("Pong")
    shown.end("CarRacing")
    assert "Pong | train-vae: 10/600 steps, loss 3000\r" in text.replace(" \r", "\r").replace("\n", "\r")
    assert "\nCarRacing | collect: 3/50 episodes" in text.replace("\r", "")
    assert "Pong | warning: low memory\n" in text
    assert "…" not in text
    assert all(len(line) < 50 for line in re.split(r"[\r\n]|\x1b\[A", text))


@pytest.mark.parametrize(
    ("room", "line"),
    [
        (90, "Pong | train-vae: 10/600 steps, loss 3000 (start 4000), kl 12.5, error 9, about 2 min left"),
        (89, "Pong | train-vae: 10/600 steps, loss 3000 (start 4000), kl 12.5, about 2 min left"),
        (79, "Pong | train-vae: 10/600 steps, loss 3000 (start 4000), about 2 min left"),
        (60, "Pong | train-vae: 10/600 steps, loss 3000 (start 4000)"),
        (40, "Pong | train-vae: 10/600 steps"),
        (12, "Pong | trai…"),
    ],
)
def test_of_a_process_fields_that_do_not_fit_are_left_out_whole(room: int, line: str) -> None:
    fields = ["loss 3000 (start 4000)", "kl 12.5", "error 9", "about 2 min left"]
    assert line_within(room, "Pong | train-vae: 10/600 steps", fields) == line


def test_elsewhere_processes_side_by_side_write_a_line_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    shown = SideBySide()
    for seconds, done in ((0, 1), (5, 2), (11, 3)):
        now[0] = 100.0 + seconds
        shown.show("Pong", f"\ttrain: {done}/9 steps\n")
        shown.show("Acrobot", f"\ttrain: {done}/9 steps\n")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{name} | train: {done}/9 steps" for done in (1, 3) for name in ("Pong", "Acrobot")]


def test_a_process_with_a_leader_marks_its_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(console._options, "leader", False)
    monkeypatch.setattr(console, "LEADER_SECONDS", 0.0)
    console.tell_leader()
    with console.progress("train", 10, "steps") as progress:
        progress.update(5)
    assert capsys.readouterr().err == "\ttrain: 5/10 steps\tabout 0 s left\n"


def test_a_training_that_resumes_does_not_call_its_first_loss_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with console.progress("train", 600, "steps", 300) as progress:
        progress.update(400, loss="1408")
        progress._bar.refresh()
    assert "loss 1408" in terminal.getvalue()
    assert "start" not in terminal.getvalue()


def test_figures_that_do_not_fit_are_left_out_whole() -> None:
    assert console.fitting(["validation -9.5", "mean -12.25", "best -3"], 30) == "validation -9.5, mean -12.25"
    assert console.fitting(["validation -9.5"], 10) == ""


def test_a_rate_slower_than_one_a_second_is_a_time_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    with console.progress("collect", 50, "episodes") as progress:
        now[0] = 21.0
        progress._done = 10
        assert progress._rate() == ["2.1 s/episode"]
        now[0] = 2.0
        assert progress._rate() == ["5 episodes/s"]


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
