"""The ground of a CarRacing track from above, drawn once for an episode: a frame is a turned cut-out of it.

The whole playfield, and the same at half the scale, a quarter and so on for the first second of an episode, in which
the camera comes down from high above. Road is drawn finer and averaged, part by part where there is road; the rest is
grass, which is the same in every episode.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pygame
from gymnasium.envs.box2d import car_racing
from numpy.typing import NDArray
from PIL import Image, ImageDraw

_FINE = 4  # drawn a side for one texel
_PART = 32  # texels a side of what is drawn at once
_LEVELS = 6
_AROUND = 64  # black texels around the playfield, so that its edge fades at every level
_SAMPLES = 2  # a side of one pixel of a cut-out
_DARKER = 2  # levels that gymnasium's shrinking takes from a picture, because it rounds down
_INNER = 0.9  # of a tile, drawn again in another color without touching what is beside it
Points = NDArray[np.float64]
Color = tuple[int, ...]


class TrackMap:
    """What lies on the ground, at `texels` a unit."""

    def __init__(self, texels: float) -> None:
        self._scale = texels
        self._fine = pygame.Surface((_PART * _FINE, _PART * _FINE), depth=32, masks=(0xFF, 0xFF00, 0xFF0000, 0))

    def begin(self, ground: Color, shade: Color, road: Points, colors: Sequence[Iterable[float]]) -> None:
        """A new track: quadrilaterals (N, 4, 2) in the world's units, on grass of two colors."""
        texels = _grass(self._scale, ground, shade).copy()
        squares = checkers()
        self._draw(texels, np.concatenate([_field(), squares, road]), [ground, *[shade] * len(squares), *colors], road)
        self._levels = [Image.fromarray(texels)]
        for _ in range(1, _LEVELS):
            self._levels.append(self._levels[-1].reduce(2))
        self._pencil = ImageDraw.Draw(self._levels[0])
        middles = road.mean(axis=1, keepdims=True)
        self._inner = self._placed(middles + (road - middles) * _INNER).reshape(len(road), -1).tolist()

    def recolor(self, number: int, color: Iterable[float]) -> None:
        """A tile of the road has another color now."""
        self._pencil.polygon(self._inner[number], tuple(max(int(part) - _DARKER, 0) for part in color))

    def seen(self, size: tuple[int, int], origin: Points, across: Points, down: Points) -> NDArray[np.uint8]:
        """(height, width, 3) of a `size` that is (width, height): the world from the corner `origin` on, with `across`
        and `down` the way from one pixel to the next."""
        level = min(max(round(math.log2(math.hypot(*across) * self._scale / 1.5)), 0), _LEVELS - 1)
        x, y = self._placed(origin) / 2**level
        (a, d), (b, e) = np.array([across, down]) * (self._scale / 2**level / _SAMPLES)
        finer = (size[0] * _SAMPLES, size[1] * _SAMPLES)
        # Pillow interpolates pixel by pixel; taking the nearest texel of four times as many places is faster.
        cut = self._levels[level].transform(finer, Image.Transform.AFFINE, (a, b, x, d, e, y), Image.Resampling.NEAREST)
        return np.asarray(cut.reduce(_SAMPLES))

    def _placed(self, points: Points) -> Points:
        """Points of the world on the map."""
        placed: Points = (points + car_racing.PLAYFIELD) * self._scale + _AROUND
        return placed

    def _draw(
        self, texels: NDArray[np.uint8], polygons: Points, colors: Sequence[Iterable[float]], where: Points
    ) -> None:
        """Draw those parts of the map that a polygon of `where` touches."""
        placed, there = self._placed(polygons), (self._placed(where) // _PART).astype(int)
        low, high = placed.min(axis=1), placed.max(axis=1)
        spans = zip(there.min(axis=1).tolist(), there.max(axis=1).tolist(), strict=True)
        parts = {(x, y) for a, b in spans for x in range(a[0], b[0] + 1) for y in range(a[1], b[1] + 1)}
        shades = [tuple(map(int, color)) for color in colors]
        side = _PART * _FINE
        for x, y in parts:
            corner = np.array([x * _PART, y * _PART])
            self._fine.fill((0, 0, 0))
            chosen = np.flatnonzero(((high > corner) & (low < corner + _PART)).all(axis=1))
            for number, points in zip(chosen.tolist(), ((placed[chosen] - corner) * _FINE).tolist(), strict=True):
                pygame.draw.polygon(self._fine, shades[number], points)
            drawn = Image.frombuffer("RGBX", (side, side), self._fine.get_buffer().raw, "raw", "RGBX", 0, 1)
            part = texels[y * _PART : (y + 1) * _PART, x * _PART : (x + 1) * _PART]
            shown = np.asarray(drawn.reduce(_FINE))[: part.shape[0], : part.shape[1], :3]
            part[:] = np.maximum(shown, _DARKER) - _DARKER


def checkers() -> Points:
    """The squares (N, 4, 2) of lighter grass, as gymnasium lays them."""
    dim = car_racing.GRASS_DIM
    corner = np.array([(dim * x, dim * y) for x in range(-20, 20, 2) for y in range(-20, 20, 2)])
    squares: Points = corner[:, None] + np.array([(dim, 0), (0, 0), (0, dim), (dim, dim)])
    return squares


def _field() -> Points:
    edge = car_racing.PLAYFIELD
    return np.array([[(-edge, -edge), (edge, -edge), (edge, edge), (-edge, edge)]])


@lru_cache(maxsize=1)
def _grass(texels: float, ground: Color, shade: Color) -> NDArray[np.uint8]:
    """A map without a road, (side, side, 3)."""
    squares = checkers()
    side = math.ceil(2 * (car_racing.PLAYFIELD * texels + _AROUND))
    found = np.zeros((side, side, 3), np.uint8)
    TrackMap(texels)._draw(found, np.concatenate([_field(), squares]), [ground, *[shade] * len(squares)], _field())
    return found
