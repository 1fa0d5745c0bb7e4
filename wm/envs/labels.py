"""What an environment knows beyond its pixels: positions and speeds, for probes only, never for training.

Atari positions are in pixels of the 210x160 screen, decoded from RAM and checked against the picture by a test; NaN
means that the thing is not on the screen.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Reader = Callable[[Any], Sequence[float]]


@dataclass(frozen=True)
class Probe:
    """Names of the labels, and how to get a reader of them: (unwrapped environment) -> (observation) -> values.
    `hidden` are those that a single frame does not show."""

    names: tuple[str, ...]
    bind: Callable[[Any], Reader]
    hidden: tuple[str, ...] = ()


def _pong(env: Any) -> Reader:
    def read(_: Any) -> list[float]:
        ram = env.ale.getRAM()
        x, y = int(ram[49]), int(ram[54])
        ball = [x - 48.5, 0.9987 * y - 12.4] if y > 0 and 50 < x < 209 else [math.nan, math.nan]
        return [*ball, int(ram[51]) - 6.5, int(ram[50]) - 7.5]

    return read


def _breakout(env: Any) -> Reader:
    def read(_: Any) -> list[float]:
        ram = env.ale.getRAM()
        x, y = int(ram[99]), int(ram[101])
        ball = [x - 48.5, 0.998 * y + 10.7] if 22 < y < 180 else [math.nan, math.nan]
        return [*ball, int(ram[72]) - 39.5]

    return read


def _observation(_: Any) -> Reader:
    return lambda observation: observation


class _CarRacing:
    """Keeps the track of the episode as an array."""

    def __init__(self, env: Any) -> None:
        self._env, self._track = env, None

    def __call__(self, _: Any) -> list[float]:
        env = self._env
        if env.track is not self._track:
            self._track = env.track
            self._road = np.array([(beta, x, y) for _, beta, x, y in env.track])
        hull = env.car.hull
        vx, vy = hull.linearVelocity
        x, y = hull.position
        nearest = int(np.argmin((self._road[:, 1] - x) ** 2 + (self._road[:, 2] - y) ** 2))
        beta, track_x, track_y = self._road[nearest].tolist()
        # beta is the direction of the road; the car's own axis is y, so both are angles against it.
        heading = math.remainder(hull.angle - beta, 2 * math.pi)
        offset = (x - track_x) * math.cos(beta) + (y - track_y) * math.sin(beta)
        return [math.hypot(vx, vy), hull.angularVelocity, env.car.wheels[0].joint.angle, heading, offset]


pong = Probe(("ball_x", "ball_y", "player_y", "enemy_y"), _pong)
breakout = Probe(("ball_x", "ball_y", "paddle_x"), _breakout)
lunar_lander = Probe(
    ("x", "y", "vx", "vy", "angle", "angular_velocity", "left_leg", "right_leg"),
    _observation,
    hidden=("vx", "vy", "angular_velocity", "left_leg", "right_leg"),
)
car_racing = Probe(("speed", "yaw_rate", "steering", "heading", "track_offset"), _CarRacing)
cart_pole = Probe(("x", "vx", "angle", "angular_velocity"), _observation, hidden=("vx", "angular_velocity"))
acrobot = Probe(
    ("cos_1", "sin_1", "cos_2", "sin_2", "velocity_1", "velocity_2"), _observation, hidden=("velocity_1", "velocity_2")
)
