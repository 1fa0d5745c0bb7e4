import copy
import pickle
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from wm.actions import ActionSpace
from wm.dreams.env import DreamConfig, DreamEnv, Dreams, DreamVectorEnv, InitialStates, warm_up
from wm.errors import UsageProblem
from wm.models.mdnrnn.network import MdnRnn

SPACE = ActionSpace(count=3)
FREE = torch.full((4,), -1e9), torch.full((4,), 1e9)


@pytest.fixture
def mdnrnn() -> MdnRnn:
    torch.manual_seed(0)
    return MdnRnn(4, 3, 8, 2, 10.0).requires_grad_(False)


def initial_states(count: int = 6) -> InitialStates:
    z = torch.randn(count, 4)
    return InitialStates(z, (torch.zeros(count, 8), torch.zeros(count, 8)), *FREE, z, torch.zeros(count, 3))


def config(mdnrnn: MdnRnn, max_steps: int) -> DreamConfig:
    return DreamConfig(mdnrnn, initial_states(), SPACE, 1.0, max_steps)


def single(mdnrnn: MdnRnn, max_steps: int) -> DreamEnv:
    return DreamEnv(config(mdnrnn, max_steps), gym.spaces.Discrete(3))


def test_gymnasiums_checker_accepts_the_dream(mdnrnn: MdnRnn) -> None:
    env = single(mdnrnn, 50)
    check_env(env, skip_render_check=True)


def test_the_bounds_of_observations_hold_initial_states_and_all_that_follows(mdnrnn: MdnRnn) -> None:
    z = torch.tensor([[3.0, 0.0, 0.0, -2.0]])
    tight = InitialStates.at_start(mdnrnn, z, 3, torch.full((4,), -0.5), torch.full((4,), 0.5))
    env = DreamEnv(DreamConfig(mdnrnn, tight, SPACE, 4.0, 50), gym.spaces.Discrete(3))
    assert env.observation_space.low.tolist() == [-0.5, -0.5, -0.5, -2.0]
    assert env.observation_space.high.tolist() == [3.0, 0.5, 0.5, 0.5]
    assert env.reset(seed=0)[0].tolist() == z[0].tolist()
    assert all(env.step(step % 3)[0] in env.observation_space for step in range(10))


def test_without_v_there_are_no_pictures(mdnrnn: MdnRnn) -> None:
    with pytest.raises(UsageProblem, match="render_mode is 'rgb_array', which needs V"):
        DreamEnv(config(mdnrnn, 5), gym.spaces.Discrete(3), render_mode="rgb_array")


def test_a_seed_decides_a_dream(mdnrnn: MdnRnn) -> None:
    env = single(mdnrnn, 20)

    def play(seed: int) -> list[float]:
        env.reset(seed=seed)
        return [env.step(1)[1] for _ in range(5)]

    assert play(3) == play(3)
    assert play(3) != play(4)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_dream_goes_on_in_a_copy_as_it_would_have_gone_on(
    mdnrnn: MdnRnn, copied: Callable[[DreamEnv], DreamEnv]
) -> None:
    env = single(mdnrnn, 20)
    env.reset(seed=3)
    env.step(1)
    other = copied(env)
    assert [other.step(2)[1] for _ in range(5)] == [env.step(2)[1] for _ in range(5)]


def test_a_dream_is_truncated_at_its_limit_and_terminated_by_the_end_head(mdnrnn: MdnRnn) -> None:
    with torch.no_grad():
        mdnrnn.heads.bias[-1] = -60.0
    env = single(mdnrnn, 4)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]
    with torch.no_grad():
        mdnrnn.heads.bias[-1] = 60.0
    env.reset(seed=0)
    assert env.step(0)[2:4] == (True, False)


def test_the_state_of_m_depends_on_the_context(mdnrnn: MdnRnn) -> None:
    z, actions = torch.randn(2, 4, 4), torch.eye(3)[torch.zeros(2, 3, dtype=torch.long)]
    warm, cold = warm_up(mdnrnn, z, actions, *FREE), warm_up(mdnrnn, z[:, -1:], actions[:, :0], *FREE)
    assert torch.equal(warm.z, cold.z)
    assert not torch.equal(warm.state[0], cold.state[0])


def test_temperature_widens_the_dream(mdnrnn: MdnRnn) -> None:
    spread = []
    for temperature in (0.1, 1.0, 4.0):
        dreams = Dreams(mdnrnn, InitialStates.at_start(mdnrnn, torch.zeros(500, 4), 3, *FREE), temperature, 0)
        dreams.step(torch.eye(3)[torch.zeros(500, dtype=torch.long)])
        spread.append(float(dreams.z.std(0).mean()))
    assert spread[0] < spread[1] < spread[2]
    assert np.isfinite(spread).all()


def vector(mdnrnn: MdnRnn, count: int, max_steps: int = 4) -> DreamVectorEnv:
    return DreamVectorEnv(config(mdnrnn, max_steps), gym.spaces.Discrete(3), count)


