"""Bad input: one sentence that names what, the value, what was expected and what to do; and the right exit code."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.cli import run
from stages.session import Session
from tests.conftest import IN_PROCESS, RECIPE, TINY, command, environment, make_episode
from wm.episodes.dataset import Dataset
from wm.episodes.writer import Writer, create


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "runtime", IN_PROCESS)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    assert run(list(words)) == code
    told = capsys.readouterr()
    assert told.out == ""
    lines = [line for line in told.err.splitlines() if line.startswith("wm: ")]
    assert len(lines) == 1, told.err
    assert "Traceback" not in told.err
    return lines[0]


def dataset(path: Path, size: int = 32) -> Path:
    recipe = {**RECIPE, "env": {"name": TINY, "size": size, "gray": False, "action_space": "auto"}}
    create(path, recipe)
    with Writer(path, recipe) as writer:
        for index in range(4):
            writer.add(make_episode(index, size=size).pack())
    Dataset.open(path)  # which writes the index
    return path


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("collect", "--env", "Pnog"), 64, "did you mean Pong?"),
        (("collect", "--env", "Pong", "--episodes", "-3"), 64, "--episodes is -3; expected at least 1"),
        (("collect", "--env", "Pong", "--size", "7"), 64, "--size is 7; expected at least 32"),
        (("collect", "--env", "Pong", "--policy", "brownian"), 64, "needs continuous actions"),
        (("collect", "--env", "Pong", "--disk-budget", "lots"), 64, "'lots'"),
        (("collect", "--env", "Pong", "--set", "episode=3"), 64, "did you mean episodes?"),
        (("collect", "--env", "Pong", "--set", "episodes=many"), 64, "expected int"),
        (("collect", "--env", "Pong", "--config", "none.toml"), 66, "none.toml cannot be read"),
        (("collect",), 64, "Missing option '--env'"),
        (("colect", "--env", "Pong"), 64, "colect"),
        (("train-vae", "--env", "Pong"), 66, "data/Pong.zarr is not a dataset; run `wm collect --env Pong` first"),
        (("train-mdnrnn", "--env", "Pong"), 66, "run `wm train-vae --env Pong` first"),
        (("train-controller", "--env", "Pong"), 66, "run `wm train-vae --env Pong` first"),
        (("train-controller", "--env", "Pong", "--popsize", "1"), 64, "--popsize is 1; expected at least 4"),
        (("train-controller", "--env", "Pong", "--temperature", "-1"), 64, "expected auto or a number from 0.01 to 10"),
        (("train-controller", "--env", "Pong", "--temperature", "hot"), 64, "--temperature is 'hot'"),
        (
            ("train-controller", "--env", "Pong", "--in", "dream", "--mdnrnn", "untrained"),
            64,
            "--mdnrnn untrained cannot dream",
        ),
        (
            ("train-controller", "--env", "Pong", "--in", "dream", "--set", "even_after=5"),
            64,
            "--set even_after=5 begins anew with a linear C, by what it was given in reality; leave out --in dream",
        ),
        (("train-controller", "--env", "Pong", "--from", "r", "--set", "even_after=5"), 64, "leave out --from"),
        (
            ("train-controller", "--env", "Pong", "--set", "evened=true", "--set", "hidden=4"),
            64,
            "--set evened=true takes a linear C; --set hidden is 4, leave one of them out.",
        ),
        (
            ("train-controller", "--env", "Pong", "--from", "r", "--set", "starts=3"),
            64,
            "--set starts=3 begins several searches from zero, of which one goes on; leave out --from",
        ),
        (("train-controller", "--env", "Pong", "--set", "hidden_gain=2"), 64, "but C has no hidden units"),
        (
            ("train-controller", "--env", "Pong", "--mdnrnn", "untrained", "--set", "sees=z"),
            64,
            "--mdnrnn untrained is another memory for C, but --set sees=z gives it none; add --set sees=all.",
        ),
        (("collect", "--env", "Pong", "--data", "a.zarr", "--data", "b.zarr"), 64, "--data is given 2 times"),
        (("dream", "--env", "Pong"), 66, "run `wm train-vae --env Pong` first"),
        (("evaluate", "--env", "Pong"), 66, "run `wm train-vae --env Pong` first"),
        (("verify", "nowhere"), 66, "holds no dataset and no artifact"),
        (("collect", "--env", "Pong", "--data", "."), 64, "exists and is not a dataset"),
        (("curriculum", "--envs", "Pong,Pogn"), 64, "did you mean Pong?"),
        (("train-vae", "--env", "Pong", "--latent", "0"), 64, "--latent is 0"),
        (("dream", "--env", "Pong", "--temperature", "-1"), 64, "--temperature is -1"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    assert told in refused(capsys, code, *words)
    assert sum(file.stat().st_size for file in here.rglob("*") if file.is_file()) == 0


def test_a_budget_that_is_too_small_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    sentence = refused(capsys, 74, "collect", "--env", "Pong", "--episodes", "50", "--disk-budget", "100kB")
    assert "only 100.0 kB may be used; free some space, raise --disk-budget, or ask for less" in sentence
    assert sum(file.stat().st_size for file in here.rglob("*") if file.is_file()) == 0


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
    capsys: pytest.CaptureFixture[str], here: Path, stage: str
) -> None:
    dataset(here / "d.zarr")
    before = sorted(here.rglob("*"))
    more = ["--size", "32", "--episodes", "9"] if stage == "collect" else []
    assert run([stage, "--env", TINY, "--data", "e.zarr" if more else "d.zarr", *more, "--dry-run"]) == 0
    assert "disk about" in capsys.readouterr().out
    assert sorted(here.rglob("*")) == before


def test_print_config_says_where_each_value_came_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WM_TRAIN_VAE_BATCH", "17")
    words = ["train-vae", "--env", "Pong", "--preset", "quick", "--latent", "9", "--set", "rarity=0.5"]
    assert run([*words, "--print-config", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["latent"] == {"value": "9", "source": "flag"}
    assert shown["batch"] == {"value": "17", "source": "WM_TRAIN_VAE_BATCH"}
    assert shown["rarity"]["source"] == "--set"
    assert shown["steps"]["source"] == "preset quick"
    assert shown["learning_rate"]["source"] == "default"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from stages.cli import run; run(['train-vae', '--help']); "
        "sys.exit(' '.join({'torch', 'numpy', 'tqdm', 'importlib.metadata'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([command()[0], "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Example: wm train-vae" in done.stdout


def test_quick_given_by_hand_beats_a_preset_of_the_surroundings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WM_PRESET", "laptop")
    words = ("collect", "--env", "Pong", "--quick")
    assert run([*words, "--print-config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"]["source"] == "preset quick"
    assert "--quick is --preset quick, but --preset is laptop" in refused(capsys, 64, *words, "--preset", "laptop")
