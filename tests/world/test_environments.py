"""The dream and the real game as environments: gymnasium's checkers, bounds, pictures, ids."""

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import wm
from tests.conftest import environment
from tests.world.test_loading import python
from wm.actions import ActionSpace
from wm.dreams.env import DreamConfig, DreamEnv, InitialStates
from wm.dreams.view import View
from wm.envs.registry import EnvConfig
from wm.errors import UsageProblem
from wm.models.mdnrnn.config import MdnRnnConfig
from wm.models.mdnrnn.network import MdnRnn
from wm.models.vae.config import VaeConfig
from wm.pretrained import TrainedMdnRnn, TrainedVae
from wm.world.real_env import RealEnv

KINDS = pytest.mark.parametrize("obs", ["z", "zh", "pixels"])
SHAPES = {"z": (4,), "zh": (20,), "pixels": (32, 32, 3)}


@KINDS
@pytest.mark.parametrize("kind", ["env", "real_env"])
def test_gymnasiums_checker_finds_nothing(world: wm.World, kind: str, obs: str) -> None:
    """Warnings are errors in this suite. The checker makes it again from its spec, and renders it."""
    check_env(getattr(world, kind)(obs=obs, render_mode="rgb_array"))


@KINDS
def test_observations_of_dream_and_game_have_the_same_bounds_and_keep_to_them(world: wm.World, obs: str) -> None:
    dream, real, dreams = world.env(obs, temperature=5.0), world.real_env(obs), world.vector_env(16, obs)
    assert dream.observation_space == real.observation_space == dreams.single_observation_space
    assert dream.observation_space.shape == SHAPES[obs]
    assert dream.action_space == real.action_space == world.action_space == gym.spaces.Discrete(3)
    for env in (dream, real):
        observation, _ = env.reset(seed=0)
        for step in range(60):
            assert observation in env.observation_space
            observation, _, terminated, truncated, _ = env.step(step % 3)
            if terminated or truncated:
                observation, _ = env.reset()
    observations, _ = dreams.reset(seed=0)
    for _ in range(30):
        assert observations in dreams.observation_space
        observations = dreams.step(dreams.action_space.sample())[0]


def test_latents_and_h_of_the_real_game_are_those_of_v_and_m(world: wm.World) -> None:
    pixels, both = world.real_env("pixels"), world.real_env("zh")
    frame, _ = pixels.reset(seed=3)
    observation, _ = both.reset(seed=3)
    z = [world.encode(frame)]
    for action in (0, 2, 1):
        frame, *_ = pixels.step(action)
        observation, *_ = both.step(action)
        z.append(world.encode(frame))
    hidden = world.mdnrnn.model.hidden_states(
        torch.from_numpy(np.array(z[:-1]))[None], torch.eye(3)[torch.tensor([[0, 2, 1]])]
    )
    low, high = both.observation_space.low[:4], both.observation_space.high[:4]
    assert np.allclose(observation[:4], np.clip(z[-1], low, high), atol=1e-4)
    assert np.allclose(observation[4:], hidden[0, -1].numpy(), atol=1e-4)


