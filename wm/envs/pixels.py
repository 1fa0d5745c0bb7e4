"""Pixels: every environment shows square uint8 frames, shrunk by exact area averaging."""

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from wm.envs.labels import Probe
from wm.errors import UsageProblem

Frame = NDArray[np.uint8]
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601


def _area_weights(length: int, size: int) -> NDArray[np.float32]:
    """(size, length): row i averages the source pixels, whole or in part, that output pixel i covers."""
    edges = np.linspace(0, length, size + 1)
    left, right = edges[:-1, None], edges[1:, None]
    source = np.arange(length)[None]
    covered = np.clip(np.minimum(right, source + 1) - np.maximum(left, source), 0, None)
    return (covered * size / length).astype(np.float32)


class AreaResize:
    """Shrink (height, width, C) uint8 frames to (size, size, C).

    The weights form a narrow band, so rows are averaged band by band and columns block by block with small matrix
    products, which is about three times as fast as Pillow (benchmarks/resize_pong.py). The result is the exact
    area average, rounded.
    """

    def __init__(self, height: int, width: int, channels: int, size: int) -> None:
        self.shape = (height, width, channels)
        self.size = size
        bands = max(divisor for divisor in range(1, 17) if size % divisor == 0)
        tall = _area_weights(height, size).reshape(bands, size // bands, height)
        first = [int(np.flatnonzero(band.any(axis=0))[0]) for band in tall]
        last = [int(np.flatnonzero(band.any(axis=0))[-1]) for band in tall]
        span = max(end - start for start, end in zip(first, last, strict=True)) + 1
        self._starts = [min(start, height - span) for start in first]
        self._rows = np.stack(
            [band[:, start : start + span] for band, start in zip(tall, self._starts, strict=True)]
        )  # (bands, size / bands, span)
        self._buffer = np.empty((bands, span, width * channels), np.float32)

        self._blocks = int(np.gcd(width, size))
        block = _area_weights(width, size)[: size // self._blocks, : width // self._blocks]
        self._columns = np.ascontiguousarray(np.kron(block.T, np.eye(channels, dtype=np.float32)))

    def __call__(self, frame: Frame) -> Frame:
        height, width, channels = self.shape
        flat = frame.reshape(height, width * channels)
        span = self._buffer.shape[1]
        for band, start in enumerate(self._starts):
            self._buffer[band] = flat[start : start + span]
        rows = np.matmul(self._rows, self._buffer)  # (bands, size / bands, width * channels)
        small = rows.reshape(self.size * self._blocks, -1) @ self._columns
        small += 0.5
        return small.astype(np.uint8).reshape(self.size, self.size, channels)


class PixelEnv(gym.Env[Frame, Any]):
    """A gymnasium environment that shows (size, size, 3 or 1) uint8 frames.

    `observed` says that the inner observation is the picture; otherwise the picture is rendered. `info["labels"]`
    holds what the environment knows beyond its pixels, for probes only, where `probe` is given.
    """

    def __init__(self, env: gym.Env[Any, Any], *, size: int, gray: bool, observed: bool, probe: Probe | None) -> None:
        self.env = env
        self.size, self.gray, self.observed, self.probe = size, gray, observed, probe
        self.action_space = env.action_space
        self.observation_space = gym.spaces.Box(0, 255, (size, size, 1 if gray else 3), np.uint8)
        self.label_names: tuple[str, ...] = probe.names if probe else ()
        self._resize: AreaResize | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._frame(observation), self._labelled(info, observation)

    def step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._frame(observation), reward, terminated, truncated, self._labelled(info, observation)

    def close(self) -> None:
        self.env.close()

    def _labelled(self, info: dict[str, Any], observation: Any) -> dict[str, Any]:
        if self.probe is not None:
            info["labels"] = self.probe.read(self.env.unwrapped, observation)
        return info

    def _frame(self, observation: Any) -> Frame:
        picture = observation if self.observed else self.env.render()
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise UsageProblem(f"{self.env} shows no pixels; expected an (H, W, 3) picture from render().")
        if self._resize is None or self._resize.shape != picture.shape:
            height, width, channels = picture.shape
            self._resize = AreaResize(height, width, channels, self.size)
        small = self._resize(picture)
        if self.gray and small.shape[-1] == 3:
            return (small @ _LUMA + 0.5).astype(np.uint8)[..., None]
        return small