def test_the_vector_environment_follows_its_spaces_and_its_seed(mdnrnn: MdnRnn) -> None:
    torch.manual_seed(1)
    env = vector(mdnrnn, 1000)
    observed, info = env.reset(seed=0)
    assert observed in env.observation_space
    assert info["hidden"].shape == (1000, 8)
    for _ in range(3):
        observed, rewards, terminated, truncated, _ = env.step(env.action_space.sample())
    assert observed in env.observation_space
    assert rewards.shape == terminated.shape == truncated.shape == (1000,)
    first = env.reset(seed=0)[0]
    assert np.array_equal(env.reset(seed=0)[0], first)
    assert not np.array_equal(env.reset(seed=1)[0], first)


@pytest.mark.parametrize("actions", [[0], [0, 1], [0, 1, 2, 0]])
def test_another_number_of_actions_than_dreams_is_refused(mdnrnn: MdnRnn, actions: list[int]) -> None:
    env = vector(mdnrnn, 3)
    env.reset(seed=0)
    with pytest.raises(UsageProblem, match=rf"{len(actions)} actions are given for 3 dreams; expected one for each\."):
        env.step(actions)


def test_a_dream_that_has_ended_is_reset_by_the_next_step(mdnrnn: MdnRnn) -> None:
    with torch.no_grad():
        mdnrnn.heads.bias[-1] = -60.0
    env = vector(mdnrnn, 5, max_steps=3)
    env.reset(seed=0)
    truncated = [env.step(np.zeros(5, int))[3].all() for _ in range(3)]
    assert truncated == [False, False, True]
    observed, rewards, terminated, cut, _ = env.step(np.zeros(5, int))
    known = env._config.initial_states.z.numpy()
    assert all((row == known).all(1).any() for row in observed)
    assert (rewards == 0).all()
    assert not terminated.any()
    assert not cut.any()


def test_with_same_step_a_dream_that_has_ended_is_reset_at_once(mdnrnn: MdnRnn) -> None:
    mode, dreams = gym.vector.AutoresetMode.SAME_STEP, config(mdnrnn, 3)
    same = DreamVectorEnv(dreams, gym.spaces.Discrete(3), 5, autoreset_mode=mode)
    following = DreamVectorEnv(dreams, gym.spaces.Discrete(3), 5)
    assert same.metadata["autoreset_mode"] == mode
    same.reset(seed=0)
    following.reset(seed=0)
    known = same._config.initial_states.z.numpy()
    for _ in range(3):
        observed, rewards, terminated, truncated, info = same.step(np.ones(5, int))
        last, expected, *ends, _ = following.step(np.ones(5, int))
        ended = terminated | truncated
        assert (rewards == expected).all()
        assert (ended == ends[0] | ends[1]).all()
        if ended.any():
            break
    assert (info["_final_obs"] == ended).all()
    for row in range(5):
        assert (last[row] == (info["final_obs"][row] if ended[row] else observed[row])).all()
        assert (observed[row] == known).all(1).any() == ended[row]
    with pytest.raises(UsageProblem, match="expected NEXT_STEP or SAME_STEP"):
        DreamVectorEnv(config(mdnrnn, 3), gym.spaces.Discrete(3), 5, autoreset_mode=gym.vector.AutoresetMode.DISABLED)


def test_a_gymnasium_wrapper_fits_the_vector_environment(mdnrnn: MdnRnn) -> None:
    env = gym.wrappers.vector.RecordEpisodeStatistics(vector(mdnrnn, 4, max_steps=2))
    env.reset(seed=0)
    env.step(np.zeros(4, int))
    assert (env.step(np.zeros(4, int))[4]["episode"]["l"] == 2).all()


def test_the_latents_of_a_dream_stay_within_their_bounds(mdnrnn: MdnRnn) -> None:
    low, high = torch.full((4,), -0.5), torch.full((4,), 0.25)
    dreams = Dreams(mdnrnn, InitialStates.at_start(mdnrnn, torch.zeros(50, 4), 3, low, high), 4.0, 0)
    for _ in range(10):
        dreams.step(torch.eye(3)[torch.zeros(50, dtype=torch.long)])
    assert float(dreams.z.min()) == -0.5
    assert float(dreams.z.max()) == 0.25


def test_a_vector_of_one_dreams_as_the_single_environment_does(mdnrnn: MdnRnn) -> None:
    torch.manual_seed(1)
    dreams = config(mdnrnn, 50)
    one, many = DreamEnv(dreams, gym.spaces.Discrete(3)), DreamVectorEnv(dreams, gym.spaces.Discrete(3), 1)
    assert np.array_equal(one.reset(seed=3)[0], many.reset(seed=3)[0][0])
    for _ in range(5):
        assert np.array_equal(one.step(1)[0], many.step(np.array([1]))[0][0])
