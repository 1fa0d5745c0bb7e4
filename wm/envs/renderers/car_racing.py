"""CarRacing, drawn faster. Gymnasium spends 98 % of a step drawing, and draws even when nobody looks.

Exact: the same canvas, polygons and shrinking as gymnasium's, less what cannot be seen: polygons off the screen, and
the world behind the dashboard. Fast: the ground is cut out of a map drawn once for an episode. What is small and always
there is drawn as in exact, because it misled V: the dashboard, whose bars are a pixel high, and the car with the ground
around it. Physics, rewards and random numbers are gymnasium's own code in both.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pygame
from gymnasium.envs.box2d import car_dynamics, car_racing
from numpy.typing import NDArray
from pygame import gfxdraw

from wm.envs.renderers import source_check as sources
from wm.envs.renderers.box2d import Polygons, placed
from wm.envs.renderers.track_map import TrackMap, checkers
from wm.envs.resize import AreaResize, Frame

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
_STRIP = (car_racing.STATE_W, car_racing.STATE_H * _DASHBOARD // HEIGHT)  # the dashboard as shown: width, height
_UNSEEN = np.zeros((car_racing.STATE_H, car_racing.STATE_W, 3), np.uint8)
_MAPPED = 40  # texels a unit are the size over this: their average then blurs as gymnasium's shrinking does
_CELL = 4.0  # units, in which the car keeps the same tiles around it
_TURN = 2 * math.pi
Points = NDArray[np.float64]


class CarRacing(car_racing.CarRacing):
    """Gymnasium's, but a step does not draw: the observation is black, and the renderer draws when asked to."""

    shown_return = 0.0  # what the picture shows lacks this step's price of 0.1, which is paid after drawing

    def _render(self, mode: str) -> Any:
        if mode != "state_pixels":
            return super()._render(mode)
        self.shown_return = self.reward
        return _UNSEEN


@dataclass(frozen=True)
class _Sheet:
    """A part of gymnasium's canvas to draw on; the first `hidden` rows are never seen."""

    surface: pygame.Surface
    corner: tuple[int, int] = (0, 0)
    hidden: int = 0

    @property
    def reach(self) -> float:
        """How far its farthest corner is from the car."""
        left, top = WIDTH / 2 - self.corner[0], HEIGHT / 4 - self.corner[1]
        width, height = self.surface.get_size()
        return math.hypot(max(left, width - left), max(top, height - top))

    def fill(self, color: tuple[int, ...]) -> None:
        width, height = self.surface.get_size()
        self.surface.fill(color, (0, self.hidden, width, height - self.hidden))

    def polygon(self, points: list[list[float]], color: Iterable[float]) -> None:
        shade = tuple(map(int, color))
        gfxdraw.aapolygon(self.surface, points, shade)
        gfxdraw.filled_polygon(self.surface, points, shade)


class _Camera(NamedTuple):
    """World points times `turned` and `zoom`, plus `shift`, are points of gymnasium's canvas."""

    turned: Points
    zoom: float
    shift: Points

    def shows(self, points: Points) -> Points:
        """Points of the canvas."""
        found: Points = points @ self.turned * self.zoom + self.shift
        return found

    def sees(self, points: Points) -> Points:
        """Points of the world."""
        found: Points = (points - self.shift) @ self.turned.T / self.zoom
        return found


