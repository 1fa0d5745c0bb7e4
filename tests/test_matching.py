"""Environment, dataset, run, V, M and C are compared where they meet: other ones are refused in one sentence."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest

from tests.conftest import SLUG, TINY, arguments, outcome, run
from tests.tiny import TinyEnv
from wm.envs import registry

RUN = f"runs/{SLUG}"
PLAYERS = {
    "evaluate": ("evaluate", "--env", TINY, "--episodes", "7"),
    "dream": ("dream", "--env", TINY, "--dreams", "5"),
    "train-controller": ("train-controller", "--env", TINY, "--popsize", "5"),
    "collect": ("collect", "--env", TINY, "--size", "32", "--policy", "controller", "--data", "other.zarr"),
}


def refusal(folder: Path, *words: str) -> str:
    """The one sentence of a command that is refused because its inputs do not belong together."""
    before = sorted(folder.rglob("[!.]*"))
    done = outcome(folder, *words)
    assert done.returncode == 78, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert sorted(folder.rglob("[!.]*")) == before  # nothing half-written
    return line


@pytest.fixture
def made(chain: Path, tmp_path: Path) -> Path:
    """A copy of a folder in which every stage has been run."""
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    return tmp_path


@pytest.fixture
def other_actions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment is changed after the training: in a new process it has one action less."""
    monkeypatch.setattr(TinyEnv, "action_space", gym.spaces.Discrete(2))
    registry._inspect.cache_clear()
    yield
    registry._inspect.cache_clear()


@pytest.mark.usefixtures("other_actions")
def test_an_environment_whose_actions_changed_is_refused_by_whatever_plays_in_it(made: Path) -> None:
    for words in PLAYERS.values():
        for more in ((), ("--dry-run",)):
            assert refusal(made, *words, *more) == (
                f"wm: {TINY} takes 2 discrete actions but {RUN}/mdnrnn was trained with 3 discrete actions; undo the "
                "change of the environment, or collect and train again."
            )


@pytest.mark.parametrize("stage", [*PLAYERS, "train-vae", "train-mdnrnn", "train-dreamer", "random"])
def test_a_run_of_another_environment_is_refused(stage: str, made: Path) -> None:
    words = ("evaluate", "--env", TINY, "--agent", "random") if stage == "random" else (stage, "--env", TINY)
    words = (*PLAYERS.get(stage, words), "--run", RUN)
    asked = tuple("Catch" if word == TINY else word for word in words)
    if stage in ("train-vae", "train-mdnrnn"):
        asked += ("--data", f"data/{SLUG}.zarr")
        assert f"data/{SLUG}.zarr has episodes of {TINY} but --env is Catch" in refusal(made, *asked)
    else:
        assert refusal(made, *asked) == (
            f"wm: {RUN}/vae was trained on {TINY} but --env is Catch; give the run of Catch with --run, or --env "
            f"{TINY}."
        )


def test_a_training_does_not_replace_what_a_run_has_of_another_environment(made: Path) -> None:
    run(made, "collect", "--env", "Catch", "--episodes", "4")
    assert f"{RUN}/vae was trained on {TINY} but --env is Catch" in refusal(
        made, "train-vae", "--env", "Catch", "--run", RUN
    )


def test_a_dataset_of_other_frames_is_refused_by_m(made: Path) -> None:
    run(made, *arguments("collect", "--observation", "foreground", "--data", "other.zarr"))
    said = refusal(made, *arguments("train-mdnrnn", "--data", "other.zarr"))
    assert f"other.zarr has observation foreground but {RUN}/vae was trained with rgb" in said


def test_a_dream_next_to_other_episodes_is_refused(made: Path) -> None:
    run(made, *arguments("collect", "--seed", "5", "--data", "other.zarr"))
    done = outcome(made, *arguments("dream", "--data", "other.zarr"))
    assert done.returncode == 78
    assert (
        f"other.zarr has other episodes than those {RUN}/mdnrnn was trained on; give these with --data" in done.stderr
    )


def test_whatever_plays_has_the_source_of_the_environment_in_its_recipe(chain: Path) -> None:
    folder = chain / RUN
    for name in ("controller", "dream", "evaluation/controller", "evaluation/random"):
        recipe = json.loads((folder / name / "manifest.json").read_text())["recipe"]
        assert len(recipe["inputs"]["source of tests.tiny"]) == 16, name
        assert ("packages" in recipe["settings"]) == name.startswith("evaluation")
    attributes = json.loads((chain / "data" / f"{SLUG}.zarr" / "manifest.json").read_text())["recipe"]
    assert attributes["sources"] == {"source of tests.tiny": recipe["inputs"]["source of tests.tiny"]}
