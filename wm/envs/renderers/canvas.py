"""A canvas on which little moves: the background is drawn and shrunk once, then only what changes."""

from collections.abc import Callable

import numpy as np
import pygame
from numpy.typing import NDArray

from wm.envs.resize import AreaResize, Frame

_MARGIN = 4  # pixels around the corners that antialiasing, circles and rounding may change


class Canvas:
    """A pygame surface, drawn upside down as gymnasium does, whose (size, size, 3) frame is the exact area average."""

    def __init__(self, width: int, height: int, size: int) -> None:
        self.surface = pygame.Surface((width, height))
        self._background = pygame.Surface((width, height))
        self._resize = AreaResize(height, width, 3, size)
        self._changed = pygame.Rect(0, 0, 0, 0)

    def set_background(self, draw: Callable[[pygame.Surface], None]) -> None:
        """Draw a new background, and clear the canvas."""
        draw(self._background)
        self.surface.blit(self._background, (0, 0))
        self._background_frame = self._resize(np.ascontiguousarray(_pixels(self.surface)))
        self._changed = pygame.Rect(0, 0, 0, 0)

    def clear(self) -> None:
        """Restore the background."""
        self.surface.blit(self._background, self._changed, self._changed)

    def mark_changed(self, low: NDArray[np.floating], high: NDArray[np.floating]) -> pygame.Rect:
        """Call before corners between `low` and `high` (x, y) are drawn. Returns the rectangle that may change."""
        left, top = int(low[0]) - _MARGIN, int(low[1]) - _MARGIN
        changed = pygame.Rect(left, top, int(high[0]) + _MARGIN - left + 1, int(high[1]) + _MARGIN - top + 1)
        self._changed = changed.clip(self.surface.get_rect())
        return self._changed

    def frame(self) -> Frame:
        """The canvas, shrunk and upright."""
        frame, changed = self._background_frame.copy(), self._changed
        if changed.width and changed.height:
            self._resize.patch(frame, _pixels(self.surface), (changed.x, changed.y, changed.width, changed.height))
        return frame[::-1].copy()


def _pixels(surface: pygame.Surface) -> Frame:
    """(height, width, 3): a view, which locks the surface as long as it exists."""
    return pygame.surfarray.pixels3d(surface).transpose(1, 0, 2)
