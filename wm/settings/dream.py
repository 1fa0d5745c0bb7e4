"""Settings of `wm dream`."""

from dataclasses import dataclass

from wm.settings.base import LONGEST, MOST_IN_BATCH, Settings, setting


@dataclass(frozen=True, kw_only=True)
class DreamSettings(Settings):
    """`wm dream`: dreams beside real episodes, in pictures and in figures."""

    agent: str = setting("controller", "Name of the controller, or of the Dreamer, that acts.", section="Dream")
    # 1 is M's own distribution.
    temperature: float = setting(
        1.0, "Above 1 the dream is more random, below 1 less.", low=0.01, high=10.0, section="Dream"
    )
    # As many as a candidate of a search has, so that figures of both compare.
    dreams: int = setting(32, "Dreams per controller of the comparison.", low=2, high=MOST_IN_BATCH, section="Dream")
    # 500 steps: in 300 the variance of dreamt latents is 2.6 times the real one in CarRacing (2026-11-21).
    max_steps: int = setting(
        500, "Longest dream and longest real episode of the comparison.", low=1, high=LONGEST, section="Dream"
    )
