"""Bad input: one sentence that names what, the value, what was expected and what to do; and the right exit code."""

import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from stages import data
from stages.cli import TABLE, main, run, wm
from stages.session import Session
from tests.conftest import IN_PROCESS, RECIPE, SLUG, TINY, arguments, command, environment, make_episode
from wm.episodes.dataset import Dataset
from wm.episodes.writer import Writer, create
from wm.settings import COMMANDS


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "runtime", IN_PROCESS)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    assert run(list(words)) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [line for line in printed.err.splitlines() if line.startswith("wm: ")]
    assert len(lines) == 1, printed.err
    assert "Traceback" not in printed.err
    assert "measuring" not in printed.err
    return lines[0]


def dataset(path: Path, size: int = 32) -> Path:
    recipe = {**RECIPE, "env": {"name": TINY, "size": size, "gray": False, "action_space": "auto"}}
    with Writer(create(path, recipe)) as writer:
        for index in range(4):
            writer.add(make_episode(index, size=size).pack())
    Dataset.open(path)  # which writes the index
    return path


@pytest.mark.parametrize(("given", "taken"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_waiting_threads_leave_the_core_to_others(given: dict[str, str], taken: str) -> None:
    code = "import atexit, os; atexit.register(lambda: print(os.environ['OMP_WAIT_POLICY'])); import stages.cli as c; "
    others = {name: value for name, value in environment().items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}c.main()", "--version"], env=others | given, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == taken


@pytest.mark.skipif(os.name == "nt", reason="Windows does not remove the folder that a process works in")
def test_a_working_folder_that_is_gone_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = here / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert refused(capsys, 66, "ls").startswith("wm: the working folder was removed; change to another one")


def test_what_is_wrong_with_a_variable_or_a_config_file_names_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "c.toml").write_text('seed = "x"\n')
    given = refused(capsys, 64, "train-vae", "--env", "Pong", "--config", "c.toml")
    assert given.startswith("wm: c.toml: --seed is 'x'; expected a whole number from 0 to")
    assert refused(capsys, 64, "train-vae", "--env", "Pong", "--seed", "x").startswith("wm: --seed is 'x'; expected")
    monkeypatch.setenv("WM_SEED", "y")
    assert refused(capsys, 64, "train-vae", "--env", "Pong").startswith("wm: WM_SEED: --seed is 'y'; expected")
    monkeypatch.setenv("WM_PRESET", "lptop")
    monkeypatch.setenv("WM_SEED", "1")
    assert refused(capsys, 64, "train-vae", "--env", "Pong").startswith("wm: WM_PRESET: --preset is 'lptop'; did")
    monkeypatch.delenv("WM_PRESET")
    monkeypatch.setenv("WM_WORKER_TIMEOUT", "-1")
    given = refused(capsys, 64, "collect", "--env", "Pong")
    assert given.startswith("wm: WM_WORKER_TIMEOUT: --worker-timeout is -1; expected a number of seconds above 0.")


def test_a_package_that_cannot_be_imported_is_one_sentence_and_a_module_of_wm_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise ImportError(f"cannot import name 'x' from {name!r}", name=name)

    for name in ("huggingface_hub.hf_api", "wm.extras"):
        monkeypatch.setattr("wm.extras.require_versions", lambda name=name: fail(name))
        if name.startswith("wm"):
            with pytest.raises(ImportError):
                run(["collect", "--env", "Catch", "--dry-run"])
        else:
            assert run(["collect", "--env", "Catch", "--dry-run"]) == 69
            assert capsys.readouterr().err == (
                "wm: a package cannot be imported (cannot import name 'x' from 'huggingface_hub.hf_api'); install it "
                "again, or see what `wm doctor` says of it.\n"
            )


def test_a_package_that_raises_anything_at_its_import_is_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "odd_package.py").write_text('raise ValueError("Unknown setting of\\n ODD.")\n')
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.setattr("wm.extras.require_versions", lambda: importlib.import_module("odd_package"))
    assert refused(capsys, 69, "collect", "--env", "Catch", "--dry-run") == (
        "wm: odd_package cannot be imported (Unknown setting of ODD.); correct the variable or the file of its "
        "settings that this is about, or install it again."
    )


@pytest.mark.parametrize(
    "closed", [*(pytest.param(one, marks=pytest.mark.slow) for one in (">&-", "2>&-")), ">&- 2>&-"]
)
def test_a_stream_that_is_closed_is_written_to_nowhere(tmp_path: Path, closed: str) -> None:
    for words in (command("ls"), command("collect", "--env", TINY, "--episodes", "2", "--size", "32")):
        line = f"{shlex.join(words)} {closed}"
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, text=True)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_read_enough_is_no_fault(tmp_path: Path, unbuffered: str) -> None:
    """What `wm help | head -1` does, after the pipe has been closed for sure."""
    variables = environment(PYTHONUNBUFFERED=unbuffered)
    for words in (["help"], ["--help"], ["ls", "--help"], ["ls"]):
        line = f"({shlex.join(command(*words))}; echo $? >&2) | true"
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert done.stderr == "141\n"


