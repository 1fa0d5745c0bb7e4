"""What an environment knows beyond its pixels: positions and speeds, for probes only, never for training.

Atari positions are in pixels of the 210x160 screen, decoded from RAM and checked against the picture by a test; NaN
means that the thing is not on the screen.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.float32]


@dataclass(frozen=True)
class Probe:
    """Names of the labels and the function that reads them from (unwrapped environment, observation)."""

    names: tuple[str, ...]
    function: Callable[[Any, Any], list[float]]

    def read(self, env: Any, observation: Any) -> Labels:
        """The labels as (L,) float32."""
        return np.array(self.function(env, observation), np.float32)


def _pong(env: Any, _: Any) -> list[float]:
    ram = env.ale.getRAM().astype(float)
    in_play = ram[54] > 0 and 50 < ram[49] < 209
    ball = [ram[49] - 48.5, 0.9987 * ram[54] - 12.4] if in_play else [math.nan, math.nan]
    return [*ball, ram[51] - 6.5, ram[50] - 7.5]


def _breakout(env: Any, _: Any) -> list[float]:
    ram = env.ale.getRAM().astype(float)
    in_play = 22 < ram[101] < 180
    ball = [ram[99] - 48.5, 0.998 * ram[101] + 10.7] if in_play else [math.nan, math.nan]
    return [*ball, ram[72] - 39.5]


def _observation(_: Any, observation: Any) -> list[float]:
    return [float(value) for value in observation]


def _car_racing(env: Any, _: Any) -> list[float]:
    hull = env.car.hull
    vx, vy = hull.linearVelocity
    track = np.array([(beta, x, y) for _, beta, x, y in env.track])
    x, y = hull.position
    nearest = int(np.argmin((track[:, 1] - x) ** 2 + (track[:, 2] - y) ** 2))
    beta, track_x, track_y = track[nearest]
    # beta is the direction of the road; the car's own axis is y, so both are angles against it.
    heading = math.remainder(hull.angle - beta, 2 * math.pi)
    offset = (x - track_x) * math.cos(beta) + (y - track_y) * math.sin(beta)
    return [math.hypot(vx, vy), hull.angularVelocity, env.car.wheels[0].joint.angle, heading, offset]


pong = Probe(("ball_x", "ball_y", "player_y", "enemy_y"), _pong)
breakout = Probe(("ball_x", "ball_y", "paddle_x"), _breakout)
lunar_lander = Probe(("x", "y", "vx", "vy", "angle", "angular_velocity", "left_leg", "right_leg"), _observation)
car_racing = Probe(("speed", "yaw_rate", "steering", "heading", "track_offset"), _car_racing)
cart_pole = Probe(("x", "vx", "angle", "angular_velocity"), _observation)
acrobot = Probe(("cos_1", "sin_1", "cos_2", "sin_2", "velocity_1", "velocity_2"), _observation)
