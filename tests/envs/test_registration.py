"""Ways in which naming one's own environment goes wrong: one sentence each, with the name as it was typed."""

import multiprocessing
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest

from wm.envs.registration import guarded
from wm.envs.registry import EnvConfig
from wm.errors import BadData, EnvironmentFault, MissingPackage, UsageProblem

MODULE = """
import gymnasium as gym, numpy as np

class Plain(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (20, 24, 3), np.uint8)
    action_space = gym.spaces.Discrete(3)
    def reset(self, **_): return np.zeros((20, 24, 3), np.uint8), {}
    def step(self, action): return np.zeros((20, 24, 3), np.uint8), 1.0, True, False, {}

class Assets(Plain):
    def __init__(self): open("assets/level1.png")

class Display(Plain):
    def __init__(self): raise RuntimeError("cannot open\\n  the display.")

class Parent(Plain):
    def __init__(self):
        import multiprocessing
        multiprocessing.Process(target=print).start()

class Late(Plain):
    def __init__(self): import nothing_like_this

class Bare(gym.Env):
    observation_space = Plain.observation_space
    def reset(self, **_): self.action_space = gym.spaces.Discrete(3)

class Discrete: n = 3

class Foreign(Plain):
    action_space = Discrete()

class Modes(Plain):
    metadata = {"render_modes": 3}

class Flat(Plain):
    observation_space = gym.spaces.Box(0, 255, (20, 24), np.uint8)
    def __init__(self): pass

gym.register("Own-v0", Plain)
gym.register("Solved-v0", Plain, reward_threshold=7.5)
gym.register("space/Own-v3", Plain)
gym.register("Assets-v0", Assets)
gym.register("Display-v0", Display)
gym.register("Late-v0", Late)
gym.register("Parent-v0", Parent)
gym.register("Bare-v0", Bare)
gym.register("Foreign-v0", Foreign)
gym.register("Modes-v0", Modes)
gym.register("FlatObserved-v0", Flat)
gym.register("space/Own.1-v0", Plain)
"""


