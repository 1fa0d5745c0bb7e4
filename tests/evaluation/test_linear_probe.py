import math

import pytest

from wm.envs.registry import EnvConfig
from wm.errors import BadData
from wm.evaluation.linear_probe import judge
from wm.evaluation.probe import ProbeResult


def readings(**r2: float) -> dict[str, ProbeResult]:
    return {name: ProbeResult(value, 1.5, 0.02, 100) for name, value in r2.items()}


def test_the_worst_label_that_a_frame_shows_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    found = readings(x=0.95, y=0.97, vx=0.1, angle=math.nan)
    assert "reads x 0.95, y 0.97, vx 0.10" in judge(found, EnvConfig("LunarLander"), 0.9)
    assert capsys.readouterr().err == ""
    judge(readings(x=0.7), EnvConfig("LunarLander"), 0.5)
    assert "warning: V shows x with R2 0.70 (error 1.5; untrained 0.02)" in capsys.readouterr().err
    with pytest.raises(BadData, match=r"V shows ball_x with R2 0\.30 .* --require-probe asks for 0\.5"):
        judge(readings(ball_x=0.3, ball_y=0.9), EnvConfig("Pong"), 0.5)


def test_a_label_that_is_not_read_at_all_only_warns_unless_it_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    judge(readings(x=-0.2), EnvConfig("LunarLander"), 0.0)
    assert "warning: V shows x with R2 -0.20" in capsys.readouterr().err


def test_without_labels_nothing_is_said() -> None:
    assert judge({}, EnvConfig("MountainCar-v0"), 0.9) == ""


def test_labels_of_which_there_are_too_few_are_not_told() -> None:
    assert judge(readings(x=0.95, angle=math.nan), EnvConfig("LunarLander"), 0.0).endswith("reads x 0.95")
    assert judge(readings(x=math.nan), EnvConfig("LunarLander"), 0.0) == "too few held-out frames to probe"