def test_a_bug_of_ours_is_a_traceback_and_70(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.cli.run", lambda: {}["bug"])
    monkeypatch.setattr("stages.console.raise_on_signals", lambda: None)
    monkeypatch.setattr("stages.console.end_on_signals", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 70
    assert "KeyError: 'bug'" in capsys.readouterr().err


def test_a_signal_during_the_first_imports_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)\n")
    paths = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    done = subprocess.run(command("ls"), env=environment(PYTHONPATH=paths), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(("seconds", "warned"), [(0.2, False), (600, True)])
def test_a_thread_that_is_left_keeps_no_command_from_ending(seconds: float, warned: bool) -> None:
    code = (
        f"import sys, threading, time; threading.Thread(target=time.sleep, args=({seconds},)).start(); "
        "import atexit; from stages import cli, console; console.THREAD_SECONDS = 1; "
        "atexit.register(print, 'removed'); sys.argv = ['wm', '--version']; cli.main()"
    )
    words = [command()[0], "-c", code]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["removed"])
    assert ("goes on; wm ends without it" in done.stderr) == warned


def test_a_folder_in_the_place_of_a_file_is_named_and_is_no_fault_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("x")
    dataset(tmp_path / "data" / f"{SLUG}.zarr")
    sentence = refused(capsys, 65, "train-vae", "--env", TINY, "--steps", "2")
    assert sentence == "wm: runs is a file where a folder is expected; remove or rename it."


@pytest.mark.parametrize("words", [("collect", "--env", TINY, "--data"), ("ls",), ("verify",), ("report",)])
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("loop", "loop is a link that leads to itself; remove it, or give another path."),
        ("loop/x", "loop/x is a link that leads to itself; remove it, or give another path."),
        ("x" * 300, f"the path '{'x' * 30}'... has a name that is too long for the disk; give a shorter one."),
        ("ab/" * 2000, "the path 'ab/ab/ab/ab/ab/ab/ab/ab/ab/ab/'... has a name that is too long for the disk;"),
    ],
    ids=["loop", "in a loop", "long", "deep"],
)
def test_a_path_at_which_nothing_can_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...],
    path: str, reason: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    assert refused(capsys, 64, *words, path).startswith(f"wm: {reason}")


