"""Atari, begun faster. Gymnasium's way to seed an episode is to load the ROM again, which takes as long as 300 steps.

What a load with another seed changes is the seed of the emulator's random numbers alone. So the state after the first
load is kept, and an episode begins by restoring it with the random numbers of its own seed put in. Whether that is
the very state a load would give is checked on the first one, where both are known; a test compares whole episodes
with gymnasium's. Where the check fails (another emulator), every episode loads the ROM, as in gymnasium.
"""

import re
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from ale_py.env import AtariEnv
from numpy.typing import NDArray

from wm.envs.resize import AreaResize, Frame

_TOTAL = 24  # where a state holds the size of what follows that number
_NOOPS = 16  # frames after which a held action has been let go, sticky or not
# A Mersenne Twister as C++ writes it: 624 words and a position. The emulator's own comes first, the seeded one last.
_TWISTER = re.compile(rb"(?:\d+ ){624}\d+")


class Atari(AtariEnv):
    """Gymnasium's, but a seeded reset restores a state instead of loading the ROM, and the observation is the screen
    in color numbers, in one buffer that is drawn into again and again: the renderer reads it before the next step."""

    _first: bytes | None = None  # the state after the first load, and what it shows
    _first_screen: NDArray[np.uint8]
    _fits = False
    _screen: NDArray[np.uint8] | None = None

    def _get_obs(self) -> NDArray[np.uint8]:
        if self._screen is None:
            self._screen = self.ale.getScreen()
        self.ale.getScreen(self._screen)
        return self._screen

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is None or self._first is None or not self._fits:
            screen, info = super().reset(seed=seed, options=options)
            if seed is not None and self._first is None:
                self._first, self._first_screen = self.ale.cloneState(include_rng=True).serialize(), screen.copy()
                self._fits = _seeded(self._first, info["seeds"][1]) == self._first
            return screen, info
        gym.Env.reset(self, seed=seed, options=options)
        seeds = self.seed_game(seed)
        self.ale.restoreState(ale_py.ALEState(self._first))
        for _ in range(_NOOPS):  # the action held is no part of a state
            self.ale.act(0)
        self.ale.restoreState(ale_py.ALEState(_seeded(self._first, seeds[1])))
        assert self._screen is not None
        self._screen[:] = self._first_screen  # nor is the screen
        return self._screen, {**self._get_info(), "seeds": seeds}


def _seeded(state: bytes, seed: int) -> bytes:
    """`state` with the random numbers of `seed`, as if the ROM had been loaded with it; empty if it cannot be told."""
    found = list(_TWISTER.finditer(state))
    if not found:
        return b""
    twister = np.random.MT19937()
    twister._legacy_seeding(int(seed))
    key = twister.state["state"]["key"].tolist()
    text = " ".join(map(str, [*key, 624])).encode()
    start, end = found[-1].span()
    total = len(state) - _TOTAL - 12 + len(text) - (end - start)
    changed = state[: start - 4] + len(text).to_bytes(4, "little") + text + state[end:]
    return changed[:_TOTAL] + total.to_bytes(4, "little") + changed[_TOTAL + 4 :]


class AtariRenderer:
    """Shrinks the emulator's screen. From one step to the next little of it changes, so only bands with a change are
    looked up in the palette and averaged again."""

    entry_point = Atari

    def __init__(self, env: Atari, size: int) -> None:
        self._ale = env.ale
        height, width = env.ale.getScreenDims()
        self._resize = AreaResize(height, width, 4, size, kept=3)
        # Red, green, blue and 255 as one number; 0 for a color not seen yet.
        self._palette = np.zeros(256, np.uint32)
        self._before = np.zeros((height, width), np.uint8)
        self._small = np.zeros((size, size, 3), np.uint8)

    def begin(self) -> None:
        """Nothing to prepare."""

    def frame(self, observation: NDArray[np.uint8]) -> Frame:
        """The picture as (size, size, 3)."""
        bands = self._resize.bands(observation.view(np.uint64) != self._before.view(np.uint64))
        if len(bands):
            self._before[:] = observation
            source = observation[self._resize.sources[bands]]
            colors = self._palette.take(source)
            if not colors.all():
                self._learn_palette(observation)
                colors = self._palette.take(source)
            self._resize.redo(self._small, bands, colors.view(np.uint8))
        return self._small.copy()

    def _learn_palette(self, observation: NDArray[np.uint8]) -> None:
        """The emulator tells the colors of a screen, not of its palette."""
        colors = np.full((*observation.shape, 4), 255, np.uint8)
        colors[..., :3] = self._ale.getScreenRGB()
        self._palette[observation] = colors.view(np.uint32)[..., 0]
