"""Pixels: every environment shows square uint8 frames, shrunk by exact area averaging."""

from collections import deque
from typing import Any, Protocol, SupportsFloat

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from wm.envs.labels import Probe
from wm.errors import UsageProblem

Frame = NDArray[np.uint8]
AGO = 4  # steps, in which a lander falls some three pixels
FOLLOWS = 4  # levels a step, so that a brick that is gone, or a paddle that rests, is background after some fifty
SHOWN = {
    "picture": "",
    "changes": "what has changed since an episode's first frame",
    "moving": "what differs from a background that slowly follows the picture",
    "motion": f"what has changed since an episode's first frame now, {AGO} and {2 * AGO} steps ago, in gray",
}
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601


def _area_weights(length: int, size: int) -> NDArray[np.float32]:
    """(size, length): row i averages the source pixels, whole or in part, that output pixel i covers."""
    edges = np.linspace(0, length, size + 1)
    left, right = edges[:-1, None], edges[1:, None]
    source = np.arange(length)[None]
    covered = np.clip(np.minimum(right, source + 1) - np.maximum(left, source), 0, None)
    return (covered * size / length).astype(np.float32)


def _covered(start: int, length: int, source: int, size: int) -> tuple[slice, slice]:
    """The output pixels that source pixels start..start + length touch, and all source pixels these cover."""
    first, last = start * size // source, -(-(start + length) * size // source)
    return slice(first, last), slice(first * source // size, -(-last * source // size))


class AreaResize:
    """Shrink (height, width, C) uint8 frames to (size, size, C).

    The weights form a narrow band, so rows are averaged band by band and columns block by block with small matrix
    products, which is about three times as fast as Pillow (benchmarks/resize_pong.py). The result is the exact
    area average, rounded.
    """

    def __init__(self, height: int, width: int, channels: int, size: int, kept: int = 0) -> None:
        """`kept` is how many of the channels come out (0: all)."""
        self.shape = (height, width, channels)
        self.size, self.kept = size, kept or channels
        self._tall, self._wide = _area_weights(height, size), _area_weights(width, size)
        bands = max(divisor for divisor in range(1, 17) if size % divisor == 0)
        tall = self._tall.reshape(bands, size // bands, height)
        first = [int(np.flatnonzero(band.any(axis=0))[0]) for band in tall]
        last = [int(np.flatnonzero(band.any(axis=0))[-1]) for band in tall]
        span = max(end - start for start, end in zip(first, last, strict=True)) + 1
        starts = np.minimum(first, height - span)
        self.sources = starts[:, None] + np.arange(span)  # (bands, span): the source rows that each band averages
        self._rows = np.stack(
            [band[:, start : start + span] for band, start in zip(tall, starts, strict=True)]
        )  # (bands, size / bands, span)
        self._buffer = np.empty((bands, span, width * channels), np.float32)
        self._edges = np.stack([starts, starts + span], axis=1).ravel()[:-1]

        self._blocks = int(np.gcd(width, size))
        block = self._wide[: size // self._blocks, : width // self._blocks]
        self._columns = np.ascontiguousarray(np.kron(block.T, np.eye(channels, self.kept, dtype=np.float32)))

    def __call__(self, frame: Frame) -> Frame:
        height, width, channels = self.shape
        flat = frame.reshape(height, width * channels)
        for number, rows in enumerate(self.sources):
            self._buffer[number] = flat[rows[0] : rows[0] + len(rows)]
        return self._shrunk(self._rows, self._buffer).reshape(self.size, self.size, self.kept)

    def _shrunk(self, weights: NDArray[np.float32], source: NDArray[np.float32]) -> Frame:
        rows = np.matmul(weights, source)  # (bands, size / bands, width * channels)
        small = rows.reshape(rows.shape[0] * rows.shape[1] * self._blocks, -1) @ self._columns
        small += 0.5
        return small.astype(np.uint8)

    def bands(self, changed: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The bands that average a source row in which something `changed`, (height, any number)."""
        # From edge to edge; every other stretch is a band's, and the last band ends where the picture ends.
        touched: NDArray[np.bool_] = np.logical_or.reduceat(changed.ravel(), self._edges * changed.shape[1])[::2]
        return touched.nonzero()[0]

    def redo(self, small: Frame, bands: NDArray[np.int64], source: NDArray[np.uint8]) -> None:
        """Compute some bands of `small` again from their source rows, (len(bands), span, width, C)."""
        buffer = self._buffer[: len(bands)]
        buffer[:] = source.reshape(buffer.shape)
        by_band = small.reshape(len(self.sources), -1)
        by_band[bands] = self._shrunk(self._rows[bands], buffer).reshape(len(bands), -1)

    def patch(self, small: Frame, frame: Frame, changed: tuple[int, int, int, int]) -> None:
        """Compute again what `small` shows of the rectangle (left, top, width, height) of `frame`."""
        left, top, wide, tall = changed
        rows, ys = _covered(top, tall, self.shape[0], self.size)
        columns, xs = _covered(left, wide, self.shape[1], self.size)
        source = frame[ys, xs].astype(np.float32)
        height, width, channels = source.shape
        thin = (self._tall[rows, ys] @ source.reshape(height, -1)).reshape(-1, width, channels)
        small[rows, columns] = np.matmul(self._wide[columns, xs], thin) + 0.5


class Renderer(Protocol):
    """Shows the state of one environment."""

    def begin(self) -> None:
        """A new episode has begun."""

    def frame(self, observation: Any) -> Frame:
        """The picture after the step that gave `observation`, as (size, size, 3 or 1), owned by the caller."""


class GymnasiumRenderer:
    """The picture that gymnasium shows: its observation, or else what its `render` returns."""

    def __init__(self, env: gym.Env[Any, Any], size: int, observed: bool) -> None:
        self.env, self.size, self.observed = env, size, observed
        self._resize: AreaResize | None = None

    def begin(self) -> None:
        """Nothing to prepare."""

    def frame(self, observation: Any) -> Frame:
        """The picture, shrunk."""
        picture = observation if self.observed else self.env.render()
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise UsageProblem(f"{self.env} shows no pixels; expected an (H, W, 3) picture from render().")
        if self._resize is None or self._resize.shape != picture.shape:
            height, width, channels = picture.shape
            self._resize = AreaResize(height, width, channels, self.size)
        return self._resize(picture)


class PixelEnv(gym.Env[Frame, Any]):
    """A gymnasium environment that shows (size, size, 3 or 1) uint8 frames, as its painter draws them.

    `show` says what a frame is: the `picture`; its `changes` since the episode's first, 128 being no change and a step
    of one two levels of brightness, so that what stands still in an episode is gone, such as a landscape; `moving`,
    the same against a background that follows each pixel by up to `FOLLOWS` levels a step (as in Manzanera & Richefeu
    2004), so that what stands still is gone after a while, such as a wall that bricks were shot from; or `motion`, in
    three channels the changes in gray now, `AGO` steps ago and twice that long ago.
    With `action_repeat`, a step takes that many of the environment's, whose rewards add up, and the last is shown.
    Where a probe is given, `info["labels"]` holds what the environment knows beyond its pixels, for probes only.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        painter: Renderer,
        *,
        size: int,
        gray: bool,
        show: str,
        probe: Probe | None,
        action_repeat: int = 1,
    ) -> None:
        self.env, self.painter, self._show, self._repeat = env, painter, show, action_repeat
        self._ground: NDArray[np.int16] | None = None
        self._past: deque[Frame] = deque(maxlen=2 * AGO + 1)
        self.size, self.gray = size, gray
        self.action_space = env.action_space
        self.observation_space = gym.spaces.Box(0, 255, (size, size, 1 if gray else 3), np.uint8)
        self.label_names: tuple[str, ...] = probe.names if probe else ()
        self._labels = probe.bind(env.unwrapped) if probe else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.painter.begin()
        self._ground = None
        return self._frame(observation), self._labelled(info, observation)

    def step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        for _ in range(self._repeat - 1):
            if terminated or truncated:
                break
            observation, more, terminated, truncated, info = self.env.step(action)
            reward = float(reward) + float(more)
        return self._frame(observation), reward, terminated, truncated, self._labelled(info, observation)

    def close(self) -> None:
        self.env.close()

    def _labelled(self, info: dict[str, Any], observation: Any) -> dict[str, Any]:
        if self._labels is not None:
            info["labels"] = self._labels(observation)
        return info

    def _frame(self, observation: Any) -> Frame:
        frame = self.painter.frame(observation)
        if (self.gray or self._show == "motion") and frame.shape[-1] == 3:
            frame = (frame @ _LUMA + 0.5).astype(np.uint8)[..., None]
        if self._show == "picture":
            return frame
        if self._ground is None:
            self._ground = frame.astype(np.int16)
            self._past.extend([np.full(frame.shape, 128, np.uint8)] * (2 * AGO + 1))
        difference = frame - self._ground
        change: Frame = (128 + difference // 2).astype(np.uint8)
        if self._show == "moving":
            self._ground += np.clip(difference, -FOLLOWS, FOLLOWS)
        if self._show != "motion":
            return change
        self._past.append(change)
        return np.concatenate([self._past[-1 - ago] for ago in (0, AGO, 2 * AGO)], axis=-1)
