"""CarRacing, drawn faster. Gymnasium spends 98 % of a step drawing, and draws even when nobody looks.

Exact: the same canvas, polygons and shrinking as gymnasium's, less what cannot be seen: polygons off the screen, and
the world behind the dashboard. Fast: the same world on a canvas of 5 by 4 pixels per stored pixel, not antialiased.
What is small and always there is drawn as in exact, because it misled V: the dashboard, whose bars are a pixel high,
and the car with the ground around it. Physics, rewards and random numbers are gymnasium's own code in both.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pygame
from gymnasium.envs.box2d import car_dynamics, car_racing
from numpy.typing import NDArray
from pygame import gfxdraw

from wm.envs import sources
from wm.envs.bodies import Polygons, placed
from wm.envs.pixels import AreaResize, Frame

_DRAWING = (
    car_racing.CarRacing.step,
    car_racing.CarRacing._render,
    car_racing.CarRacing._render_road,
    car_racing.CarRacing._render_indicators,
    car_racing.CarRacing._draw_colored_polygon,
    car_racing.CarRacing._create_image_array,
    car_dynamics.Car.draw,
)
_KNOWN = ("b8580011973ab947",)  # gymnasium 1.4.0
WIDTH, HEIGHT = car_racing.WINDOW_W, car_racing.WINDOW_H
_DASHBOARD = HEIGHT // 8  # its height; the rest of the canvas shows the world, upside down
# The ground around the car, which stands at (WIDTH / 2, HEIGHT / 4): left, first row, width and height on the canvas,
# and the same in the picture that gymnasium shows, turned the right way up.
_NEAR = (375, 150, 250, 100)
_NEAR_SHOWN = (36, 66, 24, 12)
_UNSEEN = np.zeros((car_racing.STATE_H, car_racing.STATE_W, 3), np.uint8)
_TURN = 2 * math.pi
Points = NDArray[np.float64]


class CarRacing(car_racing.CarRacing):
    """Gymnasium's, but a step does not draw: the observation is black, and a painter looks when asked to."""

    shown_return = 0.0  # what the picture shows lacks this step's price of 0.1, which is paid after drawing

    def _render(self, mode: str) -> Any:
        if mode != "state_pixels":
            return super()._render(mode)
        self.shown_return = self.reward
        return _UNSEEN


@dataclass(frozen=True)
class _Sheet:
    """A part of gymnasium's canvas to draw on, `scale` times as large; the first `hidden` rows are never seen."""

    surface: pygame.Surface
    scale: float = 1.0
    corner: tuple[int, int] = (0, 0)
    hidden: int = 0
    coarse: bool = False

    def fill(self, color: tuple[int, ...]) -> None:
        width, height = self.surface.get_size()
        self.surface.fill(color, (0, self.hidden, width, height - self.hidden))

    def polygon(self, points: list[list[float]], color: Iterable[float]) -> None:
        shade = tuple(map(int, color))
        if self.coarse:
            pygame.draw.polygon(self.surface, shade, points)
        else:
            gfxdraw.aapolygon(self.surface, points, shade)
            gfxdraw.filled_polygon(self.surface, points, shade)


