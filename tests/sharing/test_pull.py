"""A published run arrives whole: the commands that need it work as where it was made."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import wm
from tests.conftest import SLUG, TINY, arguments, outcome, run, write_dataset
from tests.sharing.conftest import Answer
from wm.artifacts import locks, manifest
from wm.episodes.dataset import Dataset
from wm.episodes.writer import Writer, create
from wm.sharing.contents import CARD, NAME

RUN, DATA = Path("runs") / SLUG, Path("data") / f"{SLUG}.zarr"


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("words", [("--run", "."), ("--run", "run", "--data", ".")])
def test_the_working_folder_is_not_replaced(shared: Path, answer: Answer, words: tuple[str, ...]) -> None:
    assert "is the working folder; name a folder in it" in answer("pull", "shared", *words, code=64)
    assert os.listdir(shared.parent) == ["shared"]


def test_what_was_published_arrives_and_a_second_pull_has_nothing_to_do(shared: Path, answer: Answer) -> None:
    facts = json.loads(answer("pull", "shared", "--json", code=0))
    assert (facts["status"], facts["env"], facts["episodes"], facts["trained_on"]) == ("received", TINY, 4, 24)
    published = files_of(shared)
    arrived = files_of(shared.parent / RUN)
    assert arrived == {
        name: data
        for name, data in published.items()
        if not name.startswith("episodes.zarr") and name not in (NAME, CARD)
    }
    answer("verify", ".", code=0)
    assert "up to date" in answer("pull", "shared", code=0)
    assert files_of(shared.parent / RUN) == arrived


def test_a_pulled_score_is_up_to_date_and_a_report_shows_it(shared: Path, answer: Answer) -> None:
    answer("pull", "shared", code=0)
    assert "up to date" in answer(*arguments("evaluate"), code=0)
    answer("report", "runs", code=0)
    (page,) = shared.parent.rglob("report.md")
    score = json.loads((shared.parent / RUN / "evaluation" / "controller" / "manifest.json").read_text())["metrics"]
    assert f"{score['mean']:.1f} ±" in page.read_text()


@pytest.mark.slow
def test_the_episodes_that_came_along_suffice_to_dream(shared: Path, answer: Answer) -> None:
    assert "4 of the 24 episodes that V was trained on came along. Who trains" in answer("pull", "shared", code=0)
    assert "play.html" in answer("play", "--env", TINY, code=0)
    assert "up to date" in answer(*arguments("dream"), code=0)
    shutil.rmtree(shared.parent / RUN / "dream")
    assert "created" in answer(*arguments("dream"), code=0)


@pytest.mark.slow
def test_a_run_without_latents_dreams_in_the_episodes_that_came_along(trained: Path, answer: Answer) -> None:
    without = ("--without", "latents", "--without", "dream")
    answer("push", str(RUN), "shared", *without, "--episodes", "2", code=0)
    for name in ("runs", "data"):
        shutil.rmtree(trained.parents[1] / name)
    assert f"next: wm play --env {TINY}" in answer("pull", "shared", code=0)
    assert "dreams start in the 2 episodes that came along" in outcome(trained.parents[1], "play", "--env", TINY).stderr
    assert "created" in answer(*arguments("dream"), code=0)
    assert "up to date" in answer(*arguments("dream"), code=0)
    world = wm.load(trained)
    assert np.array_equal(world.latents.ends, world.dataset.ends)
    assert np.allclose(world.latents.means[:5], world.encode(world.episode(0).frames[:5]), atol=0.2)
    another = arguments("train-controller", "--in", "dream", "--name", "again")
    assert "pull one that was pushed with its latents" in answer(*another, code=66)


def test_a_dream_that_came_along_without_its_latents_is_kept(trained: Path, answer: Answer) -> None:
    answer("push", str(RUN), "shared", "--without", "latents", code=0)
    shutil.rmtree(trained)
    answer("pull", "shared", code=0)
    assert "up to date" in answer(*arguments("dream"), code=0)


def test_without_an_episode_there_is_no_dream(shared: Path, answer: Answer) -> None:
    answer("pull", "shared", code=0)
    shutil.rmtree(shared.parent / DATA)
    for words in (arguments("dream"), ("play", "--env", TINY)):
        assert "does not exist; run `wm collect" in answer(*words, code=66)


def test_episodes_of_other_lengths_are_not_those_of_the_latents(shared: Path, answer: Answer) -> None:
    """Another stranger's dataset of the same recipe, put in place of the one that came along."""
    answer("pull", "shared", code=0)
    dataset = Dataset.open(shared.parent / DATA)
    episodes = [episode for part in dataset.parts for episode in dataset.episodes_of(part)]
    shutil.rmtree(shared.parent / DATA)
    with Writer(create(shared.parent / DATA, dataset.recipe)) as writer:
        for index, episode in enumerate(reversed(episodes)):
            writer.add(replace(episode, index=index).pack())
    assert "has other episodes than those" in answer("play", "--env", TINY, code=78)


def test_with_all_episodes_the_dream_is_that_of_the_run(chain: Path, tmp_path: Path) -> None:
    run(chain, "push", f"runs/{SLUG}", str(tmp_path / "all"), "--episodes", "all")
    run(tmp_path, "pull", "all")
    assert "up to date" in run(tmp_path, *arguments("dream")).stdout
    assert "play.html" in run(tmp_path, "play", "--env", TINY).stdout


