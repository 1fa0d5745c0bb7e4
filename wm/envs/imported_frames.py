"""Pictures that others recorded, as the frames that collecting would have stored."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.envs.observation import Observation
from wm.envs.registry import EnvConfig
from wm.envs.resize import AreaResize, Frame
from wm.envs.rgb import to_rgb


class ImportedFrames:
    """Shrinks an episode's pictures as an environment's are (area average), and shows what its observation shows."""

    def __init__(self, env: EnvConfig) -> None:
        """Raises UsageProblem for motion in gray."""
        env.require_channels()
        self.env = env
        self._observe = Observation(env.observation, env.gray, env.action_repeat)
        self._resize: AreaResize | None = None

    def begin(self) -> None:
        """A new episode begins with the next picture."""
        self._observe.begin()

    def __call__(self, picture: NDArray[Any], what: str) -> Frame:
        """The frame (size, size, 3 or 1) uint8 of a picture (H, W, 3 or 1) uint8, whose sides are at least `size`.
        `what` names the picture in the sentence of an EnvironmentFault."""
        image = to_rgb(picture, what)
        if self._resize is None or self._resize.shape != image.shape:
            height, width, channels = image.shape
            self._resize = AreaResize(height, width, channels, self.env.size)
        return np.array(self._observe(self._resize(image)))