class CarRacingPainter:
    """Draws the state of a CarRacing. `fast` draws the world straight at 5 by 4 times `size` instead of 1000 by 800."""

    entry_point = CarRacing

    def __init__(self, env: CarRacing, size: int, fast: bool) -> None:
        sources.require("CarRacing", _DRAWING, _KNOWN)
        pygame.font.init()
        self.env, self.fast = env, fast
        scale = 5 * size / WIDTH if fast else 1.0
        width, height, hidden = (round(side * scale) for side in (WIDTH, HEIGHT, _DASHBOARD))
        shown, whole = size if fast else car_racing.STATE_H, car_racing.STATE_H
        self._resize = None if whole == size else AreaResize(whole, whole, 3, size)
        # The world is drawn upside down, as in gymnasium, and turned once it is small. Its first rows come to lie
        # behind the dashboard, so they are neither drawn nor shrunk.
        canvas = pygame.Surface((width, height))
        self._canvas = _Sheet(canvas, scale, hidden=hidden, coarse=fast)
        self._world = canvas.subsurface((0, hidden, width, height - hidden))
        self._world_size = (shown, round(shown * (height - hidden) / height))
        self._near = _Sheet(pygame.Surface(_NEAR[2:]), corner=_NEAR[:2])
        self._strip = pygame.Surface((WIDTH, _DASHBOARD))
        self._strip_size = (whole, whole * _DASHBOARD // HEIGHT)
        self._picture = np.empty((whole, whole, 3), np.uint8)
        self._small = np.empty((size, size, 3), np.uint8)
        self._font = pygame.font.Font(pygame.font.get_default_font(), 42)
        self._digits: dict[str, pygame.Surface] = {}

    def begin(self) -> None:
        """A new episode has begun: the track is another one."""
        env, dim = self.env, car_racing.GRASS_DIM
        corner = np.array([(dim * x, dim * y) for x in range(-20, 20, 2) for y in range(-20, 20, 2)])
        grass = corner[:, None] + np.array([(dim, 0), (0, 0), (0, dim), (dim, dim)])
        self._tiles: Points = np.concatenate([grass, [poly for poly, _ in env.road_poly]])
        # By reference: a tile changes its color when the car first touches it.
        self._colors = [env.grass_color] * len(grass) + [color for _, color in env.road_poly]
        self._centers = self._tiles.mean(axis=1)
        self._radii = np.linalg.norm(self._tiles - self._centers[:, None], axis=2).max(axis=1)
        self._ground = tuple(int(c) for c in env.bg_color)
        assert env.car is not None
        self._car = Polygons(env.car.drawlist)

    def frame(self, observation: Any) -> Frame:
        """The picture as (size, size, 3)."""
        self._draw_world(self._canvas, with_car=not self.fast)
        world = _shrunk(self._world, self._world_size)[::-1]
        self._draw_dashboard()
        top = len(self._picture) - self._strip_size[1]
        self._picture[top:] = _shrunk(self._strip, self._strip_size)
        if not self.fast:
            self._picture[:top] = world
            return self._picture.copy() if self._resize is None else self._resize(self._picture)
        small = self._picture if self._resize is None else self._small
        # Shrinking rounds down, and that of gymnasium's canvas by a level more.
        np.subtract(world, world > 0, out=small[: len(world)], casting="unsafe")
        self._draw_world(self._near, with_car=True)
        left, above, wide, tall = _NEAR_SHOWN
        self._picture[above : above + tall, left : left + wide] = _shrunk(self._near.surface, (wide, tall))[::-1]
        if self._resize is not None:
            self._resize.patch(small, self._picture, _NEAR_SHOWN)
            self._resize.patch(small, self._picture, (0, top, *self._strip_size))
        return small.copy()

    def _draw_world(self, sheet: _Sheet, with_car: bool) -> None:
        env, scale = self.env, sheet.scale
        assert env.car is not None
        angle = math.fmod(-env.car.hull.angle, _TURN) % _TURN
        cos, sin = math.cos(angle), math.sin(angle)
        zoom = 0.1 * car_racing.SCALE * max(1 - env.t, 0) + car_racing.ZOOM * car_racing.SCALE * min(env.t, 1)
        zoom *= scale
        x, y = (-value * zoom for value in env.car.hull.position)
        turned = np.array([[cos, sin], [-sin, cos]])
        shift = np.array([x, y]) @ turned + np.array([WIDTH / 2, HEIGHT / 4]) * scale - sheet.corner
        self._draw_ground(sheet, turned, shift, zoom)
        self._draw_tiles(sheet, turned, shift, zoom)
        if with_car:
            self._draw_car(sheet, turned, shift, zoom)

    def _draw_ground(self, sheet: _Sheet, turned: Points, shift: Points, zoom: float) -> None:
        """The plane, which has an edge that is seldom seen."""
        bounds = car_racing.PLAYFIELD
        width, height = sheet.surface.get_size()
        seen = (np.array([(0, 0), (width, 0), (width, height), (0, height)]) - shift) @ turned.T / zoom
        if np.abs(seen).max() < bounds - 1:
            sheet.fill(self._ground)
            return
        sheet.fill((0, 0, 0))
        corners = np.array([(bounds, bounds), (bounds, -bounds), (-bounds, -bounds), (-bounds, bounds)])
        sheet.polygon((corners @ turned * zoom + shift).tolist(), self._ground)

    def _draw_tiles(self, sheet: _Sheet, turned: Points, shift: Points, zoom: float) -> None:
        """Grass and road, as far as they are on the sheet."""
        width, height = sheet.surface.get_size()
        centers = self._centers @ turned * zoom + shift
        reach = self._radii * zoom + 2
        near = (
            (centers[:, 0] > -reach)
            & (centers[:, 0] < width + reach)
            & (centers[:, 1] > sheet.hidden - reach)
            & (centers[:, 1] < height + reach)
        )
        chosen = np.flatnonzero(near)
        for number, points in zip(chosen.tolist(), (self._tiles[chosen] @ turned * zoom + shift).tolist(), strict=True):
            sheet.polygon(points, self._colors[number])

    def _draw_car(self, sheet: _Sheet, turned: Points, shift: Points, zoom: float) -> None:
        """Wheels and hull; a wheel has a white bar that turns with it."""
        poses = self._car.poses()
        points = (self._car.placed(poses) @ turned * zoom + shift).tolist()
        for number, span in self._car.spans:
            body = self._car.bodies[number]
            pygame.draw.polygon(sheet.surface, tuple(int(c * 255) for c in body.color), points[span])
            if "phase" in body.__dict__ and (bar := _bar(body.phase)) is not None:
                white = placed(bar, poses[number]) @ turned * zoom + shift
                pygame.draw.polygon(sheet.surface, car_dynamics.WHEEL_WHITE, white.tolist())

    def _draw_dashboard(self) -> None:
        """Speed, the wheels' turning, steering, the hull's turning; and the return in digits."""
        car = self.env.car
        assert car is not None
        width, height = self._strip.get_size()
        s, h = width / 40, height / 5
        self._strip.fill((0, 0, 0))

        def draw(value: float, left: float, right: float, top: float, bottom: float, color: tuple[int, ...]) -> None:
            if abs(value) > 1e-4:
                points = [(left, top), (right, top), (right, bottom), (left, bottom)]
                pygame.draw.polygon(self._strip, color, points)

        def upright(place: int, value: float, size: float, color: tuple[int, ...]) -> None:
            draw(value, place * s, (place + 1) * s, height - (h + h * size), height - h, color)

        def lying(place: int, value: float, size: float, color: tuple[int, ...]) -> None:
            draw(value, place * s, (place + size) * s, height - 4 * h, height - 2 * h, color)

        vx, vy = car.hull.linearVelocity
        speed = math.sqrt(vx * vx + vy * vy)
        upright(5, speed, 0.02 * speed, (255, 255, 255))
        for number, wheel in enumerate(car.wheels):
            upright(7 + number, wheel.omega, 0.01 * wheel.omega, (0, 0, 255) if number < 2 else (51, 0, 255))
        steering, turning = car.wheels[0].joint.angle, car.hull.angularVelocity
        lying(20, steering, -10.0 * steering, (0, 255, 0))
        lying(30, turning, -0.8 * turning, (255, 0, 0))
        text = self._text(f"{self.env.shown_return:04.0f}")
        box = text.get_rect()
        box.center = (60, int(height - HEIGHT * 2.5 / 40.0))
        self._strip.blit(text, box)

    def _text(self, digits: str) -> pygame.Surface:
        if digits not in self._digits:
            if len(self._digits) > 2000:
                self._digits.clear()
            self._digits[digits] = self._font.render(digits, True, (255, 255, 255), (0, 0, 0))
        return self._digits[digits]


def _shrunk(surface: pygame.Surface, size: tuple[int, int]) -> Frame:
    """(height, width, 3) of a `size` that is (width, height)."""
    small: Frame = pygame.surfarray.array3d(pygame.transform.smoothscale(surface, size))
    return small.transpose(1, 0, 2)


def _bar(phase: float) -> NDArray[np.float32] | None:
    """The white bar of a wheel that has turned by `phase`; None when it is on the far side."""
    s1, s2 = math.sin(phase), math.sin(phase + 1.2)
    if s1 > 0 and s2 > 0:
        return None
    c1, c2 = math.cos(phase), math.cos(phase + 1.2)
    top = math.copysign(1.0, c1) if s1 > 0 else c1
    bottom = math.copysign(1.0, c2) if s2 > 0 else c2
    half, reach = car_dynamics.WHEEL_W, car_dynamics.WHEEL_R
    corners = [(-half, reach * top), (half, reach * top), (half, reach * bottom), (-half, reach * bottom)]
    return (np.array(corners) * car_dynamics.SIZE).astype(np.float32)
