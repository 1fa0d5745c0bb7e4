"""A faster renderer for CarRacing. Gymnasium spends 98 % of a step drawing, even when the frame is not used.

Exact: gymnasium's canvas, polygons and shrinking, without invisible polygons and without the world behind the
dashboard. Fast: the ground is a crop of a texture that is drawn once per episode. The dashboard, the car and the ground
around it are drawn as in exact. C exploits what a fast renderer changes in every frame alike: with a coarse dashboard
and car it returned 702 here and 536 in exact frames. Physics, rewards and random numbers are gymnasium's code in both.
"""

import math
from typing import Any

import numpy as np
import pygame
from gymnasium.envs.box2d import car_dynamics, car_racing
from numpy.typing import NDArray

from wm.envs.renderers.box2d import Polygons, transformed
from wm.envs.renderers.car_dashboard import render_dashboard
from wm.envs.renderers.car_view import DASHBOARD, HEIGHT, STRIP, WIDTH, Camera, Points, Region, shrink
from wm.envs.renderers.source_check import require_known_source
from wm.envs.renderers.track_map import TrackMap, grass_squares
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
# The ground around the car, which is at (WIDTH / 2, HEIGHT / 4): left, top, width and height on the upside-down canvas,
# and the same in gymnasium's frame.
_NEAR = (375, 150, 250, 100)
_NEAR_IN_FRAME = (36, 66, 24, 12)
# What gymnasium's step returns as an observation; nothing reads it.
_BLACK = np.zeros((car_racing.STATE_H, car_racing.STATE_W, 3), np.uint8)
_UNITS_PER_FRAME = 40  # with size / 40 texels per unit, the crop is as blurred as gymnasium's shrunk canvas
_CELL = 4.0  # side of the square cells, in units, for each of which the tiles near the car are found once
_TURN = 2 * math.pi


class CarRacing(car_racing.CarRacing):
    """Gymnasium's environment, but a step does not draw: its observation is black, and the renderer draws instead."""

    displayed_return = 0.0  # without this step's cost of 0.1, which gymnasium subtracts after drawing

    def _render(self, mode: str) -> Any:
        if mode != "state_pixels":
            return super()._render(mode)
        self.displayed_return = self.reward
        return _BLACK


