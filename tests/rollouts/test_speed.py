from collections.abc import Callable

import pytest

from tests.conftest import TINY
from wm.envs.pixel_env import PixelEnv
from wm.envs.registry import EnvConfig
from wm.errors import EnvironmentFault
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
    speed = measure_env(EnvConfig(TINY, size=32), clock(0.004))
    assert speed.seconds == pytest.approx(0.004)
    assert speed.frame_shape == (32, 32, 3)
    assert speed.space.count == 3


@pytest.mark.parametrize(("tick", "steps"), [(0.004, ENV_STEPS), (0.5, 10)])
def test_a_slow_environment_is_not_played_for_long(tick: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    step = PixelEnv.step
    monkeypatch.setattr(PixelEnv, "step", lambda env, action: played.append(action) or step(env, action))
    assert measure_env(EnvConfig(TINY, size=32), clock(tick)).seconds == pytest.approx(tick)
    assert len(played) == steps


def test_every_episode_has_a_seed_and_what_an_environment_raises_is_one_sentence() -> None:
    measure_env(EnvConfig("tests.odd_envs:DemandsSeed-v0", size=32), clock(0.0))
    with pytest.raises(EnvironmentFault, match=r"LateExit-v0 raised SystemExit: 0 during an episode; fix"):
        measure_env(EnvConfig("tests.odd_envs:LateExit-v0", size=32), clock(0.0))


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
    speed = measure_env(EnvConfig(TINY, size=32), clock(1.0))
    assert speed.duration(600, 3) == pytest.approx((SHORTEST * 200, 200))
