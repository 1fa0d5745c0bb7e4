"""The code that an environment is made of, and what an edit of it does to episodes and scores."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest

from tests.conftest import outcome, run
from tests.test_extras import install
from wm.envs import registry
from wm.envs.code import EnvCode
from wm.envs.known_envs import KNOWN_ENVS
from wm.envs.registry import EnvConfig

BASE = """
import gymnasium as gym, numpy as np

class Base(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (20, 24, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)
    def reset(self, **_): return np.zeros((20, 24, 3), np.uint8), {}
    def step(self, action): return np.zeros((20, 24, 3), np.uint8), 1.0, True, False, {}
"""
GAME = """
import gymnasium as gym
from edited_base import Base

class Game(Base): pass

class Louder(gym.RewardWrapper):
    def reward(self, reward): return 2 * reward

def make(**options): return Louder(gym.make("CartPole-v1", **options))
"""
IDS = """
import gymnasium as gym
gym.register("Game-v0", "edited_game:Game", max_episode_steps=5)
gym.register("Wrapped-v0", "edited_game:make")
"""
FILES = {"edited_base": BASE, "edited_game": GAME, "edited_ids": IDS}
GAME_ID = "edited_ids:Game-v0"


def forget() -> None:
    """What a new process does not know."""
    registry._inspect.cache_clear()
    for name in [name for name in sys.modules if name.startswith("edited_")]:
        del sys.modules[name]
    for env_id in ("Game-v0", "Wrapped-v0"):
        gym.registry.pop(env_id, None)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "own"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second would leave the old one valid
    forget()
    yield folder
    forget()


def edit(folder: Path, name: str, before: str = "", after: str = "# another line\n") -> None:
    path = folder / f"{name}.py"
    path.write_text(path.read_text().replace(before, after) if before else path.read_text() + after)
    forget()


def test_known_environments_are_packages_alone() -> None:
    for name, spec in KNOWN_ENVS.items():
        code = EnvConfig(name).code
        assert code.packages.keys() == {"gymnasium", *["ale-py"] * spec.is_atari}, name
        assert code.sources == {}, name  # also Catch's: its id has its version


def test_an_environment_of_ones_own_is_the_files_of_its_classes_and_of_its_registration(own: Path) -> None:
    code = EnvConfig(GAME_ID).code
    assert list(code.packages) == ["gymnasium"]
    assert list(code.sources) == [f"source of edited_{name}" for name in ("base", "game", "ids")]
    for name in FILES:
        edit(own, name)
        changed = EnvConfig(GAME_ID).code.sources
        assert [key for key in changed if changed[key] != code.sources[key]] == [f"source of {name}"]
        code = EnvConfig(GAME_ID).code


def test_a_wrapper_of_ones_own_around_a_package_counts(own: Path) -> None:
    assert list(EnvConfig("edited_ids:Wrapped-v0").code.sources) == ["source of edited_game", "source of edited_ids"]


def test_a_package_is_its_version_whatever_its_module_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    install(packages, "Some-Games", "1.2.3")
    (packages / "Some_Games-1.2.3.dist-info" / "top_level.txt").write_text("edited_base\n")
    (packages / "edited_base.py").write_text(BASE + 'gym.register("Game-v0", Base)\n')
    monkeypatch.syspath_prepend(str(packages))
    forget()
    code = EnvConfig("edited_base:Game-v0").code
    forget()
    assert (code.packages["Some-Games"], code.sources) == ("1.2.3", {})


def test_edited_modules_are_named() -> None:
    code = EnvCode(sources={"source of a": "1", "source of b": "2", "source of c": "3"})
    assert code.edited_since({"vae": "0", "source of a": "1", "source of b": "9"}) == "b"
    assert code.edited_since({"source of b": "9", "source of c": "9"}) == "b and c"
    assert code.edited_since({"vae": "0"}) == ""


def test_an_environment_in_itself_ends() -> None:
    env = EnvConfig("Catch")._build().unwrapped
    env.env = env  # type: ignore[attr-defined]
    assert EnvCode.of(env, "").packages


def test_an_edit_is_another_recipe_of_episodes_and_scores_and_is_told(own: Path, tmp_path: Path) -> None:
    collecting = ("collect", "--env", GAME_ID, "--episodes", "2", "--size", "32", "--json")
    scoring = ("evaluate", "--env", GAME_ID, "--agent", "random", "--episodes", "2", "--json")
    for words in (collecting, scoring):
        assert json.loads(run(tmp_path, *words).stdout)["status"] == "created"
    edit(own, "edited_base", "1.0, True", "3.0, True")
    done = outcome(tmp_path, *collecting, "--keep-current")
    assert (done.returncode, "source of edited_base changed" in done.stderr) == (78, True)
    for words in (collecting, scoring):
        done = run(tmp_path, *words)
        assert "source of edited_base changed" in done.stderr
        assert json.loads(done.stdout)["status"] == "created"
    assert json.loads(done.stdout)["metrics"]["mean"] == 3.0
    edit(own, "edited_base", "3.0, True", "1.0, True")
    for words in (collecting, scoring):  # undone: the episodes and the score of before come back
        assert "restored from" in (done := run(tmp_path, *words)).stderr
    assert json.loads(done.stdout)["metrics"]["mean"] == 1.0


def test_a_dataset_from_before_sources_were_recorded_is_told(own: Path, tmp_path: Path) -> None:
    collecting = ("collect", "--env", GAME_ID, "--episodes", "2", "--size", "32")
    recorded = EnvConfig(GAME_ID)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EnvConfig, "code", EnvCode(recorded.code.packages))
        run(tmp_path, *collecting)
    said = run(tmp_path, *collecting).stderr
    assert "now with source of edited_base" in said
    assert "the dataset of the old recipe moves to" in said
