"""The process of a window with SDL's driver that draws on no screen. It is a module of its own because the process
imports it, and what the tests import takes seconds."""

import os
from multiprocessing.connection import Connection

from wm.report import window

SCRIPT = "WM_TEST_KEYS"  # for each frame a key that goes down or, with a minus, up; "close" closes the window
serve = window._serve


def serve_unseen(pipe: Connection, title: str) -> None:
    """`serve` in a process of its own, with the driver that it refuses to take for a window."""
    import pygame

    script, flip = iter(os.environ[SCRIPT].split(",")), pygame.display.flip

    def flip_and_press() -> None:
        flip()
        assert pygame.display.get_caption()[0] == title
        for word in next(script, "").split():
            kind = pygame.KEYUP if word.startswith("-") else pygame.KEYDOWN
            key = word.removeprefix("-")
            event = (pygame.QUIT, {}) if key == "close" else (kind, {"key": pygame.key.key_code(key)})
            pygame.event.post(pygame.event.Event(*event))

    pygame.display.flip = flip_and_press
    window._open_display = _open_unseen
    serve(pipe, title)


def _open_unseen() -> str:
    import pygame

    os.environ["SDL_VIDEODRIVER"] = "dummy"
    pygame.display.init()
    return ""
