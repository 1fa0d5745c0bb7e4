"""stable-baselines3 accepts the dream and the real game, learns in many dreams at once, and is scored in reality."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import wm
from tests.conftest import SLUG, TINY
from wm.errors import MissingPackage, UsageProblem


@pytest.mark.extra("sb3")
@pytest.mark.parametrize("obs", ["z", "zh", "pixels"])
@pytest.mark.parametrize("kind", ["env", "real_env"])
@pytest.mark.filterwarnings("ignore:The minimal resolution for an image:UserWarning")  # frames of 32x32 are the test's
def test_its_checker_finds_nothing(world: wm.World, kind: str, obs: str) -> None:
    from stable_baselines3.common.env_checker import check_env

    check_env(getattr(world, kind)(obs=obs, render_mode="rgb_array"))


@pytest.mark.extra("sb3")
@pytest.mark.parametrize("obs", ["z", "zh"])
@pytest.mark.parametrize("name", ["Dream", "Real"])
def test_its_checker_finds_nothing_in_what_gymnasium_makes(run: Path, steered: Path, name: str, obs: str) -> None:
    """Of a box it wants actions from -1 to 1, which gymnasium's wrapper gives."""
    from stable_baselines3.common.env_checker import check_env

    check_env(gym.make(f"wm/{name}-v0", run=run, obs=obs))
    box = gym.make(f"wm/{name}-v0", run=steered, obs=obs)
    with pytest.warns(UserWarning, match="symmetric and normalized Box action space") as warned:
        check_env(box)
    assert len(warned) == 1
    check_env(gym.wrappers.RescaleAction(box, -1, 1))


@pytest.mark.extra("sb3")
def test_an_ended_dream_shows_its_last_observation_and_begins_again(world: wm.World) -> None:
    adapted, same = (
        world.sb3_env(8, max_steps=5),
        world.vector_env(8, max_steps=5, autoreset_mode=AutoresetMode.SAME_STEP),
    )
    adapted.seed(3)
    assert (adapted.reset() == same.reset(seed=3)[0]).all()
    for _ in range(12):
        actions = np.arange(8) % 3
        observations, rewards, ended, infos = adapted.step(actions)
        expected, real_rewards, terminated, truncated, info = same.step(actions)
        assert (observations == expected).all()
        assert (rewards == real_rewards.astype(np.float32)).all()
        assert (ended == terminated | truncated).all()
        assert [one["TimeLimit.truncated"] for one in infos] == truncated.tolist()
        for row in range(8):
            assert ("terminal_observation" in infos[row]) == ("episode" in infos[row]) == ended[row]
            if ended[row]:
                assert (infos[row]["terminal_observation"] == info["final_obs"][row]).all()


@pytest.mark.extra("sb3")
def test_another_autoreset_is_refused(world: wm.World) -> None:
    from wm.world.sb3 import Sb3VecEnv

    with pytest.raises(UsageProblem, match=r"autoreset_mode is .*NEXT_STEP; stable-baselines3 needs"):
        Sb3VecEnv(world.vector_env(2))


@pytest.mark.extra("sb3")
def test_ppo_learns_in_dreams_and_is_scored_in_the_real_game(chain: Path, tmp_path: Path) -> None:
    from stable_baselines3 import PPO

    # V and M of the other tests have hardly learned, and nothing can be won in their dreams.
    data, run = chain / "data" / f"{SLUG}.zarr", tmp_path / "run"
    wm.train_vae(TINY, data=data, run=run, steps=400, batch=16, latent=4)
    wm.train_mdnrnn(TINY, data=data, run=run, steps=600, batch=16, seq_len=8, hidden=16)
    longer = wm.load(run, data=data)
    settings: dict[str, Any] = {"n_steps": 24, "batch_size": 512, "n_epochs": 4, "learning_rate": 2e-3, "seed": 0}
    model = PPO("MlpPolicy", longer.sb3_env(64), device="cpu", **settings)
    returns = []
    for _ in range(2):
        model.learn(15_000, reset_num_timesteps=False)
        returns.append(np.mean([episode["r"] for episode in model.ep_info_buffer or ()]))
    assert returns[1] > returns[0] + 1
    score = longer.evaluate(model, episodes=20)
    assert score.score.episodes == 20
    assert str(score).startswith(f"return {score.score.mean:.1f} ± ")
    assert score.protocol.startswith("gymnasium tests.tiny:Tiny-v0 unmodified")


def test_without_the_extra_the_command_is_named(world: wm.World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"World.sb3_env needs stable-baselines3; run `pip install -e '.\[sb3\]'`"):
        world.sb3_env(4)


def test_a_function_and_an_object_that_predicts_are_scored_alike(world: wm.World) -> None:
    class Still:
        def predict(self, observation: Any, deterministic: bool) -> tuple[Any, None]:
            assert deterministic
            return act(observation), None

    def act(observation: Any) -> int:
        assert observation.shape == (20,)
        return 1

    score = world.evaluate(act, episodes=6, obs="zh")
    assert score.returns.shape == (6,)
    assert score.preview
    assert " over 6 test episodes, a preview (gymnasium tests.tiny:Tiny-v0 unmodified" in str(score)
    assert len(set(score.returns)) > 1
    assert (score.returns == world.evaluate(Still(), episodes=6, obs="zh").returns).all()
