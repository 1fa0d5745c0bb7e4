"""Atari with a faster reset. Gymnasium loads the ROM again to seed an episode, which takes as long as 300 steps.

Another seed changes only the state of the emulator's random generators. So the state after the first load is kept, and
a reset restores it with the generators of the new seed. Each environment checks at first that the seed of its load
gives that state again, and that the state goes on as after a load; a test compares whole episodes with gymnasium's.
Where a check fails, as in Q*bert or with another version of the emulator, every reset loads the ROM.
"""

import re
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from ale_py.env import AtariEnv
from numpy.typing import NDArray

from wm.envs.palette_resize import PaletteResize, gives_same_pixels, palette_of
from wm.envs.resize import AreaResize, Frame

_TOTAL = 24  # offset in a state of the number of bytes that follow
_FRAMES = 8  # after which two games that went on from one state are compared
_NOOPS = 16  # frames after which the previous episode's action is no longer repeated, sticky or not
# A Mersenne Twister as C++ writes it: 624 words and a position. The first one is the emulator's; the last is seeded.
_TWISTER = re.compile(rb"(?:\d+ ){624}\d+")
# Words of the screen. With 330 changes, pixels take 0.7 of the time of bands; with 2,200, 1.3 times as long.
_MANY = 1000


class Atari(AtariEnv):
    """Gymnasium's environment, but a seeded reset restores a state instead of loading the ROM.

    The observation is the screen in palette indices, in one buffer that every step overwrites; the renderer reads it
    before the next step.
    """

    _screen: NDArray[np.uint8] | None = None
    _played = False  # since the ROM was loaded

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ale.reset_game()
        self._first_state = self._state()
        self._first_screen = self._get_obs().copy()  # the emulator draws the next screen into the same array
        seed = self.ale.getInt("random_seed") % 2**32
        # Without these checks an emulator with another layout of its state would play other episodes, unnoticed.
        self._can_seed = _seeded(self._first_state, seed) == self._first_state and self._plays_alike()
        self.ale.reset_game()
        if not np.array_equal(self._get_obs(), self._first_screen):
            self.load_game()
            self.ale.reset_game()

    def _plays_alike(self) -> bool:
        """Whether the first state, restored after other frames, goes on as it does after a load. That of Q*bert does
        not: it depends on more than the emulator saves."""
        ends = []
        for _ in range(2):
            for _ in range(_FRAMES):
                self.ale.act(0)
            ends.append(self._state())
            self._restore_first()
        return ends[0] == ends[1]

    def _state(self) -> bytes:
        state: bytes = self.ale.cloneState(include_rng=True).serialize()
        return state

    def _restore_first(self) -> None:
        self.ale.restoreState(ale_py.ALEState(self._first_state))
        for _ in range(_NOOPS):  # the action being repeated is no part of a state
            self.ale.act(0)
        self.ale.restoreState(ale_py.ALEState(self._first_state))

    def _get_obs(self) -> NDArray[np.uint8]:
        if self._screen is None:
            self._screen = self.ale.getScreen()
        self.ale.getScreen(self._screen)
        return self._screen

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        played, self._played = self._played, True
        if seed is None or not self._can_seed:
            return super().reset(seed=seed, options=options)
        gym.Env.reset(self, seed=seed, options=options)
        seeds = self.seed_game(seed)
        if played:
            self._restore_first()
        self.ale.restoreState(ale_py.ALEState(_seeded(self._first_state, seeds[1])))
        assert self._screen is not None
        self._screen[:] = self._first_screen  # neither is the screen
        return self._screen, {**self._get_info(), "seeds": seeds}


def _seeded(state: bytes, seed: int) -> bytes:
    """`state` with the random generator of `seed`, as after a load of the ROM; empty if it has no generator."""
    generators = list(_TWISTER.finditer(state))
    if not generators:
        return b""
    twister = np.random.MT19937()
    # ALE seeds its generator as C++ does, which is numpy's legacy seeding; it has no public name.
    twister._legacy_seeding(int(seed))
    key = twister.state["state"]["key"].tolist()
    text = " ".join(map(str, [*key, 624])).encode()
    start, end = generators[-1].span()
    # Two lengths in a state change with the text: that of the text, and at _TOTAL that of all that follows.
    total = len(state) - _TOTAL - 12 + len(text) - (end - start)
    changed = state[: start - 4] + len(text).to_bytes(4, "little") + text + state[end:]
    return changed[:_TOTAL] + total.to_bytes(4, "little") + changed[_TOTAL + 4 :]


class AtariRenderer:
    """Shrinks the emulator's screen. Little changes from one step to the next, so only output pixels with a change get
    new averages; where much changes, and at sizes whose averages may round otherwise, bands of rows do."""

    entry_point = Atari

    def __init__(self, env: Atari, size: int) -> None:
        self._ale = env.ale
        height, width = env.ale.getScreenDims()
        self._resize = AreaResize(height, width, 4, size, out_channels=3)
        self._by_pixel = PaletteResize(height, width, size) if gives_same_pixels(height, width, size) else None
        # Red, green, blue and 255 as one number; 0 where the color is not known yet.
        self._palette = np.zeros(256, np.uint32)
        # Nothing is known at first: each colour is looked up on the first screen that has it.
        self._known, self._float_palette = b"", palette_of(np.zeros((256, 4), np.uint8))
        self._previous = np.zeros((height, width), np.uint8)
        self._previous_words = self._previous.ravel().view(np.uint32)
        self._frame = np.zeros((size, size, 3), np.uint8)

    def begin(self) -> None:
        """Nothing to prepare."""

    def frame(self, observation: NDArray[np.uint8]) -> Frame:
        """The frame as (size, size, 3)."""
        if self._by_pixel is None or not self._redo_pixels(self._by_pixel, observation):
            self._redo_bands(observation)
        return self._frame.copy()

    def _redo_pixels(self, by_pixel: PaletteResize, observation: NDArray[np.uint8]) -> bool:
        """Bring the frame up to date. Returns False, and changes nothing, if that is for `_redo_bands`: at many changes
        or new colors."""
        screen = observation.ravel()
        screen_words = screen.view(np.uint32)
        changed = by_pixel.changed(screen_words, self._previous_words)
        if len(changed) > _MANY:
            return False
        new = screen_words.take(changed)
        if new.tobytes().translate(None, self._known):
            return False
        self._previous_words[changed] = new
        by_pixel.redo(self._frame, screen, changed, self._float_palette)
        return True

    def _redo_bands(self, observation: NDArray[np.uint8]) -> None:
        bands = self._resize.bands(observation.view(np.uint64) != self._previous.view(np.uint64))
        if len(bands):
            self._previous[:] = observation
            source = observation[self._resize.sources[bands]]
            colors = self._palette.take(source)
            if not colors.all():
                self._learn_palette(observation)
                colors = self._palette.take(source)
            self._resize.redo(self._frame, bands, colors.view(np.uint8))

    def _learn_palette(self, observation: NDArray[np.uint8]) -> None:
        """The emulator has no call for its palette, only for the colors of a screen."""
        colors = np.full((*observation.shape, 4), 255, np.uint8)
        colors[..., :3] = self._ale.getScreenRGB()
        self._palette[observation] = colors.view(np.uint32)[..., 0]
        self._known = bytes(self._palette.nonzero()[0].tolist())
        self._float_palette = palette_of(self._palette.view(np.uint8).reshape(256, 4))