class CarRacingRenderer:
    """Draws the state of a CarRacing; `fast` takes the ground from a pre-rendered texture."""

    entry_point = CarRacing

    def __init__(self, env: CarRacing, size: int, fast: bool) -> None:
        require_known_source("CarRacing", _DRAWING, _KNOWN)
        pygame.font.init()
        self.env, self.fast = env, fast
        side = car_racing.STATE_H
        self._resize = None if side == size else AreaResize(side, side, 3, size)
        self._screen = np.empty((side, side, 3), np.uint8)
        if fast:
            self._map = TrackMap(size / _UNITS_PER_FRAME)
            self._frame = np.empty((size, size, 3), np.uint8)
            self._near = Region(pygame.Surface(_NEAR[2:]), _NEAR[:2])
        else:
            # The world is drawn upside down, as in gymnasium, and flipped after shrinking. Its first rows are behind
            # the dashboard, so they are neither drawn nor shrunk.
            canvas = pygame.Surface((WIDTH, HEIGHT))
            self._canvas = Region(canvas, hidden=DASHBOARD)
            self._world = canvas.subsurface((0, DASHBOARD, WIDTH, HEIGHT - DASHBOARD))
            self._world_size = (side, side - STRIP[1])

    def begin(self) -> None:
        """A new episode has begun, with another track."""
        env, grass = self.env, grass_squares()
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
        self._body_colors = [tuple(int(c * 255) for c in body.color) for body in self._car.bodies]
        self._cell: tuple[float, float] | None = None
        if self.fast:
            shade = tuple(int(c) for c in env.grass_color)
            self._map.begin(self._ground, shade, road, self._colors[len(grass) :])
            numbers = {id(color): number for number, color in enumerate(self._colors)}
            tiles: list[Any] = env.road or []
            self._visited_count, self._unvisited = 0, {numbers[id(tile.color)]: tile for tile in tiles}

    def frame(self, observation: Any) -> Frame:
        """The frame as (size, size, 3)."""
        car, camera = self.env.car, self._camera()
        assert car is not None
        top = len(self._screen) - STRIP[1]
        self._screen[top:] = render_dashboard(car, self.env.displayed_return)
        if not self.fast:
            self._draw_world(self._canvas, camera, self._numbers)
            self._screen[:top] = shrink(self._world, self._world_size)[::-1]
            return self._screen.copy() if self._resize is None else self._resize(self._screen)
        frame = self._screen if self._resize is None else self._frame
        self._draw_ground_map(frame, camera)
        self._draw_world(self._near, camera, self._near_tiles())
        left, above, wide, tall = _NEAR_IN_FRAME
        self._screen[above : above + tall, left : left + wide] = shrink(self._near.surface, (wide, tall))[::-1]
        if self._resize is not None:
            self._resize.patch(frame, self._screen, _NEAR_IN_FRAME)
            self._resize.patch(frame, self._screen, (0, top, *STRIP))
        return frame.copy()

    def _camera(self) -> Camera:
        env = self.env
        assert env.car is not None
        # Within one turn, as pygame's rotation of a vector takes it.
        angle = math.fmod(-env.car.hull.angle, _TURN) % _TURN
        cos, sin = math.cos(angle), math.sin(angle)
        # gymnasium's zoom in the first second of an episode; a tenth of the scale at its very start.
        zoom = 0.1 * car_racing.SCALE * max(1 - env.t, 0) + car_racing.ZOOM * car_racing.SCALE * min(env.t, 1)
        rotation = np.array([[cos, sin], [-sin, cos]])
        x, y = (-value * zoom for value in env.car.hull.position)
        return Camera(rotation, zoom, np.array([x, y]) @ rotation + np.array([WIDTH / 2, HEIGHT / 4]))

    def _draw_ground_map(self, frame: Frame, camera: Camera) -> None:
        """Draw the ground without the car, from the texture."""
        if self._visited_count != self.env.tile_visited_count:
            self._visited_count = self.env.tile_visited_count
            for number in self._near_tiles().tolist():
                if number in self._unvisited and self._unvisited[number].road_visited:
                    self._map.recolor(number - self._grass, self._unvisited.pop(number).color)
        size = len(frame)
        corner, right, below = camera.to_world(np.array([(0, HEIGHT), (WIDTH, HEIGHT), (0, 0)]))
        rows = size - size * DASHBOARD // HEIGHT
        frame[:rows] = self._map.crop((size, rows), corner, (right - corner) / size, (below - corner) / size)

    def _near_tiles(self) -> NDArray[np.int64]:
        """Numbers of the tiles that may be in the region near the car."""
        assert self.env.car is not None
        x, y = self.env.car.hull.position
        cell = (x // _CELL, y // _CELL)
        if self.env.t < 1:  # while the camera zooms in, all of them
            return self._numbers
        if cell != self._cell:
            center = (np.array(cell) + 0.5) * _CELL
            reach = self._radii + self._near.radius / (car_racing.ZOOM * car_racing.SCALE) + _CELL
            self._cell = cell
            self._near_numbers = np.flatnonzero(((self._centers - center) ** 2).sum(axis=1) < reach**2)
        return self._near_numbers

    def _draw_world(self, region: Region, camera: Camera, tiles: NDArray[np.int64]) -> None:
        camera = camera._replace(shift=camera.shift - region.corner)
        self._draw_ground(region, camera)
        self._draw_tiles(region, camera, tiles)
        self._draw_car(region, camera)

    def _draw_ground(self, region: Region, camera: Camera) -> None:
        """Draw the playfield, whose edge is seldom visible."""
        assert self.env.car is not None
        bounds = car_racing.PLAYFIELD
        x, y = self.env.car.hull.position
        if max(abs(x), abs(y)) + region.radius / camera.zoom < bounds - 1:
            region.fill(self._ground)
            return
        region.fill((0, 0, 0))
        corners = np.array([(bounds, bounds), (bounds, -bounds), (-bounds, -bounds), (-bounds, bounds)])
        region.polygon(camera.to_canvas(corners).tolist(), self._ground)

    def _draw_tiles(self, region: Region, camera: Camera, numbers: NDArray[np.int64]) -> None:
        """Draw the grass squares and road tiles that are visible in the region."""
        width, height = region.surface.get_size()
        points = camera.to_canvas(self._tiles[numbers])
        low, high = points.min(axis=1), points.max(axis=1)
        # Two pixels more than the region, for antialiased edges.
        visible = ((high > (-2, region.hidden - 2)) & (low < (width + 2, height + 2))).all(axis=1)
        for number, corners in zip(numbers[visible].tolist(), points[visible].tolist(), strict=True):
            region.polygon(corners, self._colors[number])

    def _draw_car(self, region: Region, camera: Camera) -> None:
        """Draw wheels and hull. A wheel has a white bar that turns with it."""
        bars = {
            number: bar
            for number, body in enumerate(self._car.bodies)
            if "phase" in body.__dict__ and (bar := _wheel_bar(body.phase)) is not None
        }
        corners, owners = self._car.corners, self._car.owners
        if bars:
            corners = np.concatenate([corners, *np.array(list(bars.values()), np.float32)])
            owners = np.concatenate([owners, np.repeat(list(bars), 4)])
        points = camera.to_canvas(transformed(corners, self._car.poses()[owners])).tolist()
        white = dict(zip(bars, range(len(self._car.corners), len(points), 4), strict=True))
        for number, span in self._car.spans:
            pygame.draw.polygon(region.surface, self._body_colors[number], points[span])
            if number in white:
                bar = points[white[number] : white[number] + 4]
                pygame.draw.polygon(region.surface, car_dynamics.WHEEL_WHITE, bar)


def _wheel_bar(phase: float) -> list[tuple[float, float]] | None:
    """The corners of the white bar of a wheel that has turned by `phase`; None while the bar is hidden."""
    s1, s2 = math.sin(phase), math.sin(phase + 1.2)
    if s1 > 0 and s2 > 0:
        return None
    c1, c2 = math.cos(phase), math.cos(phase + 1.2)
    size = car_dynamics.SIZE
    half, reach = car_dynamics.WHEEL_W * size, car_dynamics.WHEEL_R * size
    top = reach * (math.copysign(1.0, c1) if s1 > 0 else c1)
    bottom = reach * (math.copysign(1.0, c2) if s2 > 0 else c2)
    return [(-half, top), (half, top), (half, bottom), (-half, bottom)]
