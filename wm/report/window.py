"""A window on the screen, in a process of its own: environments render with the same library, but off the screen."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from wm.errors import UsageProblem
from wm.rollouts.worker_process import outside_working_folder

_UNSEEN = ("offscreen", "dummy")  # SDL's drivers that nobody sees, which it takes where no other one works
# Names of pygame that differ from those of browsers.
KEYS = {"left": "ArrowLeft", "right": "ArrowRight", "up": "ArrowUp", "down": "ArrowDown", "space": " "}


def no_window(reason: str) -> str:
    """The sentence for it."""
    return f"--real needs a window, but {reason}; run it where there is a display."


def why_no_window() -> str:
    """Why no window can be opened on this machine; empty if one can."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)"
    return ""


def _serve(pipe: Connection, title: str) -> None:
    """Say why there is no window, empty if there is one, and show it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches this process too; the other one then ends it
    os.environ.pop("SDL_VIDEODRIVER", None)
    os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "1"
    reason = _open_display()
    with suppress(EOFError, OSError):  # the other side is gone
        pipe.send(reason)
        if not reason:
            _show_frames(pipe, title)


def _open_display() -> str:
    """Why nobody would see a window; empty if somebody does."""
    try:
        import pygame

        pygame.display.init()
    except (ImportError, RuntimeError) as error:  # pygame.error is a RuntimeError
        return f"pygame cannot open one ({str(error)[:100]})"
    driver = pygame.display.get_driver()
    return f"the display cannot be opened, and pygame draws {driver}" if driver in _UNSEEN else ""


def _show_frames(pipe: Connection, title: str) -> None:
    """Show the frames that come, and send the keys that are held whenever they change, until the window is closed."""
    import pygame

    screen, pressed = None, list[str]()
    while True:
        if pipe.poll(0.05):
            frame = pipe.recv()
            surface = pygame.surfarray.make_surface(frame.swapaxes(0, 1))
            if screen is None:
                screen = pygame.display.set_mode(surface.get_size())
                pygame.display.set_caption(title)
            screen.blit(surface, (0, 0))
            pygame.display.flip()
        for event in pygame.event.get() if screen is not None else ():
            if event.type == pygame.QUIT:
                return
            if event.type in (pygame.KEYDOWN, pygame.KEYUP):
                name = pygame.key.name(event.key)
                pressed = [key for key in pressed if key != KEYS.get(name, name)]
                pressed += [KEYS.get(name, name)] if event.type == pygame.KEYDOWN else []
                pipe.send(pressed)


class Window:
    """Shows frames until it is closed, by this process or by the user. Raises UsageProblem where none can be opened."""

    def __init__(self, title: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(other_end, title), daemon=True)
        with outside_working_folder():
            self._process.start()
        other_end.close()
        self._pressed = list[str]()
        try:
            reason = self._pipe.recv()
        except EOFError:
            reason = "its process ended at once"
        if reason:
            raise UsageProblem(no_window(reason))

    @property
    def open(self) -> bool:
        """Whether it has not been closed."""
        return self._process.is_alive()

    def show(self, frame: NDArray[np.uint8]) -> None:
        """Show an (H, W, 3) frame; a closed window ignores it."""
        try:
            self._pipe.send(frame)
        except OSError:
            self._process.join(timeout=1)

    def keys(self) -> Sequence[str]:
        """The keys that are held, in the order in which they were pressed, with the names that browsers give them."""
        try:
            while self._pipe.poll():
                self._pressed = self._pipe.recv()
        except (OSError, EOFError):
            self._pressed = []
        return self._pressed

    def wait(self, seconds: float) -> None:
        """Return after this time, or when the window is closed."""
        self._process.join(timeout=max(seconds, 0))

    def __enter__(self) -> "Window":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.join(timeout=5)
        self._process.kill()
