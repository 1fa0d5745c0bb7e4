"""CarRacing's dashboard, drawn as gymnasium draws it. Bars and digits are cached, because they repeat."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pygame
from gymnasium.envs.box2d import car_dynamics

from wm.envs.renderers.car_view import DASHBOARD, HEIGHT, STRIP, WIDTH, shrink
from wm.envs.resize import Frame


def render_dashboard(car: car_dynamics.Car, episode_return: float) -> Frame:
    """The dashboard as (rows, columns, 3) of gymnasium's frame. Its bars show the car's speed, the wheels' speeds, the
    steering angle and the yaw rate; its digits show the return."""
    strip = _draw_digits(f"{episode_return:04.0f}").copy()

    def bar(value: float, left: float, right: float, top: float, bottom: float, *color: int) -> list[_Bar]:
        # As gymnasium: smaller values have no bar. Sizes and colours below are those of its _render_indicators.
        return [_Bar(int(left), int(right), int(top), int(bottom), color)] if abs(value) > 1e-4 else []

    s, h = WIDTH / 40, DASHBOARD / 5
    vx, vy = car.hull.linearVelocity
    speed = math.sqrt(vx * vx + vy * vy)
    groups = [bar(speed, 5 * s, 6 * s, 4 * h - 0.02 * speed * h, 4 * h, 255, 255, 255), []]
    for place, wheel in enumerate(car.wheels, start=7):  # the wheels' bars share pixels
        top = 4 * h - 0.01 * wheel.omega * h
        groups[1] += bar(wheel.omega, place * s, (place + 1) * s, top, 4 * h, 0 if place < 9 else 51, 0, 255)
    steering, yaw_rate = car.wheels[0].joint.angle, car.hull.angularVelocity
    green = bar(steering, 20 * s, (20 - 10.0 * steering) * s, h, 3 * h, 0, 255, 0)
    red = bar(yaw_rate, 30 * s, (30 - 0.8 * yaw_rate) * s, h, 3 * h, 255, 0, 0)
    # When the car spins, the red bar may cover the green one.
    groups += [green + red] if 0.8 * yaw_rate > 5 else [green, red]
    for group in groups:
        np.add(strip, _draw_bars(*group), out=strip)
    return strip


class _Bar(NamedTuple):
    """A rectangle on the dashboard."""

    left: int
    right: int
    top: int
    bottom: int
    color: tuple[int, ...]


# Bars are rounded to pixels, so that they repeat. The number only bounds the memory of those kept.
@lru_cache(maxsize=4096)
def _draw_bars(*bars: _Bar) -> Frame:
    """A dashboard with these bars only, drawn in this order."""
    strip = pygame.Surface((WIDTH, DASHBOARD))
    for left, right, top, bottom, color in bars:
        pygame.draw.polygon(strip, color, [(left, top), (right, top), (right, bottom), (left, bottom)])
    return np.ascontiguousarray(shrink(strip, STRIP))


@lru_cache(maxsize=2048)
def _draw_digits(digits: str) -> Frame:
    """A dashboard with the return only."""
    strip = pygame.Surface((WIDTH, DASHBOARD))
    # Font, size and place are gymnasium's.
    text = pygame.font.Font(pygame.font.get_default_font(), 42).render(digits, True, (255, 255, 255), (0, 0, 0))
    box = text.get_rect()
    box.center = (60, int(DASHBOARD - HEIGHT * 2.5 / 40.0))
    strip.blit(text, box)
    return np.ascontiguousarray(shrink(strip, STRIP))
