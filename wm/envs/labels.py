"""Labels: positions and speeds that an environment knows, for linear probes only, never for training.

Atari's are in pixels of the 210x160 screen, decoded from RAM; a test compares them with the screen. NaN means that the
object is not on the screen. The last label of a game with lives is `lives`. It is no position: M learns from it when a
life is lost, which every Atari agent may know.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TOP_OF_FRAME = 1.42  # LunarLander's y above which the lander is not visible
OUT_OF_SIGHT = 12.0  # from the middle of CarRacing's road, which is 13 wide; a frame shows about 18 to each side

LIVES = "lives"

Reader = Callable[[Any], Sequence[float]]


@dataclass(frozen=True)
class Probe:
    """Names of the labels, and a factory of their readers: (unwrapped environment) -> (observation) -> values.

    `hidden` labels are not visible in a single frame. `velocities` are labels that are velocities, `moving` those whose
    difference from the previous row is one. `within` limits labels: rows outside are not probed, because no linear
    probe decodes the angle of a crashed lander.
    """

    names: tuple[str, ...]
    bind: Callable[[Any], Reader]
    hidden: tuple[str, ...] = ()
    velocities: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()
    within: tuple[tuple[str, float], ...] = ()


def _ram_reader(env: Any) -> Callable[[], memoryview]:
    """A reader of the emulator's RAM into one buffer, whose bytes are Python's integers."""
    ram = env.ale.getRAM()
    view = memoryview(ram)

    def read() -> memoryview:
        env.ale.getRAM(ram)
        return view

    return read


def _pong(env: Any) -> Reader:
    read_ram = _ram_reader(env)

    def read(_: Any) -> list[float]:
        ram = read_ram()
        x, y = ram[49], ram[54]
        # Offsets between RAM and screen, fitted to the screen. Outside of these values no ball is drawn.
        ball = [x - 48.5, 0.9987 * y - 12.4] if y > 0 and 50 < x < 209 else [math.nan, math.nan]
        enemy = ram[50] - 7.5
        return [*ball, ram[51] - 6.5, enemy if enemy > 26 else math.nan]  # between points it is above the screen

    return read


def _breakout(env: Any) -> Reader:
    read_ram = _ram_reader(env)

    def read(_: Any) -> list[float]:
        ram = read_ram()
        x, y = ram[99], ram[101]
        # As in Pong: fitted to the screen; beyond these rows RAM keeps a ball that is not drawn.
        ball = [x - 48.5, 0.998 * y + 10.7] if 22 < y < 180 else [math.nan, math.nan]
        return [*ball, ram[72] - 39.5]

    return read


def _observation(_: Any) -> Reader:
    return lambda observation: observation


def _lander(_: Any) -> Reader:
    def read(observation: Any) -> list[float]:
        x, y, vx, vy, angle, *rest = observation
        if abs(x) > 1 or y > TOP_OF_FRAME:
            x = y = angle = math.nan
        return [x, y, vx, vy, angle, *rest]

    return read


class _CarRacing:
    """Reads a car's labels; keeps the episode's track as an array."""

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
        # The nearest point of the road's middle: squared distances have the same minimum as distances.
        nearest = int(np.argmin((self._road[:, 1] - x) ** 2 + (self._road[:, 2] - y) ** 2))
        beta, track_x, track_y = self._road[nearest].tolist()
        # In the car's coordinates, whose forward axis is y: the distance to the road on the right, and the road's
        # angle, which is the same for both driving directions.
        offset = (track_x - x) * math.cos(hull.angle) + (track_y - y) * math.sin(hull.angle)
        heading = math.remainder(hull.angle - beta, math.pi)
        if math.hypot(track_x - x, track_y - y) > OUT_OF_SIGHT:
            heading = offset = math.nan
        return [math.hypot(vx, vy), hull.angularVelocity, env.car.wheels[0].joint.angle, heading, offset]


def lives_at_start(game: Any) -> int:
    """The lives that an Atari game begins with; 0 in one without."""
    lives: int = game.ale.lives()
    return lives


pong = Probe(("ball_x", "ball_y", "player_y", "enemy_y"), _pong, moving=("ball_x", "ball_y"))
breakout = Probe(("ball_x", "ball_y", "paddle_x"), _breakout, moving=("ball_x", "ball_y"))
# Speeds and contacts are not in one frame, so they are no labels of V's probe. Beyond 45 degrees a lander has tumbled.
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