@pytest.mark.parametrize("words", [("train-vae", "--env", TINY, "--run"), ("report",), ("pull", "a", "--run")])
def test_an_address_is_no_path_of_a_run(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    sentence = refused(capsys, 64, *words, "s3://bucket/run")
    assert sentence.startswith("wm: s3://bucket/run is no place for this; expected a folder on this machine.")


@pytest.mark.parametrize("words", [("help",), ("curriculum", "--envs")])
def test_a_long_value_is_shortened_in_its_sentence(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    sentence = refused(capsys, 64, *words, "ab" * 3000)
    assert "ab" * 8 in sentence
    assert len(sentence) < 600


def test_a_name_that_is_too_long_is_no_fault_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    dataset(tmp_path / "data" / f"{SLUG}.zarr")
    words = ("train-vae", "--env", TINY, "--steps", "2", "--name", "x" * 300)
    assert "has a name that is too long for the disk; give a shorter one." in refused(capsys, 65, *words)


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (("collect", "--env", "Pnog"), 64, "did you mean Pong?"),
        (("collect", "--env", "Pong", "--episodes", "-3"), 64, "--episodes is -3; expected at least 1"),
        (("collect", "--env", "Pong", "--size", "7"), 64, "--size is 7; expected at least 32"),
        (("collect", "--env", "Pong", "--episodes", "x"), 64, "--episodes is 'x'; expected a whole number."),
        (("collect", "--env", "Pong", "--seed", "-1"), 64, "--seed is -1; expected a whole number from 0 to 9007"),
        (("collect", "--env", "Pong", "--workers", "9" * 20), 64, "expected a whole number from 0 to 1000."),
        (("collect", "--env", "Pong", "--worker-timeout", "x"), 64, "--worker-timeout is 'x'; expected a number."),
        (("collect", "--env", "Pong", "--render", "fats"), 64, "--render is 'fats'; did you mean fast?"),
        (("data", "split", "a", "--at", "0"), 64, "--at is 0; expected a whole number of at least 1."),
        (("collect", "--env", "Pong", "--policy", "brownian"), 64, "needs continuous actions"),
        (("collect", "--env", "Pong", "--disk-budget", "lots"), 64, "--disk-budget is 'lots'; expected a number with"),
        (("collect", "--env", "Pong", "--disk-budget", "9" * 400), 64, "9'; expected at most 1,000,000 TB"),
        (("train-vae", "--env", "Pong", "--memory-limit", "2000000 TB"), 64, "'2000000 TB'; expected at most"),
        (("collect", "--env", "Pong", "--seed", str(2**53 + 1)), 64, "--seed is 9007199254740993; expected a whole"),
        (("collect", "--env", "Pong", "--episodes", "9" * 28), 64, "--episodes is 9"),
        (("train-controller", "--env", "Pong", "--set", "sigma=1e300"), 64, "sigma is 1e+300; expected at most 1000"),
        (("train-controller", "--env", "Pong", "--target-return", "nan"), 64, "is nan; expected a finite number"),
        (("train-controller", "--env", "Pong", "--target-return", "1e300"), 64, "expected at most 1000000000"),
        (("train-controller", "--env", "Pong", "--target-return=-1e300"), 64, "expected at least -1000000000"),
        (("train-vae", "--env", "Pong", "--set", "kl_tolerance=1e300"), 64, "is 1e+300; expected at most 1000000000"),
        (("collect", "--env", "Pong", "--set", "episode=3"), 64, "did you mean episodes?"),
        (("collect", "--env", "Pong", "--set", "episodes=many"), 64, "expected a whole number"),
        (("collect", "--env", "Pong", "--action-repeat", "3"), 64, "give --set action_repeat=VALUE (see `wm collect"),
        (("collect", "--env", "Pong", "--epsiodes", "3"), 64, "--epsiodes is no option of wm collect; did you mean --"),
        (("evaluate", "--env", "Pong", "--data", "x"), 64, "--data is no option of wm evaluate (see `wm evaluate"),
        (("dream", "--env", "Pong", "--vision", "3"), 64, "--vision is no option of wm dream (see `wm dream --help`)"),
        (("ls", "--jsn"), 64, "--jsn is no option of wm ls; did you mean --json?"),
        (("collect", "--env", "Pong", "--set", "episodes"), 64, "--set is 'episodes'; expected NAME=VALUE"),
        (("collect", "--env", "Pong", "--set", "train-vae.latent=2"), 64, "is a setting of wm train-vae"),
        (("curriculum", "--set", "train-vea.latent=2"), 64, "there is no stage 'train-vea'; did you mean train-vae?"),
        (("curriculum", "--set", "train-vae.latnt=2"), 64, "train-vae has no setting 'latnt'; did you mean latent?"),
        (("curriculum", "--set", "latent=2"), 64, "curriculum has no setting 'latent'; did you mean train-vae.latent?"),
        (("collect", "--env", "Pong", "--config", "none.toml"), 66, "none.toml cannot be read"),
        (("collect",), 64, "--env is missing; an example is `wm collect --env Pong"),
        (("colect", "--env", "Pong"), 64, "there is no command 'colect'; did you mean collect?"),
        (("help", "opions"), 64, "there is no help on 'opions'; did you mean options?"),
        (("help", "data", "murge"), 64, "there is no help on 'data murge'; did you mean data merge?"),
        (("help", "collect", "x"), 64, "there is no help on 'collect x'; did you mean collect?"),
        (("collect", "--env", "Pong", "--worker-timeout", "nan"), 64, "expected a number of seconds above 0"),
        (
            ("train-controller", "--env", "Pong", "--in", "dream", "--max-env-steps", "5"),
            64,
            "--max-env-steps is 5, which means nothing with --algo cma --in dream; leave it out, or use --in real.",
        ),
        (("train-dreamer", "--env", "Catch", "--pretrain", "5"), 64, "--pretrain is 5 but there are no episodes"),
        (
            ("curriculum", "--envs", "Catch", "--agent", "dreamer", "--set", "train-dreamer.pretrain=5"),
            64,
            "--pretrain is 5 but there are no episodes to train on",
        ),
        (
            ("curriculum", "--envs", "Catch", "--agent", "dreamer", "--set", "train-vae.latent=8"),
            64,
            "--set train-vae.latent means nothing with --agent dreamer, whose stages are train-dreamer, ",
        ),
        (("curriculum", "--envs", "Pong", "--set", "train-dreamer.steps=8"), 64, "means nothing with --agent vmc, who"),
        (("curriculum", "--dry-run", "--strict"), 64, "--strict is no option of wm curriculum"),  # of `wm report`
        (
            ("train-mdnrnn", "--env", "Pong", "--set", "later_weight=5"),
            64,
            "--set later_weight is 5 but there is one dataset; give later ones with --data, or leave it out.",
        ),
        (
            ("curriculum", "--envs", "Catch", "--dry-run", "--set", "train-mdnrnn.later_weight=5"),
            64,
            "--set train-mdnrnn.later_weight means nothing in one round; give --rounds 2, or leave it out",
        ),
        (
            ("curriculum", "--envs", "Catch", "--dry-run", "--set", "collect.later.episodes=5"),
            64,
            "--set collect.later.episodes means nothing in one round; give --rounds 2, or leave it out",
        ),
        (("collect", "--env", "Pong", "--executor-any-cpu"), 64, "--executor-any-cpu means nothing without --executor"),
        (("sweep", "--env", "Pong", "--stage", "train-vae", "--workers", "2", "s"), 64, "--workers means nothing to"),
        (
            ("sweep", "--env", "Pong", "--stage", "train-controller", "--device", "cpu", "s"),
            64,
            "--device means nothing to train-controller; leave it out.",
        ),
        (("collect", "--env", TINY, "--data", "/"), 64, "--data is /; expected the path of something in a folder."),
        (("sweep", "--env", "Pong", "--stage", "train-vae", "--name", "../x", "s"), 64, "--name is '../x'; expected"),
        (("push", "runs/x", "f", "--private"), 64, "--private creates a private repository on the Hub, and 'f' is"),
        (("data", "merg"), 64, "there is no command 'data merg'; did you mean merge?"),
        (("data", "nothing"), 64, "there is no command 'data nothing'; expected one of merge, split, drop, import."),
        (("play", "--env", "Pogn"), 64, "environment 'Pogn' is unknown (Pong, "),
        (("train-vae", "--env", "Pogn"), 64, "are known by name); did you mean Pong?"),
        (("evaluate", "--env", "Pogn"), 64, "are known by name); did you mean Pong?"),
        (("train-vae", "--env", "Pong"), 66, "data/Pong.zarr does not exist; run `wm collect --env Pong` first"),
        (("train-mdnrnn", "--env", "Pong"), 66, "run `wm train-vae --env Pong` first"),
        (("train-controller", "--env", "Pong"), 66, "run `wm train-vae --env Pong` first"),
        (("train-controller", "--env", "Pong", "--popsize", "1"), 64, "--popsize is 1; expected at least 4"),
        (("train-controller", "--env", "Pong", "--temperature", "-1"), 64, "expected auto or a number from 0.01 to 10"),
        (("train-controller", "--env", "Pong", "--temperature", "hot"), 64, "--temperature is 'hot'"),
        (
            ("train-controller", "--env", "Pong", "--temperature", "0.5"),
            64,
            "--temperature is 0.5, which means nothing with --algo cma --in real; leave it out, or use --in dream.",
        ),
        (
            ("train-controller", "--env", "Pong", "--in", "dream", "--set", "render=fast"),
            64,
            "--set render is fast, which means nothing with --algo cma --in dream; leave it out, or use --in real.",
        ),
        (
            ("train-controller", "--env", "Pong", "--in", "dream", "--memory", "untrained"),
            64,
            "--memory untrained cannot dream",
        ),
        (
            ("train-controller", "--env", "Pong", "--in", "dream", "--set", "whiten_at=5"),
            64,
            "--set whiten_at=5 restarts with a linear C, whitened by its inputs in real episodes; leave out --in dream",
        ),
        (("train-controller", "--env", "Pong", "--init-from", "r", "--set", "whiten_at=5"), 64, "leave out --init-"),
        (
            ("train-controller", "--env", "Pong", "--set", "whiten_at=0", "--set", "hidden=4"),
            64,
            "--set whiten_at=0 takes a linear C; --set hidden is 4, leave one of them out.",
        ),
        (
            ("train-controller", "--env", "Pong", "--init-from", "r", "--set", "restarts=3"),
            64,
            "--set restarts=3 starts several searches from zero, of which one continues; leave out --init-from",
        ),
        (("collect", "--env", "Pong", "--data", "a.zarr", "--data", "b.zarr"), 64, "--data is given 2 times"),
        (("dream", "--env", "Pong", "--data", "a.zarr", "--data", "b.zarr"), 64, "this command takes one dataset."),
        (("train-controller", "--env", "Pong", "--data", "a.zarr"), 64, "--data is no option of wm train-controller ("),
        (("dream", "--env", "Pong", "--agent", "../Pong/controller"), 64, "--agent is '../Pong/controller'; expected"),
        (("train-dreamer", "--env", "Catch", "--name", "a/b"), 64, "--name is 'a/b'; expected letters, digits"),
        (("evaluate", "--env", "Pong", "--agent", "a/b"), 64, "--agent is 'a/b'; expected letters, digits"),
        (("evaluate", "--env", "Pong", "--agent", "a b"), 64, "--agent is 'a b'; expected letters, digits"),
        (("evaluate", "--env", "CartPole", "--agent", "random", "--record-video", "2"), 64, "--record-video means not"),
        (("dream", "--env", "Pong"), 66, "run `wm train-vae --env Pong` first"),
        (("dream", "--env", "Pong", "--run", "a b"), 66, "run `wm train-vae --env Pong --run 'a b'` first"),
        (("train-vae", "--env", "Pong", "--run", "other"), 66, "run `wm collect --env Pong` first"),
        (("evaluate", "--env", "Pong"), 66, "run `wm train-vae --env Pong` first"),
        *(
            ((name, "nowhere"), 66, "nowhere does not exist; `wm ls` shows what there is")
            for name in ("ls", "clean", "compare", "memory", "report", "verify")
        ),
        *(
            ((*words, option, ""), 64, f"{option} is empty; expected")
            for *words, option in (
                ("train-vae", "--env", "Pong", "--run"),
                ("train-vae", "--env", "Pong", "--data"),
                ("train-vae", "--env", "Pong", "--name"),
                ("view", "d.zarr", "--out"),
                ("export", "d.zarr", "--to", "npz", "--out"),
            )
        ),
        (("compare", ".", "--out", "."), 64, ". is a folder; expected the path of a file"),
        (("view", "d.zarr", "--out", ".."), 64, ".. is a folder; expected the path of a file"),
        (("play", "--example", "--out", "/"), 64, "/ is a folder; expected the path of a file"),
        (("report", ".", "--every", "3"), 64, "--every is 3, which means nothing without --live; add it"),
        (("report", ".", "--out", "all.md"), 64, "--out is all.md; expected a name that ends in .html or .htm"),
        (("report", ".", "--out", "all"), 64, "--out is all; expected a name that ends in .html or .htm"),
        (("view", "d.zarr", "--out", "zarr.json"), 64, "--out is zarr.json; expected a name that ends in .html"),
        (("play", "--example", "--out", "page"), 64, "--out is page; expected a name that ends in .html or .htm"),
        (("help", "options", "more"), 64, "there is no help on 'options more'; leave out 'more'"),
        (("compare", ".", "--out", "plot.svg"), 64, "--out is plot.svg; expected a name that ends in .png"),
        (("report", ".", "--env", "Pong"), 64, "of one run is `wm report` with its folder, such as runs/Pong."),
        (("report", ".", "--no-film", "--env", "a:B-v0"), 64, "--env is a:B-v0, which means nothing with --no-film"),
        (("collect", "--env", "Pong", "--data", "."), 64, "exists and is not a dataset"),
        (("curriculum", "--envs", ","), 64, "--envs is ','; expected names of environments, such as Pong,CarRacing"),
        (("curriculum", "--envs", "Pong,Pogn"), 64, "did you mean Pong?"),
        (("train-vae", "--env", "Pong", "--latent", "0"), 64, "--latent is 0"),
        (("dream", "--env", "Pong", "--temperature", "-1"), 64, "--temperature is -1"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, words: tuple[str, ...], code: int, printed: str
) -> None:
    assert printed in refused(capsys, code, *words)
    assert sum(file.stat().st_size for file in here.rglob("*") if file.is_file()) == 0


def test_a_budget_that_is_too_small_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    sentence = refused(capsys, 74, "collect", "--env", TINY, "--episodes", "50", "--disk-budget", "10kB")
    assert "only 10.0 kB may be used; free some space, raise --disk-budget, or ask for less" in sentence
    assert sum(file.stat().st_size for file in here.rglob("*") if file.is_file()) == 0


@pytest.mark.slow
def test_a_dataset_of_another_size_than_the_vae(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    dataset(here / "small.zarr", 32)
    dataset(here / "large.zarr", 48)
    options = ["--env", TINY, "--steps", "2", "--batch", "4", "--latent", "2", "--json"]
    assert run(["train-vae", "--data", "small.zarr", *options]) == 0
    capsys.readouterr()
    sentence = refused(capsys, 78, "train-mdnrnn", "--env", TINY, "--data", "large.zarr")
    assert "has frames of 48x48x3 but" in sentence
    assert "was trained on 32x32x3" in sentence


def test_a_corrupt_part_is_named(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    path = dataset(here / "d.zarr")
    name = "part-000000-000004/frames/c.0.0.0.0"
    shard = path / name
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(bytes(data))
    assert run(["verify", "d.zarr"]) == 65
    assert f"1 of 2 are damaged, first: d.zarr/{name} does not match its checksum" in capsys.readouterr().err
    sentence = refused(capsys, 65, "train-vae", "--env", TINY, "--data", "d.zarr", "--steps", "2")
    assert f"{name} is damaged at chunk 0" in sentence


@pytest.mark.parametrize("name", ["collect", "train-controller", "dream", "evaluate"])
def test_every_stage_that_plays_takes_the_number_of_its_processes(
    capsys: pytest.CaptureFixture[str], here: Path, name: str
) -> None:
    assert run([name, "--env", "Pong", "--workers", "3", "--print-config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"]["value"] == 3


def test_keep_current_refuses_another_recipe(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    dataset(here / "d.zarr")
    options = ["--env", TINY, "--data", "d.zarr", "--steps", "2", "--batch", "4"]
    assert run(["train-vae", *options, "--latent", "2", "--json"]) == 0
    capsys.readouterr()
    sentence = refused(capsys, 78, "train-vae", *options, "--latent", "3", "--keep-current")
    assert "latent 2 -> 3" in sentence
    assert "drop the option to archive it, or choose another --name" in sentence
    assert "size 32 -> 64" in refused(
        capsys, 78, "collect", "--env", TINY, "--data", "d.zarr", "--size", "64", "--keep-current"
    )


@pytest.fixture
def closed(here: Path) -> Iterator[Path]:
    """A folder that nobody may write to, root included."""
    folder = here / "closed"
    folder.mkdir()
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)
        return
    chattr = shutil.which("chattr")
    if chattr is None or subprocess.run([chattr, "+i", folder], capture_output=True).returncode:
        pytest.skip("root may write everywhere here")
    yield folder
    subprocess.run([chattr, "-i", folder], check=True)


def test_no_permission_is_77(capsys: pytest.CaptureFixture[str], closed: Path) -> None:
    place = str(closed / "x.zarr")
    sentence = refused(capsys, 77, "collect", "--env", TINY, "--episodes", "2", "--data", place, "--workers", "1")
    assert "no permission for" in sentence
    assert str(closed) in sentence


def test_stdout_holds_exactly_one_json_object(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    dataset(here / "d.zarr")
    options = ["--env", TINY, "--data", "d.zarr", "--steps", "2", "--batch", "4", "--json"]
    assert run(["train-vae", *options]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["stage"] == "train-vae"
    assert len(shown["fingerprint"]) == 64


@pytest.mark.parametrize("stage", ["collect", "train-vae"])
def test_a_dry_run_tells_the_plan_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], here: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    dataset(here / "d.zarr")
    before = sorted(here.rglob("*"))
    more = ["--size", "32", "--episodes", "9"] if stage == "collect" else []
    assert run([stage, "--env", TINY, "--data", "e.zarr" if more else "d.zarr", *more, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "disk about" in shown.replace("\n", " ")
    assert max(map(len, shown.splitlines())) <= 80
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        ("train-controller", ("--popsize", "7")),
        ("dream", ("--dreams", "5")),
        ("evaluate", ("--episodes", "7")),
        ("train-mdnrnn", ("--hidden", "17")),
    ],
)
def test_a_dry_run_estimates_what_changed_settings_take(
    chain: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stage: str,
    change: tuple[str, ...],
) -> None:
    monkeypatch.chdir(chain)
    assert run([*arguments(stage), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"][0]["what"] == "up to date"
    assert run([*arguments(stage), *change, "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"][0]
    assert change[0][2:].replace("-", "_") in plan["what"]  # the reason why the artifact is stale
    assert 0 < plan["seconds"][0] <= plan["seconds"][1]


def test_print_config_has_every_value_with_its_type_and_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WM_TRAIN_VAE_BATCH", "17")
    monkeypatch.setenv("WM_SEED", "3")
    words = ["train-vae", "--env", "Pong", "--preset", "quick", "--latent", "9", "--set", "train-vae.clip=0.5"]
    assert run([*words, "--disk-budget", "2GB", "--print-config", "--json"]) == 0
    config = json.loads(capsys.readouterr().out)
    assert config["seed"] == {"value": 3, "source": "WM_SEED"}
    assert config["env"] == {"value": "Pong", "source": "flag"}
    assert config["data"] == {"value": ["data/Pong.zarr"], "source": "default"}
    assert config["disk_budget"] == {"value": 2_000_000_000, "source": "flag"}
    assert config["device"]["value"] == "auto"
    vae = config["train-vae"]
    assert vae["latent"] == {"value": 9, "source": "flag"}
    assert vae["batch"] == {"value": 17, "source": "WM_TRAIN_VAE_BATCH"}
    assert vae["clip"] == {"value": 0.5, "source": "--set"}
    assert vae["tf32"] == {"value": True, "source": "default"}
    assert vae["init_from"] == {"value": None, "source": "default"}
    assert vae["steps"]["source"] == "preset quick"


@pytest.mark.parametrize(
    "words",
    [
        ("collect", "--env", "Pong", "--preset", "laptop", "--gray"),
        ("train-vae", "--env", "CarRacing", "--preset", "quick", "--seed", "4", "--data", "a", "--data", "b"),
        ("train-controller", "--env", "LunarLander", "--preset", "laptop", "--memory-limit", "2GB"),
        ("train-dreamer", "--env", "Catch", "--preset", "nano", "--run", "here"),
        ("dream", "--env", "ALE/Seaquest-v5", "--name", "dream-2", "--temperature", "0.5"),
        ("curriculum", "--preset", "laptop", "--set", "train-vae.latent=16", "--set", "rounds=3", "--jobs", "2"),
        ("curriculum", "--agent", "dreamer", "--preset", "quick", "--envs", "tests.tiny:Tiny-v0,Pong"),
    ],
)  # fmt: skip
def test_a_printed_config_gives_the_same_values_when_it_is_given_back(
    capsys: pytest.CaptureFixture[str], here: Path, words: tuple[str, ...]
) -> None:
    def values(*words: str) -> object:
        assert run([*words, "--print-config", "--json"]) == 0
        return without_sources(json.loads(capsys.readouterr().out))

    assert run([*words, "--print-config"]) == 0
    (here / "printed.toml").write_text(capsys.readouterr().out)
    assert values(words[0], "--config", "printed.toml") == values(*words)


def without_sources(config: dict[str, object]) -> dict[str, object]:
    return {
        name: value["value"] if set(value) == {"value", "source"} else without_sources(value)
        for name, value in config.items()
        if isinstance(value, dict)
    }


def test_a_config_file_may_give_common_options_and_a_flag_beats_it(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    (here / "c.toml").write_text('env = "Breakout"\nseed = 5\ndevice = "cpu"\n[collect]\nepisodes = 3\n')
    assert run(["collect", "--config", "c.toml", "--seed", "6", "--print-config", "--json"]) == 0
    config = json.loads(capsys.readouterr().out)
    assert config["env"] == {"value": "Breakout", "source": "c.toml"}
    assert config["seed"] == {"value": 6, "source": "flag"}
    assert config["collect"]["episodes"] == {"value": 3, "source": "c.toml"}
    (here / "c.toml").write_text("sede = 5\n")
    assert "c.toml has 'sede' above its tables; did you mean seed?" in refused(
        capsys, 64, "collect", "--env", "Pong", "--config", "c.toml"
    )


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("WM_TRAIN_VAE_STEP", "did you mean WM_TRAIN_VAE_STEPS?"),
        ("WM_SEDE", "did you mean WM_SEED?"),
        ("WM_DATA", "expected WM_<COMMAND>_<SETTING>"),
        ("WM_TRAIN_VAE_FOO", "expected WM_<COMMAND>_<SETTING>"),
        ("WM_PROJECT_DIRECTORY", "expected WM_<COMMAND>_<SETTING>"),
    ],
)
def test_a_variable_that_nothing_reads_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, answer: str
) -> None:
    monkeypatch.setenv(name, "2.5")
    sentence = refused(capsys, 64, "train-vae", "--env", "Pong")
    assert f"{name} is no variable of wm; {answer}" in sentence
    assert run(["--help"]) == 0


@pytest.mark.parametrize("words", [("--help",), ("train-vae", "--help"), ("help", "options"), ("ls", "--help")])
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    code = (
        f"import sys; from stages.cli import run; run({list(words)!r}); "
        "sys.exit(' '.join({'torch', 'numpy', 'tqdm', 'importlib.metadata'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([command()[0], "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("Usage: wm", "Options that mean the same"))


def test_help_lists_the_commands_in_sections_and_wm_alone_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for words in ([], ["--help"], ["help"]):
        assert run(words) == 0
        pages.append(capsys.readouterr())
    assert {page.err for page in pages} == {""}
    assert len({page.out for page in pages}) == 1
    text = pages[0].out
    assert text.startswith("Usage: wm")
    assert text.index("Train:") < text.index("  train-vae ") < text.index("Measure:") < text.index("Inspect:")
    assert max(map(len, text.splitlines())) <= 80
    for name in TABLE:
        assert f"\n  {name} " in text


def test_what_stands_in_brackets_in_a_help_does_not_wrap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in (("clean",), ("data", "import"), ("options",), ("curriculum",), ("report",)):
        assert run(["help", *words]) == 0
        text = capsys.readouterr().out
        assert "[" in text
        assert all(line.count("[") == line.count("]") and len(line) <= 80 for line in text.splitlines()), text
        assert text.isascii()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_a_stage_fits_two_screens_with_its_own_options_on_the_first(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert run([name, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 48
    assert max(map(len, lines)) <= 80
    own = next(number for number, line in enumerate(lines) if line.startswith(("Where:", "Common options:")))
    assert own <= 25  # 24 lines and an empty one
    common = " ".join(lines[-4:])
    assert "--preset" in common
    assert "see `wm help options`." in common
    assert "[default: ]" not in common


def test_options_of_a_command_are_those_of_its_settings_and_no_sentinel_is_a_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["train-controller", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--target-return X Stop when a validation reaches this return. [none]" in text
    assert "--init-from TEXT Run to start from, such as runs/Pong. [none]" in text
    assert "--sigma" not in text


def test_help_options_lists_the_common_options_with_their_variables(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "options"]) == 0
    text = capsys.readouterr().out
    for name, variable in (("--seed", "WM_SEED"), ("--config", "WM_CONFIG"), ("--worker-timeout", "WM_WORKER_TIMEOUT")):
        assert name in text
        assert f"({variable})" in text
    assert "--latent" not in text
    for words in (["dream"], ["data", "merge"]):
        assert run(["help", *words]) == 0
        assert f"Usage: wm {' '.join(words)} [OPTIONS]" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(set(TABLE) - set(COMMANDS) - {"help"}))
def test_a_command_that_looks_has_an_example(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run([name, "--help"]) == 0
    assert f"Example: wm {name}" in capsys.readouterr().out


def help_at_80_columns(*words: str) -> list[str]:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(wm, [*words, "--help"], prog_name="wm")
    lines: list[str] = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    return lines


def test_at_80_columns_every_command_of_the_list_takes_one_line() -> None:
    lines = [line.split(maxsplit=1) for line in help_at_80_columns()]
    assert all([name, entry.sentence] in lines for name, entry in TABLE.items())


def test_at_80_columns_an_example_can_be_copied() -> None:
    """What wraps is pasted as two commands."""
    subcommands = [("data", name) for name in data.command.commands]
    for words in [*((name,) for name in TABLE), *subcommands]:
        lines = help_at_80_columns(*words)
        start = next(number for number, line in enumerate(lines) if "Example: " in line)
        example = lines[start : lines.index("", start)]
        assert all(line.endswith("\\") for line in example[:-1]), example


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["collect"],
            "--env is missing; an example is `wm collect --env Pong --episodes 50` (see `wm collect --help`)",
        ),
        (
            ["compare"],
            "PATHS is missing; an example is `wm compare runs/Pong runs/Pong.round2` (see `wm compare --help`)",
        ),
        (["data", "split", "d"], "--at is missing; an example is `wm data split data/Pong.zarr --at 40 --out-first "),
    ],
)
def test_what_is_missing_is_shown_in_an_example(
    capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert sentence in refused(capsys, 64, *words)


def completions(*words: str) -> list[str]:
    variables = environment(
        _WM_COMPLETE="bash_complete", COMP_WORDS=" ".join(["wm", *words]), COMP_CWORD=str(len(words))
    )
    done = subprocess.run(command(), env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")  # the shell would show it
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_environments_presets_and_commands_are_completed() -> None:
    assert completions("collect", "--env", "C") == ["CarRacing", "CartPole", "Catch"]
    assert completions("curriculum", "--envs", "Pong,Br") == ["Pong,Breakout"]
    assert completions("train-dreamer", "--preset", "n") == ["nano"]
    assert completions("train-v") == ["train-vae"]
    assert completions("data", "import", "--env", "Po") == ["Pong"]


def test_flags_of_other_trainers_work_without_being_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train-vae", "--env", "Pong", "--quick", "--no-tf32", "--print-config", "--json"]) == 0
    vae = json.loads(capsys.readouterr().out)["train-vae"]
    assert vae["tf32"] == {"value": False, "source": "flag"}
    assert vae["steps"]["source"] == "preset quick"
    assert run(["train-vae", "--help"]) == 0
    assert "tf32" not in capsys.readouterr().out


def test_quick_given_by_hand_beats_a_preset_of_the_surroundings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WM_PRESET", "laptop")
    words = ("collect", "--env", "Pong", "--quick")
    assert run([*words, "--print-config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["collect"]["episodes"]["source"] == "preset quick"
    assert "--quick is --preset quick, but --preset is laptop" in refused(capsys, 64, *words, "--preset", "laptop")


@pytest.mark.parametrize("words", [("--help",), ("train-vae", "--help")])
def test_help_leads_to_the_glossary(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(list(words)) == 0
    assert "docs/glossary.md" in capsys.readouterr().out
