"""A pre-rendered texture of a CarRacing track, drawn once per episode: a frame is a rotated crop of it.

It holds the whole playfield at several scales, each half of the one before, because the camera zooms in during an
episode's first second. Tiles with road are drawn at four times the resolution and averaged. The rest is grass, which
is the same in every episode.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pygame
from gymnasium.envs.box2d import car_racing
from numpy.typing import NDArray
from PIL import Image, ImageDraw

_FINE = 4  # pixels drawn along each side of a texel
_BLOCK = 32  # texels along each side of a block that is drawn at once
# The camera begins 27 times as far away as it ends (gymnasium's zoom 0.1 and 2.7), and 2**5 is 32.
_LEVELS = 6
_BORDER = 64  # black texels around the playfield, so that its edge is smooth at every level
_SAMPLES = 2  # samples along each side of a pixel of a crop
_DARKER = 2  # levels by which gymnasium's shrinking darkens a frame, because it rounds down
_INNER = 0.9  # share of a tile's sides that is redrawn in another color without touching its neighbours
Points = NDArray[np.float64]
Color = tuple[int, ...]


class TrackMap:
    """The ground of a track with `texels` per unit of the world."""

    def __init__(self, texels: float) -> None:
        self._scale = texels
        self._fine = pygame.Surface((_BLOCK * _FINE, _BLOCK * _FINE), depth=32, masks=(0xFF, 0xFF00, 0xFF0000, 0))

    def begin(self, ground: Color, shade: Color, road: Points, colors: Sequence[Iterable[float]]) -> None:
        """Draw a new track: quadrilaterals (N, 4, 2) in world coordinates, on grass of two colors."""
        texels = _grass(self._scale, ground, shade).copy()
        squares = grass_squares()
        self._draw(texels, np.concatenate([_field(), squares, road]), [ground, *[shade] * len(squares), *colors], road)
        self._levels = [Image.fromarray(texels)]
        for _ in range(1, _LEVELS):
            self._levels.append(self._levels[-1].reduce(2))
        self._drawing = ImageDraw.Draw(self._levels[0])
        middles = road.mean(axis=1, keepdims=True)
        self._inner = self._to_texels(middles + (road - middles) * _INNER).reshape(len(road), -1).tolist()

    def recolor(self, number: int, color: Iterable[float]) -> None:
        """Draw a tile of the road in another color: without it, V's z differs by 0.11 from exact instead of 0.06."""
        self._drawing.polygon(self._inner[number], tuple(max(int(part) - _DARKER, 0) for part in color))

    def crop(self, size: tuple[int, int], origin: Points, across: Points, down: Points) -> NDArray[np.uint8]:
        """Crop the rectangle with the corner `origin` in world coordinates; `across` and `down` lead from one pixel to
        the next. `size` is (width, height), the result (height, width, 3)."""
        # With 1.5 a pixel spans 1.06 to 2.1 texels of its level, about the two samples that it takes.
        level = min(max(round(math.log2(math.hypot(*across) * self._scale / 1.5)), 0), _LEVELS - 1)
        x, y = self._to_texels(origin) / 2**level
        (a, d), (b, e) = np.array([across, down]) * (self._scale / 2**level / _SAMPLES)
        finer = (size[0] * _SAMPLES, size[1] * _SAMPLES)
        # Nearest texels of four samples per pixel are faster than Pillow's interpolation.
        samples = self._levels[level].transform(
            finer, Image.Transform.AFFINE, (a, b, x, d, e, y), Image.Resampling.NEAREST
        )
        return np.asarray(samples.reduce(_SAMPLES))

    def _to_texels(self, points: Points) -> Points:
        """World coordinates -> texel coordinates."""
        texels: Points = (points + car_racing.PLAYFIELD) * self._scale + _BORDER
        return texels

    def _draw(
        self, texels: NDArray[np.uint8], polygons: Points, colors: Sequence[Iterable[float]], where: Points
    ) -> None:
        """Draw the blocks of the map that a polygon of `where` touches."""
        corners, blocks = self._to_texels(polygons), (self._to_texels(where) // _BLOCK).astype(int)
        low, high = corners.min(axis=1), corners.max(axis=1)
        spans = zip(blocks.min(axis=1).tolist(), blocks.max(axis=1).tolist(), strict=True)
        touched = {(x, y) for a, b in spans for x in range(a[0], b[0] + 1) for y in range(a[1], b[1] + 1)}
        shades = [tuple(map(int, color)) for color in colors]
        side = _BLOCK * _FINE
        for x, y in touched:
            corner = np.array([x * _BLOCK, y * _BLOCK])
            self._fine.fill((0, 0, 0))
            inside = np.flatnonzero(((high > corner) & (low < corner + _BLOCK)).all(axis=1))
            for number, points in zip(inside.tolist(), ((corners[inside] - corner) * _FINE).tolist(), strict=True):
                pygame.draw.polygon(self._fine, shades[number], points)
            drawn = Image.frombuffer("RGBX", (side, side), self._fine.get_buffer().raw, "raw", "RGBX", 0, 1)
            block = texels[y * _BLOCK : (y + 1) * _BLOCK, x * _BLOCK : (x + 1) * _BLOCK]
            averaged = np.asarray(drawn.reduce(_FINE))[: block.shape[0], : block.shape[1], :3]
            block[:] = np.maximum(averaged, _DARKER) - _DARKER


def grass_squares() -> Points:
    """Gymnasium's squares (N, 4, 2) of lighter grass."""
    dim = car_racing.GRASS_DIM
    corner = np.array([(dim * x, dim * y) for x in range(-20, 20, 2) for y in range(-20, 20, 2)])
    squares: Points = corner[:, None] + np.array([(dim, 0), (0, 0), (0, dim), (dim, dim)])
    return squares


def _field() -> Points:
    edge = car_racing.PLAYFIELD
    return np.array([[(-edge, -edge), (edge, -edge), (edge, edge), (-edge, edge)]])


@lru_cache(maxsize=1)
def _grass(texels: float, ground: Color, shade: Color) -> NDArray[np.uint8]:
    """The texels (side, side, 3) of a map without a road."""
    squares = grass_squares()
    side = math.ceil(2 * (car_racing.PLAYFIELD * texels + _BORDER))
    grass = np.zeros((side, side, 3), np.uint8)
    TrackMap(texels)._draw(grass, np.concatenate([_field(), squares]), [ground, *[shade] * len(squares)], _field())
    return grass