class CarRacingRenderer:
    """Draws the state of a CarRacing; `fast` takes the ground from a map."""

    entry_point = CarRacing

    def __init__(self, env: CarRacing, size: int, fast: bool) -> None:
        sources.require("CarRacing", _DRAWING, _KNOWN)
        pygame.font.init()
        self.env, self.fast = env, fast
        whole = car_racing.STATE_H
        self._resize = None if whole == size else AreaResize(whole, whole, 3, size)
        self._picture = np.empty((whole, whole, 3), np.uint8)
        if fast:
            self._map = TrackMap(size / _MAPPED)
            self._small = np.empty((size, size, 3), np.uint8)
            self._near = _Sheet(pygame.Surface(_NEAR[2:]), _NEAR[:2])
        else:
            # The world is drawn upside down, as in gymnasium, and turned once it is small. Its first rows come to lie
            # behind the dashboard, so they are neither drawn nor shrunk.
            canvas = pygame.Surface((WIDTH, HEIGHT))
            self._canvas = _Sheet(canvas, hidden=_DASHBOARD)
            self._world = canvas.subsurface((0, _DASHBOARD, WIDTH, HEIGHT - _DASHBOARD))
            self._world_size = (whole, whole - _STRIP[1])

    def begin(self) -> None:
        """A new episode has begun: the track is another one."""
        env, grass = self.env, checkers()
        road = np.array([poly for poly, _ in env.road_poly])
        self._tiles: Points = np.concatenate([grass, road])
        self._grass = len(grass)
        # By reference: a tile changes its color when the car first touches it.
        self._colors = [env.grass_color] * len(grass) + [color for _, color in env.road_poly]
        self._centers = self._tiles.mean(axis=1)
        self._numbers = np.arange(len(self._tiles))
        self._radii = np.linalg.norm(self._tiles - self._centers[:, None], axis=2).max(axis=1)
        self._ground = tuple(int(c) for c in env.bg_color)
        assert env.car is not None
        self._car = Polygons(env.car.drawlist)
        self._paints = [tuple(int(c * 255) for c in body.color) for body in self._car.bodies]
        self._cell: tuple[float, float] | None = None
        if self.fast:
            shade = tuple(int(c) for c in env.grass_color)
            self._map.begin(self._ground, shade, road, self._colors[len(grass) :])
            numbers = {id(color): number for number, color in enumerate(self._colors)}
            tiles: list[Any] = env.road or []
            self._touched, self._untouched = 0, {numbers[id(tile.color)]: tile for tile in tiles}

    def frame(self, observation: Any) -> Frame:
        """The picture as (size, size, 3)."""
        camera = self._camera()
        top = len(self._picture) - _STRIP[1]
        self._picture[top:] = self._dashboard()
        if not self.fast:
            self._draw_world(self._canvas, camera, self._numbers)
            self._picture[:top] = _shrunk(self._world, self._world_size)[::-1]
            return self._picture.copy() if self._resize is None else self._resize(self._picture)
        small = self._picture if self._resize is None else self._small
        self._cut_out(small, camera)
        self._draw_world(self._near, camera, self._around())
        left, above, wide, tall = _NEAR_SHOWN
        self._picture[above : above + tall, left : left + wide] = _shrunk(self._near.surface, (wide, tall))[::-1]
        if self._resize is not None:
            self._resize.patch(small, self._picture, _NEAR_SHOWN)
            self._resize.patch(small, self._picture, (0, top, *_STRIP))
        return small.copy()

    def _camera(self) -> _Camera:
        env = self.env
        assert env.car is not None
        angle = math.fmod(-env.car.hull.angle, _TURN) % _TURN
        cos, sin = math.cos(angle), math.sin(angle)
        zoom = 0.1 * car_racing.SCALE * max(1 - env.t, 0) + car_racing.ZOOM * car_racing.SCALE * min(env.t, 1)
        turned = np.array([[cos, sin], [-sin, cos]])
        x, y = (-value * zoom for value in env.car.hull.position)
        return _Camera(turned, zoom, np.array([x, y]) @ turned + np.array([WIDTH / 2, HEIGHT / 4]))

    def _cut_out(self, small: Frame, camera: _Camera) -> None:
        """The ground without the car, from the map."""
        if self._touched != self.env.tile_visited_count:
            self._touched = self.env.tile_visited_count
            for number in self._around().tolist():
                if number in self._untouched and self._untouched[number].road_visited:
                    self._map.recolor(number - self._grass, self._untouched.pop(number).color)
        size = len(small)
        corner, right, below = camera.sees(np.array([(0, HEIGHT), (WIDTH, HEIGHT), (0, 0)]))
        rows = size - size * _DASHBOARD // HEIGHT
        small[:rows] = self._map.seen((size, rows), corner, (right - corner) / size, (below - corner) / size)

    def _around(self) -> NDArray[np.int64]:
        """Numbers of the tiles that may be around the car."""
        assert self.env.car is not None
        x, y = self.env.car.hull.position
        cell = (x // _CELL, y // _CELL)
        if self.env.t < 1:  # from high above, all of them
            return self._numbers
        if cell != self._cell:
            middle = (np.array(cell) + 0.5) * _CELL
            reach = self._radii + self._near.reach / (car_racing.ZOOM * car_racing.SCALE) + _CELL
            self._cell = cell
            self._close = np.flatnonzero(((self._centers - middle) ** 2).sum(axis=1) < reach**2)
        return self._close

    def _draw_world(self, sheet: _Sheet, camera: _Camera, tiles: NDArray[np.int64]) -> None:
        camera = camera._replace(shift=camera.shift - sheet.corner)
        self._draw_ground(sheet, camera)
        self._draw_tiles(sheet, camera, tiles)
        self._draw_car(sheet, camera)

    def _draw_ground(self, sheet: _Sheet, camera: _Camera) -> None:
        """The plane, which has an edge that is seldom seen."""
        assert self.env.car is not None
        bounds = car_racing.PLAYFIELD
        x, y = self.env.car.hull.position
        if max(abs(x), abs(y)) + sheet.reach / camera.zoom < bounds - 1:
            sheet.fill(self._ground)
            return
        sheet.fill((0, 0, 0))
        corners = np.array([(bounds, bounds), (bounds, -bounds), (-bounds, -bounds), (-bounds, bounds)])
        sheet.polygon(camera.shows(corners).tolist(), self._ground)

    def _draw_tiles(self, sheet: _Sheet, camera: _Camera, numbers: NDArray[np.int64]) -> None:
        """Grass and road, as far as they are on the sheet."""
        width, height = sheet.surface.get_size()
        points = camera.shows(self._tiles[numbers])
        low, high = points.min(axis=1), points.max(axis=1)
        seen = ((high > (-2, sheet.hidden - 2)) & (low < (width + 2, height + 2))).all(axis=1)
        for number, corners in zip(numbers[seen].tolist(), points[seen].tolist(), strict=True):
            sheet.polygon(corners, self._colors[number])

    def _draw_car(self, sheet: _Sheet, camera: _Camera) -> None:
        """Wheels and hull; a wheel has a white bar that turns with it."""
        bars = {
            number: bar
            for number, body in enumerate(self._car.bodies)
            if "phase" in body.__dict__ and (bar := _bar(body.phase)) is not None
        }
        corners, owners = self._car.corners, self._car.owners
        if bars:
            corners = np.concatenate([corners, *np.array(list(bars.values()), np.float32)])
            owners = np.concatenate([owners, np.repeat(list(bars), 4)])
        points = camera.shows(placed(corners, self._car.poses()[owners])).tolist()
        white = dict(zip(bars, range(len(self._car.corners), len(points), 4), strict=True))
        for number, span in self._car.spans:
            pygame.draw.polygon(sheet.surface, self._paints[number], points[span])
            if number in white:
                bar = points[white[number] : white[number] + 4]
                pygame.draw.polygon(sheet.surface, car_dynamics.WHEEL_WHITE, bar)

    def _dashboard(self) -> Frame:
        """(rows, columns, 3) of the picture that gymnasium shows: speed, the wheels' turning, steering, the hull's
        turning; and the return in digits."""
        car = self.env.car
        assert car is not None
        strip = _digits_shown(f"{self.env.shown_return:04.0f}").copy()

        def bar(value: float, left: float, right: float, top: float, bottom: float, *color: int) -> list[_Bar]:
            return [_Bar(int(left), int(right), int(top), int(bottom), color)] if abs(value) > 1e-4 else []

        s, h = WIDTH / 40, _DASHBOARD / 5
        vx, vy = car.hull.linearVelocity
        speed = math.sqrt(vx * vx + vy * vy)
        groups = [bar(speed, 5 * s, 6 * s, 4 * h - 0.02 * speed * h, 4 * h, 255, 255, 255), []]
        for place, wheel in enumerate(car.wheels, start=7):  # they share pixels
            top = 4 * h - 0.01 * wheel.omega * h
            groups[1] += bar(wheel.omega, place * s, (place + 1) * s, top, 4 * h, 0 if place < 9 else 51, 0, 255)
        steering, turning = car.wheels[0].joint.angle, car.hull.angularVelocity
        green = bar(steering, 20 * s, (20 - 10.0 * steering) * s, h, 3 * h, 0, 255, 0)
        red = bar(turning, 30 * s, (30 - 0.8 * turning) * s, h, 3 * h, 255, 0, 0)
        # When the car spins, the second may cover the first.
        groups += [green + red] if 0.8 * turning > 5 else [green, red]
        for group in groups:
            np.add(strip, _bars_shown(*group), out=strip)
        return strip


class _Bar(NamedTuple):
    """A rectangle on the dashboard as gymnasium draws it."""

    left: int
    right: int
    top: int
    bottom: int
    color: tuple[int, ...]


@lru_cache(maxsize=4096)
def _bars_shown(*bars: _Bar) -> Frame:
    """The dashboard with nothing but these, the later ones over the earlier."""
    strip = pygame.Surface((WIDTH, _DASHBOARD))
    for left, right, top, bottom, color in bars:
        pygame.draw.polygon(strip, color, [(left, top), (right, top), (right, bottom), (left, bottom)])
    return np.ascontiguousarray(_shrunk(strip, _STRIP))


@lru_cache(maxsize=2048)
def _digits_shown(digits: str) -> Frame:
    """The dashboard with nothing but the return."""
    strip = pygame.Surface((WIDTH, _DASHBOARD))
    text = pygame.font.Font(pygame.font.get_default_font(), 42).render(digits, True, (255, 255, 255), (0, 0, 0))
    box = text.get_rect()
    box.center = (60, int(_DASHBOARD - HEIGHT * 2.5 / 40.0))
    strip.blit(text, box)
    return np.ascontiguousarray(_shrunk(strip, _STRIP))


def _shrunk(surface: pygame.Surface, size: tuple[int, int]) -> Frame:
    """(height, width, 3) of a `size` that is (width, height)."""
    small: Frame = pygame.surfarray.array3d(pygame.transform.smoothscale(surface, size))
    return small.transpose(1, 0, 2)


def _bar(phase: float) -> list[tuple[float, float]] | None:
    """The corners of the white bar of a wheel that has turned by `phase`; None when it is on the far side."""
    s1, s2 = math.sin(phase), math.sin(phase + 1.2)
    if s1 > 0 and s2 > 0:
        return None
    c1, c2 = math.cos(phase), math.cos(phase + 1.2)
    size = car_dynamics.SIZE
    half, reach = car_dynamics.WHEEL_W * size, car_dynamics.WHEEL_R * size
    top = reach * (math.copysign(1.0, c1) if s1 > 0 else c1)
    bottom = reach * (math.copysign(1.0, c2) if s2 > 0 else c2)
    return [(-half, top), (half, top), (half, bottom), (-half, bottom)]
