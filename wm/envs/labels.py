"""What an environment knows beyond its pixels: positions and speeds, for probes only, never for training.

Atari positions are in pixels of the 210x160 screen, decoded from RAM and checked against the picture by a test; NaN
means that the thing is not on the screen.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ABOVE_THE_PICTURE = 1.42  # of LunarLander's y
OUT_OF_SIGHT = 12.0  # from the middle of CarRacing's road, which is 13 wide; about 18 are seen to each side

Reader = Callable[[Any], Sequence[float]]


@dataclass(frozen=True)
class Probe:
    """Names of the labels, and how to get a reader of them: (unwrapped environment) -> (observation) -> values.
    `hidden` are those that a single frame does not show, `velocities` those that tell a motion, `moving` those whose
    difference from the row before is one. `within` bounds labels outside of which a reading means little: no linear
    probe reads how a wreck has come to lie."""

    names: tuple[str, ...]
    bind: Callable[[Any], Reader]
    hidden: tuple[str, ...] = ()
    velocities: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()
    within: tuple[tuple[str, float], ...] = ()


def _pong(env: Any) -> Reader:
    def read(_: Any) -> list[float]:
        ram = env.ale.getRAM()
        x, y = int(ram[49]), int(ram[54])
        ball = [x - 48.5, 0.9987 * y - 12.4] if y > 0 and 50 < x < 209 else [math.nan, math.nan]
        enemy = int(ram[50]) - 7.5
        return [*ball, int(ram[51]) - 6.5, enemy if enemy > 26 else math.nan]  # between points it is parked above

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


def _lander(_: Any) -> Reader:
    def read(observation: Any) -> list[float]:
        x, y, vx, vy, angle, *rest = observation
        if abs(x) > 1 or y > ABOVE_THE_PICTURE:
            x = y = angle = math.nan
        return [x, y, vx, vy, angle, *rest]

    return read


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
        # As seen from the car, whose axis is y: how far the road is to the right, and its angle, which is the same
        # whether one drives along it or against it.
        offset = (track_x - x) * math.cos(hull.angle) + (track_y - y) * math.sin(hull.angle)
        heading = math.remainder(hull.angle - beta, math.pi)
        if math.hypot(track_x - x, track_y - y) > OUT_OF_SIGHT:
            heading = offset = math.nan
        return [math.hypot(vx, vy), hull.angularVelocity, env.car.wheels[0].joint.angle, heading, offset]


pong = Probe(("ball_x", "ball_y", "player_y", "enemy_y"), _pong, moving=("ball_x", "ball_y"))
breakout = Probe(("ball_x", "ball_y", "paddle_x"), _breakout, moving=("ball_x", "ball_y"))
lunar_lander = Probe(
    ("x", "y", "vx", "vy", "angle", "angular_velocity", "left_leg", "right_leg"),
    _lander,
    hidden=("vx", "vy", "angular_velocity", "left_leg", "right_leg"),
    velocities=("vx", "vy", "angular_velocity"),
    within=(("angle", math.pi / 4),),
)
car_racing = Probe(
    ("speed", "yaw_rate", "steering", "heading", "track_offset"), _CarRacing, velocities=("speed", "yaw_rate")
)
cart_pole = Probe(
    ("x", "vx", "angle", "angular_velocity"),
    _observation,
    hidden=("vx", "angular_velocity"),
    velocities=("vx", "angular_velocity"),
)
acrobot = Probe(
    ("cos_1", "sin_1", "cos_2", "sin_2", "velocity_1", "velocity_2"),
    _observation,
    hidden=("velocity_1", "velocity_2"),
    velocities=("velocity_1", "velocity_2"),
)


def _catch(env: Any) -> Reader:
    return lambda _: [float(env.ball), float(env.row), float(env.paddle)]


catch = Probe(("ball_x", "ball_y", "paddle_x"), _catch)
