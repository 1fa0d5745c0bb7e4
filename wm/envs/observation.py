"""What a frame shows of the rendered image: the image itself, its foreground, or motion; all of it, or with a mask."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from wm.masks import masked_rows
from wm.seeding import generator

Frame = NDArray[np.uint8]
LAG = 4  # steps of the environment, in which a lander falls some three pixels
# Grey levels a step. With 2, broken bricks stay visible for a hundred steps; with 6, a paddle that rests disappears
# sooner (a linear probe reads it in random play with R2 0.59, and with 0.89 at 2).
ADAPTATION = 4
OBSERVATIONS = {
    "rgb": "",
    "foreground": "the difference to a slowly adapting background",
    "motion": f"grey-level differences to an episode's first frame at t, t-{LAG} and t-{2 * LAG}",
}
FLICKER = 0.5  # the share of blank frames, as in Hausknecht & Stone (2015)
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601


class Observation:
    """Transforms an episode's images (size, size, 3 or 1) uint8, one after the other.

    `foreground` subtracts a background that adapts to each pixel by up to `ADAPTATION` levels a step (a sigma-delta
    estimate, Manzanera & Richefeu 2004). So what stands still disappears after a while, such as a wall with gaps.
    `motion` has three channels: the grey-level differences to the episode's first image now, `LAG` steps and twice
    that many steps ago; where an action is repeated for more than `LAG` steps, one and two actions ago. In both, 128 is
    no difference and one level stands for two of brightness.
    """

    def __init__(self, kind: str, gray: bool, action_repeat: int = 1) -> None:
        self._kind, self._to_gray = kind, gray or kind == "motion"
        self._background: NDArray[np.int16] | None = None
        self._lag = max(1, LAG // action_repeat)  # images, of which each step of an agent shows one
        self._past: deque[Frame] = deque(maxlen=2 * self._lag + 1)

    def begin(self) -> None:
        """A new episode begins with the next image."""
        self._background = None

    def __call__(self, image: Frame) -> Frame:
        """The frame of the next image."""
        if self._to_gray and image.shape[-1] == 3:
            # Half a level, because the cast to uint8 cuts off.
            image = (image @ _LUMA + 0.5).astype(np.uint8)[..., None]
        if self._kind == "rgb":
            return image
        if self._background is None:
            # int16: a difference of two bytes does not fit a byte.
            self._background = image.astype(np.int16)
            # 128 stands for no difference. The past of a first frame is the same as a frame without motion.
            self._past.extend([np.full(image.shape, 128, np.uint8)] * (2 * self._lag + 1))
        difference = image - self._background
        # Halved, so that differences from -255 to 255 fit a byte.
        change: Frame = (128 + difference // 2).astype(np.uint8)
        if self._kind == "foreground":
            self._background += np.clip(difference, -ADAPTATION, ADAPTATION)
            return change
        self._past.append(change)
        return np.concatenate([self._past[-1 - lag] for lag in (0, self._lag, 2 * self._lag)], axis=-1)


class Mask:
    """Hides parts of what there is to see: `flicker` blanks whole frames at random, `12-88` the rows between these
    percentages of the height. Blank is black, or no difference where frames show differences."""

    def __init__(self, mask: str, observation: str) -> None:
        self._flickers, self._rows = mask == "flicker", masked_rows(mask)
        # What hides must look like nothing: black in a picture, no difference in an image of differences.
        self._blank = 0 if observation == "rgb" else 128
        self._random = np.random.default_rng()

    def begin(self, seed: int | None) -> None:
        """A new episode begins with the next frame. Without a seed, chance goes on."""
        if seed is not None:
            # A stream of its own: with it blank frames do not depend on what the environment draws at random.
            self._random = generator(seed, "mask")

    def __call__(self, frame: Frame) -> Frame:
        """What is left of the frame."""
        if self._flickers:
            return np.full_like(frame, self._blank) if self._random.random() < FLICKER else frame
        if self._rows is not None:
            first, end = (round(len(frame) * percent / 100) for percent in self._rows)
            # A copy: the renderer may keep its frame and draw the next one over it.
            frame = frame.copy()
            frame[first:end] = self._blank
        return frame