@pytest.fixture(autouse=True)
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_env.py").write_text(MODULE)
    (tmp_path / "needs_env.py").write_text("import nothing_like_this\n")
    (tmp_path / "syntax_env.py").write_text("def broken(:\n")
    (tmp_path / "silent_env.py").write_text("")
    (tmp_path / "own_pkg").mkdir()
    (tmp_path / "own_pkg" / "__init__.py").write_text("from . import missing_part\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith(("own_", "needs_env", "syntax_env", "silent_env"))]:
        del sys.modules[name]
    for env_id in re.findall(r'register\("(.*?)"', MODULE):
        gym.registry.pop(env_id, None)


@pytest.mark.parametrize(
    "name", ["own_env:Own-v0", "own_env:space/Own-v3", "own_env:space/Own.1-v0", "own_env:Modes-v0"]
)
def test_ids_of_an_own_module_work(name: str) -> None:
    assert EnvConfig(name, 32).make().reset(seed=0)[0].shape == (32, 32, 3)


@pytest.mark.filterwarnings("ignore:.*Overriding environment")
def test_two_modules_may_register_one_id(tmp_path: Path) -> None:
    def paid(name: str) -> float:
        env = EnvConfig(f"{name}:Own-v0", 32).make()
        env.reset(seed=0)
        return env.step(0)[1]

    for module, reward in (("own_easy", "1.0"), ("own_hard", "5.0")):
        (tmp_path / f"{module}.py").write_text(MODULE.replace("1.0", reward))
    assert [paid(module) for module in ("own_easy", "own_hard", "own_easy", "own_hard")] == [1, 5, 1, 5]
    (tmp_path / "own_easy.py").write_text(MODULE.replace("1.0", "30.0"))
    del sys.modules["own_easy"]  # as a notebook imports an edited module again
    assert [paid(module) for module in ("own_easy", "own_hard", "own_easy")] == [30, 5, 30]


def test_the_threshold_of_an_environment_of_a_module_is_known_once_that_is_imported() -> None:
    config = EnvConfig("own_env:Solved-v0", 32)
    assert config.reward_threshold is None
    config.make().close()
    assert config.reward_threshold == 7.5
    assert EnvConfig("own_other:Solved-v0", 32).reward_threshold is None
    assert EnvConfig("CartPole", 32).reward_threshold == 475


@pytest.mark.parametrize(
    ("name", "error", "reason"),
    [
        ("own_env:Own", UsageProblem, "registers no environment 'Own'; did you mean own_env:Own-v0"),
        ("own_env:Own-v1", UsageProblem, "did you mean own_env:Own-v0"),
        ("own_env:Plain", UsageProblem, "registers no environment 'Plain'; did you mean own_env:"),
        ("silent_env:Own-v9", UsageProblem, r"it needs a call of gymnasium.register\(\)"),
        ("own_env.py:Own-v0", UsageProblem, "names a file; give the module, `own_env:Own-v0`, and set PYTHONPATH"),
        ("games/own_env.py:Own-v0", UsageProblem, "names a file; give the module, `own_env:Own-v0`"),
        ("no_such_pkg.envs:Own-v0", MissingPackage, "does not find the module no_such_pkg; .* set PYTHONPATH"),
        ("no_such_env:Own-v0", MissingPackage, "does not find the module no_such_env; .* set PYTHONPATH"),
        ("own_env.part:Own-v0", MissingPackage, "does not find the module own_env.part; correct the name"),
        ("needs_env:Own-v0", MissingPackage, "its module needs_env imports nothing_like_this, which is not installed"),
        ("syntax_env:Own-v0", UsageProblem, r"its module syntax_env raised SyntaxError: .*line 1\); fix the module"),
        ("own_pkg:Own-v0", UsageProblem, "its module own_pkg raised ImportError: cannot import name 'missing_part'"),
        ("own_pkg.part:Own-v0", UsageProblem, "its module own_pkg.part raised ImportError"),
        ("own_env:Assets-v0", UsageProblem, "constructor raised FileNotFoundError: .*'assets/level1.png'"),
        ("own_env:Display-v0", UsageProblem, "constructor raised RuntimeError: cannot open the display.$"),
        ("own_env:Late-v0", MissingPackage, "needs the package nothing_like_this, which is not installed"),
        (
            "own_env:Bare-v0",
            UsageProblem,
            "has no action space: reading it raised AttributeError: .*; set action_space",
        ),
        ("own_env:Foreign-v0", UsageProblem, "is of type own_env.Discrete, no space of gymnasium; set action_space"),
        (
            "own_env:FlatObserved-v0",
            UsageProblem,
            "use --frames observation if they are pictures all the same, or add render_",
        ),
        (":", UsageProblem, "expected module:id"),
        ("own_env:Own..1-v0", UsageProblem, "expected module:id"),
        (":Own-v0", UsageProblem, "expected module:id"),
        ("own_env:", UsageProblem, "expected module:id"),
        ("a:b:c", UsageProblem, "expected module:id"),
        (".own_env:Own-v0", UsageProblem, "expected module:id"),
        ("../own_env:Own-v0", UsageProblem, "expected module:id"),
        ("a/../../b:C", UsageProblem, "expected module:id"),
    ],
)
def test_a_wrong_name_gets_one_sentence_with_the_real_reason(name: str, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason) as raised:
        EnvConfig(name, 32).make()
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_environment_that_starts_a_process_in_a_worker_is_told_what_it_may_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(UsageProblem, match="workers play the environments, so let it use a thread or subprocess"):
        EnvConfig("own_env:Parent-v0", 32).make()


def test_what_playing_in_this_process_raises_is_reported_with_the_environments_name() -> None:
    def broken() -> None:
        raise KeyError("speed")

    with pytest.raises(EnvironmentFault, match=r"^Pong raised KeyError: 'speed' during an episode; fix the env"):
        guarded("Pong", broken)


def test_errors_of_this_project_pass_unchanged() -> None:
    def refusing() -> None:
        raise BadData("damaged")

    with pytest.raises(BadData, match=r"^damaged$"):
        guarded("Pong", refusing)