@pytest.mark.slow
def test_the_real_game_goes_to_another_process_before_it_begins(world: wm.World, tmp_path: Path) -> None:
    env = world.real_env("zh", "rgb_array")
    (tmp_path / "env").write_bytes(pickle.dumps(env))
    look = "import pickle; print(pickle.load(open('env', 'rb')).reset(seed=3)[0][:4].tolist())"
    done = subprocess.run(
        [sys.executable, "-c", look], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    expected = copy.deepcopy(env).reset(seed=3)[0]
    assert np.allclose(json.loads(done.stdout), expected[:4], atol=1e-5)
    assert (env.reset(seed=3)[0] == expected).all()
    for take in (pickle.dumps, copy.deepcopy):
        with pytest.raises(
            UsageProblem, match=r"cannot be pickled or copied after reset\(\), .* or let World.real_env"
        ):
            take(env)


def test_the_picture_of_a_dream_is_vs_and_that_of_the_game_its_frame(world: wm.World) -> None:
    dream, real = world.env("z", "rgb_array"), world.real_env("pixels", "rgb_array")
    z, _ = dream.reset(seed=0)
    assert (dream.render() == world.decode(z)).all()
    frame, _ = real.reset(seed=0)
    assert (real.render() == frame).all()
    assert world.env().render() is None
    assert world.real_env().render() is None
    dreams = world.vector_env(3, "z", "rgb_array")
    z, _ = dreams.reset(seed=0)
    pictures = dreams.render()
    assert pictures is not None
    for picture in (dream.render(), real.render(), *pictures):
        assert picture is not None
        picture[:] = 0  # a program may draw on it
    assert (real.render() == frame).all()
    assert (np.array(dreams.render()) == world.decode(z)).all()


def test_a_dream_is_truncated_at_the_environments_limit(world: wm.World) -> None:
    assert world.env()._config.max_steps == 24
    assert world.env(max_steps=7)._config.max_steps == 7


def test_what_is_no_action_is_refused(world: wm.World) -> None:
    for env in (world.env(), world.real_env()):
        with pytest.raises(gym.error.ResetNeeded):
            env.step(0)
        env.reset(seed=0)
        for wrong in (3, -1, 0.5):
            with pytest.raises(UsageProblem, match=rf"the action is {wrong}; expected an integer from 0 to 2\.$"):
                env.step(wrong)
    dreams = world.vector_env(2)
    dreams.reset(seed=0)
    with pytest.raises(UsageProblem, match="an action is 3"):
        dreams.step([0, 3])
    env = world.env()
    env.reset(seed=0)
    for step in (dreams.step, env.step):
        with pytest.raises(UsageProblem, match="a list that NumPy cannot take"):
            step([[0], [0, 1]])


def test_an_action_may_be_a_tensor(world: wm.World) -> None:
    """Warnings are errors in this suite."""
    for env in (world.env(), world.real_env()):
        env.reset(seed=0)
        expected = env.step(2)[0]
        env.reset(seed=0)
        assert (env.step(torch.tensor(2))[0] == expected).all()


def test_gymnasium_makes_them_by_their_ids(run: Path) -> None:
    made: Any = gym.make("wm.world:wm/Dream-v0", run=run, obs="zh", temperature=0.5)
    assert made.observation_space.shape == (20,)
    assert made.unwrapped._config.temperature == 0.5
    vector: Any = gym.make_vec("wm/Dream-v0", num_envs=5, run=str(run), obs="pixels")
    assert vector.reset(seed=0)[0].shape == (5, 32, 32, 3)
    assert vector.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert gym.make("wm/Real-v0", run=run).reset(seed=0)[0].shape == (4,)
    film = gym.make("wm/Dream-v0", run=run, render_mode="rgb_array_list")
    film.reset(seed=0)
    assert [picture.shape for picture in film.render()] == [(32, 32, 3)]  # type: ignore[union-attr]


@pytest.mark.parametrize("imports", ["import gymnasium, wm", "import wm, gymnasium, wm.world"])
def test_the_ids_are_registered_without_torch(imports: str) -> None:
    """Before the colon of an id, gymnasium imports `wm` or `wm.world`."""
    known = "{'wm/Dream-v0', 'wm/Real-v0'} <= set(gymnasium.registry)"
    assert python(f"import sys; {imports}; print({known}, 'torch' in sys.modules)") == "True False"


def test_the_serve_is_pressed_in_the_real_game_as_the_command_does() -> None:
    """And M is told what was done: h is that of the serve, whatever the policy wanted."""
    env = EnvConfig("Breakout", size=32, render="gymnasium")
    vae = VaeConfig("small", 32, 3, 4, env.as_json())
    mdnrnn = MdnRnnConfig(4, ActionSpace(count=4).as_json(), 8, 2, 10.0)
    v = TrainedVae(None, vae, vae.build())  # type: ignore[arg-type] # no artifact
    m = TrainedMdnRnn(None, mdnrnn, mdnrnn.build().eval().requires_grad_(False))  # type: ignore[arg-type]
    view = View.of_latents("zh", m.model, torch.full((4,), -50.0), torch.full((4,), 50.0))
    real = RealEnv(env.make(), v, m, view)
    seen = {}
    for wanted in (0, 1, 3):
        real.reset(seed=0)
        served = [real.step(wanted) for _ in range(3)]
        assert [step[4]["served"] for step in served] == [True, True, False]
        seen[wanted] = [step[0][4:].tolist() for step in served]
    assert seen[0][1] == seen[1][1] == seen[3][1]
    assert seen[0][2] != seen[3][2]
    real.close()


@KINDS
@pytest.mark.parametrize("name", ["Dream", "Real"])
@pytest.mark.slow
def test_what_gymnasium_makes_of_a_run_with_a_box_of_actions_passes_its_checker(
    steered: Path, name: str, obs: str
) -> None:
    made: Any = gym.make(f"wm/{name}-v0", run=steered, obs=obs, render_mode="rgb_array")
    assert made.action_space == gym.spaces.Box(np.array([-1, 0], np.float32), np.ones(2, np.float32))
    check_env(made.unwrapped)


def test_a_dream_of_continuous_actions_passes_the_checker() -> None:
    space, mdnrnn = ActionSpace(low=(-1.0, 0.0), high=(1.0, 1.0)), MdnRnn(4, 2, 8, 2, 10.0).requires_grad_(False)
    initial = InitialStates.at_start(mdnrnn, torch.randn(9, 4), 2, torch.full((4,), -3.0), torch.full((4,), 3.0))
    env = DreamEnv(DreamConfig(mdnrnn, initial, space, 1.0, 20), space.to_gymnasium())
    check_env(env, skip_render_check=True)
    with pytest.raises(UsageProblem, match="expected finite numbers"):
        env.step([0.5])
