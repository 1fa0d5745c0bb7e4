"""Initial weights of a network as a function of the seed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from wm.seeding import integer


@contextmanager
def seeded_initialization(seed: int, *path: int | str) -> Iterator[None]:
    """Within it, modules that are built draw their weights from a generator of this seed and path; torch's global
    generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed also keeps the stack of each call until a GPU is used.
        torch.default_generator.manual_seed(integer(seed, *path))
        yield
