"""A picture of which little moves: the background is drawn and shrunk once, then only what changes."""

from collections.abc import Callable

import numpy as np
import pygame
from numpy.typing import NDArray

from wm.envs.resize import AreaResize, Frame

_MARGIN = 4  # pixels around the corners that antialiasing, circles and rounding may touch


class Canvas:
    """A canvas, drawn upside down as gymnasium does, whose (size, size, 3) picture is the exact area average."""

    def __init__(self, width: int, height: int, size: int) -> None:
        self.canvas = pygame.Surface((width, height))
        self._background = pygame.Surface((width, height))
        self._resize = AreaResize(height, width, 3, size)
        self.drawn = pygame.Rect(0, 0, 0, 0)

    def begin(self, draw: Callable[[pygame.Surface], None]) -> None:
        """A new background."""
        draw(self._background)
        self.canvas.blit(self._background, (0, 0))
        self._still = self._resize(np.ascontiguousarray(_pixels(self.canvas)))
        self.drawn = pygame.Rect(0, 0, 0, 0)

    def wipe(self) -> None:
        """Only the background again."""
        self.canvas.blit(self._background, self.drawn, self.drawn)

    def drawing(self, low: NDArray[np.floating], high: NDArray[np.floating]) -> pygame.Rect:
        """Announce that corners between `low` and `high` (x, y) are drawn. Returns the rectangle that may change."""
        left, top = int(low[0]) - _MARGIN, int(low[1]) - _MARGIN
        found = pygame.Rect(left, top, int(high[0]) + _MARGIN - left + 1, int(high[1]) + _MARGIN - top + 1)
        self.drawn = found.clip(self.canvas.get_rect())
        return self.drawn

    def picture(self) -> Frame:
        """The canvas as it is, small and upright."""
        small = self._still.copy()
        if self.drawn.width and self.drawn.height:
            self._resize.patch(
                small, _pixels(self.canvas), (self.drawn.x, self.drawn.y, self.drawn.width, self.drawn.height)
            )
        return small[::-1].copy()


def _pixels(surface: pygame.Surface) -> Frame:
    """(height, width, 3): a view that locks the surface while it lives."""
    return pygame.surfarray.pixels3d(surface).transpose(1, 0, 2)
