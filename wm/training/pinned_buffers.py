"""Host buffers of batches: allocated once, and pinned where copies to the device can then overlap with work."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class PinnedBuffers:
    """Fill `empty()` with a batch of up to `shape` bytes, then `send(count)` its first rows.

    On the CPU `send` returns the buffer itself, valid until the next `empty()`. On CUDA two pinned buffers alternate,
    so that the next batch is decoded while this one is copied, and only uint8 crosses the bus.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self._device, self._pinned = device, device.type == "cuda"
        count = 2 if self._pinned else 1
        self._buffers = [torch.empty(shape, dtype=torch.uint8, pin_memory=self._pinned) for _ in range(count)]
        self._copied: list[torch.cuda.Event | None] = [None] * count
        self._current = 0

    def empty(self) -> NDArray[np.uint8]:
        """A buffer whose copy is complete."""
        self._current = (self._current + 1) % len(self._buffers)
        event = self._copied[self._current]
        if event is not None:
            event.synchronize()
        buffer: NDArray[np.uint8] = self._buffers[self._current].numpy()
        return buffer

    def send(self, count: int) -> Tensor:
        """The first `count` rows of the buffer that `empty` returned last, on the device."""
        batch = self._buffers[self._current][:count]
        if self._pinned:
            batch = batch.to(self._device, non_blocking=True)
            self._copied[self._current] = torch.cuda.Event()
            self._copied[self._current].record()  # type: ignore[union-attr]
            return batch
        return batch.to(self._device)
