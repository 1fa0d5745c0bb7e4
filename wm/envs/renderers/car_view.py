"""Gymnasium's canvas of CarRacing: its size, regions to draw on, and the camera that follows the car."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pygame
from gymnasium.envs.box2d import car_racing
from numpy.typing import NDArray
from pygame import gfxdraw

from wm.envs.resize import Frame

Points = NDArray[np.float64]
WIDTH, HEIGHT = car_racing.WINDOW_W, car_racing.WINDOW_H  # of gymnasium's canvas
DASHBOARD = HEIGHT // 8  # rows of the canvas that the dashboard takes
STRIP = (car_racing.STATE_W, car_racing.STATE_H * DASHBOARD // HEIGHT)  # the dashboard in a frame: width, height


@dataclass(frozen=True)
class Region:
    """A region of gymnasium's canvas to draw on; its first `hidden` rows are never visible."""

    surface: pygame.Surface
    corner: tuple[int, int] = (0, 0)
    hidden: int = 0

    @property
    def radius(self) -> float:
        """Distance of its farthest corner from the car."""
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


class Camera(NamedTuple):
    """Canvas coordinates are world coordinates times `rotation` and `zoom`, plus `shift`."""

    rotation: Points
    zoom: float
    shift: Points

    def to_canvas(self, points: Points) -> Points:
        """World coordinates -> canvas coordinates."""
        canvas: Points = points @ self.rotation * self.zoom + self.shift
        return canvas

    def to_world(self, points: Points) -> Points:
        """Canvas coordinates -> world coordinates."""
        world: Points = (points - self.shift) @ self.rotation.T / self.zoom
        return world


def shrink(surface: pygame.Surface, size: tuple[int, int]) -> Frame:
    """Shrink a surface to `size`, (width, height), as gymnasium does. Returns (height, width, 3)."""
    small: Frame = pygame.surfarray.array3d(pygame.transform.smoothscale(surface, size))
    return small.transpose(1, 0, 2)
