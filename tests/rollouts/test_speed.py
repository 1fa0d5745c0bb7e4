from collections.abc import Callable

import pytest

from tests.conftest import TINY
from wm.envs.registry import EnvConfig
from wm.models.mdnrnn.network import MdnRnn
from wm.models.vae.networks import build
from wm.rollouts.speed import ENV_STEPS, SHORTEST, measure_env


def clock(tick: float) -> Callable[[], float]:
    """A clock that advances by `tick` seconds every time it is read."""
    now = [0.0]

    def read() -> float:
        now[0] += tick
        return now[0]

    return read


def test_a_step_costs_the_measured_time_over_the_steps_played() -> None:
    speed = measure_env(EnvConfig(TINY, size=32), clock(4.0))
    assert speed.seconds == pytest.approx(4.0 / ENV_STEPS)
    assert speed.frame_shape == (32, 32, 3)
    assert speed.space.count == 3


def test_the_longest_episode_is_counted_in_actions() -> None:
    one, four = (measure_env(EnvConfig(TINY, size=32, action_repeat=repeat), clock(1.0)) for repeat in (1, 4))
    assert four.longest == -(-one.longest // 4)


def test_the_models_add_their_time_shared_by_the_environments_of_a_batch() -> None:
    speed = measure_env(EnvConfig(TINY, size=32), clock(0.0))
    vae = build("small", 32, 3, 4).requires_grad_(False)
    mdnrnn = MdnRnn(4, speed.space.width, 8, 2, 1.0)
    with_models = speed.with_models(vae, mdnrnn, clock(8.0))
    assert with_models.seconds == pytest.approx(2.0)  # encoding and predicting, 8 s each, for 8 environments


def test_a_duration_is_a_range_shared_by_the_workers() -> None:
    speed = measure_env(EnvConfig(TINY, size=32), clock(float(ENV_STEPS)))
    assert speed.duration(600, 3) == pytest.approx((SHORTEST * 200, 200))
