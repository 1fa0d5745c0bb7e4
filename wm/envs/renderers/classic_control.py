"""Faster renderers for CartPole and Acrobot: gymnasium's calls, but only what moves is drawn and shrunk again."""

import math
from typing import Any

import numpy as np
import pygame
from gymnasium.envs.classic_control import acrobot, cartpole
from numpy.typing import NDArray
from pygame import gfxdraw

from wm.envs.renderers.canvas import Canvas
from wm.envs.renderers.source_check import require_known_source
from wm.envs.resize import Frame

# Digests of the source that was read for this; another release is refused until it is read again.
_KNOWN_CARTPOLE = ("5d81c77bd3758a23",)  # gymnasium 1.4.0
_KNOWN_ACROBOT = ("03e82a7143150d26",)  # gymnasium 1.4.0
Color = tuple[int, int, int]
_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)


class CartPoleRenderer:
    """Draws the state of a CartPole."""

    entry_point = None

    def __init__(self, env: cartpole.CartPoleEnv, size: int) -> None:
        require_known_source("CartPole", (cartpole.CartPoleEnv.render,), _KNOWN_CARTPOLE)
        self.env = env
        self._canvas = Canvas(env.screen_width, env.screen_height, size)
        self._scale = env.screen_width / (env.x_threshold * 2)

    def begin(self) -> None:
        """A new episode has begun."""
        self._canvas.set_background(self._draw_ground)

    def _draw_ground(self, surface: pygame.Surface) -> None:
        surface.fill(_WHITE)
        self._draw_rail(surface)

    def _draw_rail(self, surface: pygame.Surface) -> None:
        # 100 pixels above the lower edge, and the sizes and colours below, are gymnasium's.
        gfxdraw.hline(surface, 0, self.env.screen_width, 100, _BLACK)

    def frame(self, observation: Any) -> Frame:
        """The frame as (size, size, 3)."""
        canvas, state = self._canvas, np.asarray(self.env.state)
        canvas.clear()
        x, y = state[0] * self._scale + self.env.screen_width / 2.0, 100
        cart = np.array([(x - 25.0, y - 15.0), (x - 25.0, y + 15.0), (x + 25.0, y + 15.0), (x + 25.0, y - 15.0)])
        length = self._scale * 2 * self.env.length
        pole = np.array([(-5.0, -5.0), (-5.0, length - 5.0), (5.0, length - 5.0), (5.0, -5.0)])
        pole = _rotated(pole, -state[2]) + np.array([x, y + 7.5])
        corners = np.concatenate([cart, pole])
        canvas.mark_changed(corners.min(axis=0), corners.max(axis=0))
        _fill(canvas.surface, cart, _BLACK)
        _fill(canvas.surface, pole, (202, 152, 101))
        _disc(canvas.surface, x, y + 7.5, 5, (129, 132, 203))
        self._draw_rail(canvas.surface)
        return canvas.frame()


class AcrobotRenderer:
    """Draws the state of an Acrobot."""

    entry_point = None

    def __init__(self, env: acrobot.AcrobotEnv, size: int) -> None:
        require_known_source("Acrobot", (acrobot.AcrobotEnv.render,), _KNOWN_ACROBOT)
        self.env = env
        self._canvas = Canvas(env.SCREEN_DIM, env.SCREEN_DIM, size)
        self._scale = env.SCREEN_DIM / (2 * (env.LINK_LENGTH_1 + env.LINK_LENGTH_2 + 0.2))

    def begin(self) -> None:
        """A new episode has begun."""
        self._canvas.set_background(self._draw_goal)

    def _draw_goal(self, surface: pygame.Surface) -> None:
        surface.fill(_WHITE)
        scale, middle = self._scale, self.env.SCREEN_DIM / 2
        start, end = (-2.2 * scale + middle, scale + middle), (2.2 * scale + middle, scale + middle)
        pygame.draw.line(surface, _BLACK, start, end)

    def frame(self, observation: Any) -> Frame:
        """The frame as (size, size, 3)."""
        canvas, scale, middle = self._canvas, self._scale, self.env.SCREEN_DIM / 2
        first, second = np.asarray(self.env.state)[:2]
        canvas.clear()
        elbow = (
            self.env.LINK_LENGTH_1 * math.sin(first) * scale + middle,
            -self.env.LINK_LENGTH_1 * math.cos(first) * scale + middle,
        )
        joints = ((middle, middle), elbow)
        angles = (first - math.pi / 2, first + second - math.pi / 2)
        thick = 0.1 * scale
        links = []
        for joint, angle, length in zip(joints, angles, (self.env.LINK_LENGTH_1, self.env.LINK_LENGTH_2), strict=True):
            reach = length * scale
            outline = np.array([(0, -thick), (0, thick), (reach, thick), (reach, -thick)])
            links.append(_rotated(outline, angle) + joint)
        extent = np.concatenate([*links, np.array(joints) - thick, np.array(joints) + thick])
        canvas.mark_changed(extent.min(axis=0), extent.max(axis=0))
        for link, (x, y) in zip(links, joints, strict=True):
            _fill(canvas.surface, link, (0, 204, 204))
            _disc(canvas.surface, x, y, int(thick), (204, 204, 0))
        return canvas.frame()


def _rotated(points: NDArray[np.floating], angle: float) -> NDArray[np.floating]:
    cos, sin = math.cos(angle), math.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]])


def _fill(surface: pygame.Surface, points: NDArray[np.floating], color: Color) -> None:
    corners = points.tolist()
    gfxdraw.aapolygon(surface, corners, color)
    gfxdraw.filled_polygon(surface, corners, color)


def _disc(surface: pygame.Surface, x: float, y: float, radius: int, color: Color) -> None:
    gfxdraw.aacircle(surface, int(x), int(y), radius, color)
    gfxdraw.filled_circle(surface, int(x), int(y), radius, color)
