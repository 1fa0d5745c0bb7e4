"""Batches on their way to the device: buffers that are allocated once, pinned where that lets a copy overlap."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class PinnedBuffers:
    """Fill `empty()` with a batch of up to `shape` bytes, then `send(count)` its first rows.

    On the CPU what is sent is the buffer itself, good until the next `empty()`. On CUDA two pinned buffers take turns,
    so that the next batch is made while this one is copied, and only uint8 crosses the bus.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self._device, self._pinned = device, device.type == "cuda"
        count = 2 if self._pinned else 1
        self._buffers = [torch.empty(shape, dtype=torch.uint8, pin_memory=self._pinned) for _ in range(count)]
        self._copied: list[torch.cuda.Event | None] = [None] * count
        self._turn = 0

    def empty(self) -> NDArray[np.uint8]:
        """A buffer that nothing reads any more."""
        self._turn = (self._turn + 1) % len(self._buffers)
        event = self._copied[self._turn]
        if event is not None:
            event.synchronize()
        buffer: NDArray[np.uint8] = self._buffers[self._turn].numpy()
        return buffer

    def send(self, count: int) -> Tensor:
        """The first `count` rows of the buffer handed out last, on the device."""
        sent = self._buffers[self._turn][:count]
        if self._pinned:
            sent = sent.to(self._device, non_blocking=True)
            self._copied[self._turn] = torch.cuda.Event()
            self._copied[self._turn].record()  # type: ignore[union-attr]
            return sent
        return sent.to(self._device)