def test_episodes_that_are_there_already_are_kept(shared: Path, answer: Answer) -> None:
    answer("pull", "shared", code=0)
    shutil.rmtree(shared.parent / RUN)
    before = files_of(shared.parent / DATA)
    assert "was there and is kept" in answer("pull", "shared", code=0)
    assert files_of(shared.parent / DATA) == before


def test_episodes_that_were_removed_come_again_beside_the_run(shared: Path, answer: Answer) -> None:
    answer("pull", "shared", code=0)
    shutil.rmtree(shared.parent / DATA)
    assert "4 episodes" in answer("pull", "shared", code=0)
    assert (shared.parent / DATA / manifest.NAME).is_file()


def test_episodes_of_another_recipe_are_not_replaced(shared: Path, answer: Answer) -> None:
    write_dataset(shared.parent / DATA, 2)
    before = files_of(shared.parent / DATA)
    assert "has episodes of another recipe" in answer("pull", "shared", code=64)
    assert files_of(shared.parent / DATA) == before
    assert not (shared.parent / RUN).exists()
    text = answer("pull", "shared", "--data", "data/other.zarr", code=0)
    assert f"next: wm play --env {TINY} --data data/other.zarr" in text
    assert f"next: wm evaluate --env {TINY}\n" in text  # it reads no episodes


def test_another_run_is_not_replaced(shared: Path, answer: Answer) -> None:
    answer("pull", "shared", code=0)
    (shared.parent / RUN / "vae" / "loss.png").write_bytes(b"mine")
    assert "is another run; give another folder with --run" in answer("pull", "shared", code=64)
    assert (shared.parent / RUN / "vae" / "loss.png").read_bytes() == b"mine"
    text = answer("pull", "shared", "--run", "runs/theirs", code=0)
    assert f"next: wm evaluate --env {TINY} --run runs/theirs" in text


@pytest.mark.parametrize(
    ("run", "data", "sentence"),
    [
        ("mine", "mine", "--run is mine and --data mine; expected two folders, neither in the other"),
        ("mine", "mine/d.zarr", "--run is mine and --data mine/d.zarr; expected two folders"),
        ("d.zarr/mine", "d.zarr", "--run is d.zarr/mine and --data d.zarr; expected two folders"),
        ("shared/mine", "d.zarr", "shared/mine is inside shared, which is read; name a path outside of it"),
        ("mine", "shared/vae/d.zarr", "shared/vae/d.zarr is inside shared, which is read"),
    ],
)
def test_what_is_pulled_lies_in_two_folders_outside_of_what_is_read(
    shared: Path, answer: Answer, run: str, data: str, sentence: str
) -> None:
    before = files_of(shared)
    assert sentence in answer("pull", "shared", "--run", run, "--data", data, code=64)
    assert files_of(shared) == before
    assert os.listdir(shared.parent) == ["shared"]


def test_no_folder_of_somebody_is_to_be_removed_because_it_is_no_shared_run(tmp_path: Path, answer: Answer) -> None:
    (tmp_path / "mine" / "a/b/c/d/e/f/g/h").mkdir(parents=True)
    assert "deeper than a run's folders; that is no shared run" in answer("pull", "mine", code=65)


def test_a_folder_in_which_nothing_was_published(tmp_path: Path, answer: Answer) -> None:
    for source in ("nowhere", "nowhere.zip"):
        assert f"{source} is no shared run: it does not exist, or is empty." in answer("pull", source, code=66)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").touch()
    assert "folder is no shared run: there is no contents.json of `wm push`." in answer("pull", "folder", code=66)
    (tmp_path / "file").touch()
    assert "is a file" in answer("pull", "file", code=64)
    assert not (tmp_path / "runs").exists()


def test_an_address_with_a_password_is_refused_and_not_repeated(answer: Answer) -> None:
    said = answer("pull", "https://ada:secret@host/run.zip", code=64)
    assert "has a user or a password" in said
    assert "secret" not in said


@pytest.mark.parametrize("source", ["ftp://host/run", "http://host/run", "hf://name", "hf://a/b/c", "file:", ""])
def test_other_addresses_are_refused(source: str, answer: Answer) -> None:
    expected = "expected a folder, such as shared/Pong, a .zip file, its https:// address, hf://USER/NAME, or s3://"
    assert expected in answer("pull", source, code=64)


@pytest.mark.parametrize("source", ["file:shared", "file://{folder}/shared", "./shared", "{folder}/shared"])
def test_addresses_of_a_folder(source: str, shared: Path, answer: Answer) -> None:
    text = answer("pull", source.format(folder=shared.parent), "--max-size", "1kB", code=64)
    assert "more than --max-size 1,000" in text


def test_a_second_pull_at_the_same_time_is_refused(shared: Path, answer: Answer) -> None:
    with locks.exclusive(shared.parent / RUN):
        assert "is being written by process" in answer("pull", "shared", code=75)


def test_a_disk_that_is_too_small_is_refused_before_anything_is_copied(
    shared: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(shared)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1 << 30))
    assert "needs about" in answer("pull", "shared", code=74)
    assert not (shared.parent / "runs").exists()


def test_the_module_of_its_environment_is_not_imported(shared: Path, answer: Answer) -> None:
    """It is a stranger's word: only a command that is given it as --env imports it."""
    import sys

    module = sys.modules.pop("tests.tiny", None)
    try:
        assert "must be able to import" in answer("pull", "shared", code=0)
        assert "tests.tiny" not in sys.modules
    finally:
        if module is not None:
            sys.modules["tests.tiny"] = module


def test_a_run_that_is_a_link_is_named(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(shared)
    assert outcome(tmp_path, "pull", "link").returncode == 0, "the folder that a person names may be a link"
