"""One seed grows into named, independent generators and into episode seeds that never overlap between splits."""

import zlib

import numpy as np

SPLITS = {"train": 0, "validation": 1, "test": 2}
_BITS = 29  # two more bits name the split: every episode seed fits a positive int32, which ALE wants


def _words(*path: int | str) -> list[int]:
    return [zlib.crc32(item.encode()) if isinstance(item, str) else item for item in path]


def generator(*path: int | str) -> np.random.Generator:
    """A generator that depends on `path` alone, e.g. `generator(seed, "controller", generation)`."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(_words(*path))))


def integer(*path: int | str) -> int:
    """A 63-bit integer that depends on `path` alone: the seed of a torch generator."""
    return int(np.random.SeedSequence(_words(*path)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def episode_seed(split: str, seed: int, *path: int | str) -> int:
    """Seed of an episode's environment. Splits are disjoint by construction (two leading bits)."""
    low = integer(seed, "episode", *path) & ((1 << _BITS) - 1)
    return (SPLITS[split] << _BITS) | low


def collected_seed(seed: int, controller: str, index: int) -> int:
    """Seed of episode `index` of a dataset; `controller` are the first digits of the fingerprint of the one that plays,
    so that each round has other episodes (empty: none plays)."""
    # Sixteen of 64 hex digits; they are part of every seed, so their number never changes.
    return episode_seed("train", seed, "collect", *[controller[:16]] * bool(controller), index)


def split_of(seed: int) -> str | None:
    """The split to which an episode's seed belongs; None for one outside of all."""
    return next((name for name, number in SPLITS.items() if seed >> _BITS == number), None)
