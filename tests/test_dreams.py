import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from wm.actions import ActionSpace
from wm.dreams import DreamEnv, Dreams, Starts, imagine, warm_starts
from wm.models.controller import Controller
from wm.models.mdnrnn import MdnRnn

SPACE = ActionSpace(count=3)


@pytest.fixture
def mdnrnn() -> MdnRnn:
    torch.manual_seed(0)
    return MdnRnn(4, 3, 8, 2, 10.0).requires_grad_(False)


def starts(count: int = 6) -> Starts:
    return Starts(torch.randn(count, 4), (torch.zeros(count, 8), torch.zeros(count, 8)))


@pytest.mark.filterwarnings("ignore")
def test_gymnasiums_own_checker_accepts_the_dream(mdnrnn: MdnRnn) -> None:
    env = DreamEnv(mdnrnn, starts(), SPACE, gym.spaces.Discrete(3), 1.0, 50)
    check_env(env, skip_render_check=True)


def test_a_seed_decides_a_dream(mdnrnn: MdnRnn) -> None:
    env = DreamEnv(mdnrnn, starts(), SPACE, gym.spaces.Discrete(3), 1.0, 20)

    def play(seed: int) -> list[float]:
        env.reset(seed=seed)
        return [env.step(1)[1] for _ in range(5)]

    assert play(3) == play(3)
    assert play(3) != play(4)


def test_a_dream_is_truncated_at_its_limit_and_terminated_by_the_end_head(mdnrnn: MdnRnn) -> None:
    with torch.no_grad():
        mdnrnn.heads.bias[-1] = -60.0
    env = DreamEnv(mdnrnn, starts(), SPACE, gym.spaces.Discrete(3), 1.0, 4)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(4)] == [(False, False)] * 3 + [(False, True)]
    with torch.no_grad():
        mdnrnn.heads.bias[-1] = 60.0
    env.reset(seed=0)
    assert env.step(0)[2:4] == (True, False)


def test_a_start_remembers_its_context(mdnrnn: MdnRnn) -> None:
    z, actions = torch.randn(2, 4, 4), torch.eye(3)[torch.zeros(2, 3, dtype=torch.long)]
    warm, cold = warm_starts(mdnrnn, z, actions), warm_starts(mdnrnn, z[:, -1:], actions[:, :0])
    assert torch.equal(warm.z, cold.z)
    assert not torch.equal(warm.state[0], cold.state[0])


def test_many_dreams_are_played_at_once_and_account_stops_at_their_end(mdnrnn: MdnRnn) -> None:
    with torch.no_grad():
        mdnrnn.heads.bias[-1] = 60.0
    controller = Controller(12, SPACE, "argmax")
    found = imagine(mdnrnn, controller, torch.zeros(6, controller.parameters), starts(), 1.0, 30, 0)
    assert found.lengths.tolist() == [1] * 6
    assert found.ended.all()


def test_temperature_widens_the_dream(mdnrnn: MdnRnn) -> None:
    spread = []
    for temperature in (0.1, 1.0, 4.0):
        dreams = Dreams(mdnrnn, Starts(torch.zeros(500, 4), mdnrnn.start(500)), temperature, 0)
        dreams.step(torch.eye(3)[torch.zeros(500, dtype=torch.long)])
        spread.append(float(dreams.z.std(0).mean()))
    assert spread[0] < spread[1] < spread[2]
    assert np.isfinite(spread).all()
