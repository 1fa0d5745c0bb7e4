import contextlib
import os
import re
import struct
import subprocess
import sys

import pytest

from stages import progress
from tests.conftest import ROOT
from tests.stages.conftest import on_terminal

if os.name == "posix":
    import fcntl
    import pty
    import termios


def test_plain_progress_has_an_eta(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    with progress.progress("train", 10, "steps") as bar:
        bar.update(5, loss="1.5")
    assert "train: 5/10 steps, loss 1.5 (start 1.5), about 0 s left" in capsys.readouterr().err


def test_a_bar_at_80_columns_shows_the_loss_against_its_start_and_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with progress.progress("train-vae LunarLander", 600, "steps") as bar:
        for step, loss in ((100, "3000"), (200, "1408")):
            bar.update(step, loss=loss, error="31.25", kl="12.5", position_targets="9.75")
        bar._bar.refresh()
        line = terminal.getvalue().split("\r")[-1].rstrip()
    assert len(line) <= 80
    assert line.startswith("train-vae LunarLander:  33%|")
    assert "loss 1408 (start 3000)" in line
    assert "position targets" not in line
    assert len(line.split("|")[1]) >= progress.SHORTEST_BAR


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
    with progress.progress("train-controller LunarLander", 60, "generations") as bar:
        bar.update(40, best_validation="-110.5", mean="-150.2")
        bar._bar.refresh()
        line = terminal.getvalue().split("\r")[-1].rstrip()
    assert len(line) < columns
    assert line.startswith(start)
    assert end in line


BAR = """
from stages import console, progress
with progress.progress("train-controller LunarLander", 60, "generations") as bar:
    for done in (20, 40, 60):
        bar.update(done, best_validation=f"{done - 150}.5", mean="-150.2")
        bar._bar.refresh()
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
    shown = progress.SideBySide()
    assert not shown.show("Pong", "\ttrain-vae Pong: 10/600 steps\tloss 3000\tabout 2 min left\n")
    assert not shown.show("CarRacing", "\tcollect CarRacing: 3/50 episodes\n")
    assert shown.show("Pong", "warning: low memory\n")
    assert not shown.show("Pong", "\n")
    assert not shown.show("Pong", "\t\n")
    text = terminal.getvalue()
    shown.end("Pong")
    shown.end("CarRacing")
    assert "Pong | train-vae: 10/600 steps, loss 3000\r" in text.replace(" \r", "\r").replace("\n", "\r")
    assert "\nCarRacing | collect: 3/50 episodes" in text.replace("\r", "")
    assert "Pong | warning: low memory\n" in text
    assert text.rstrip().endswith("Pong | ...")  # its training is done, and the next stage has not told its progress
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
    assert progress.line_within(room, "Pong | train-vae: 10/600 steps", fields) == line


def test_elsewhere_processes_side_by_side_write_a_line_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = progress.SideBySide()
    for seconds, done in ((0, 1), (5, 2), (11, 3)):
        now[0] = 100.0 + seconds
        shown.show("Pong", f"\ttrain: {done}/9 steps\n")
        shown.show("Acrobot", f"\ttrain: {done}/9 steps\n")
    shown.show("Pong", "\t\n")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{name} | train: {done}/9 steps" for done in (1, 3) for name in ("Pong", "Acrobot")]


def test_a_process_with_a_leader_marks_its_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(progress._options, "leader", False)
    monkeypatch.setattr(progress, "LEADER_SECONDS", 0.0)
    progress.tell_leader()
    with progress.progress("train", 10, "steps") as bar:
        bar.update(5)
    assert capsys.readouterr().err == "\ttrain: 5/10 steps\tabout 0 s left\n\t\n"
    with progress.progress("encode", 10, "steps"):
        """Nothing of it was shown."""
    assert capsys.readouterr().err == ""


def test_a_training_that_resumes_does_not_call_its_first_loss_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with progress.progress("train", 600, "steps", 300) as bar:
        bar.update(400, loss="1408")
        bar._bar.refresh()
    assert "loss 1408" in terminal.getvalue()
    assert "start" not in terminal.getvalue()


def test_figures_that_do_not_fit_are_left_out_whole() -> None:
    assert progress.fitting(["validation -9.5", "mean -12.25", "best -3"], 30) == "validation -9.5, mean -12.25"
    assert progress.fitting(["validation -9.5"], 10) == ""


def test_a_rate_slower_than_one_a_second_is_a_time_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress("collect", 50, "episodes") as bar:
        now[0] = 21.0
        bar._done = 10
        assert bar._rate() == ["2.1 s/episode"]
        now[0] = 2.0
        assert bar._rate() == ["5 episodes/s"]
