"""Statistics of a dataset."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.episodes.dataset import Dataset
from wm.episodes.schema import describe_origin, unit_of
from wm.units import format_size


@dataclass(frozen=True)
class Summary:
    """Statistics of a dataset. `compression` is the size of the raw frames over that of all files.

    `origin` says where the episodes are from, if they were not collected. `evicted` is the number of oldest episodes
    that a replay removed for new ones; `missing` are ranges of lost episodes. `unit` is what is counted: an episode,
    or in a replay, whose parts end within episodes, a piece of one.
    """

    path: str
    env: str
    policy: str
    seed: int
    origin: str
    size: int
    channels: int
    render: str
    observation: str
    mask: str
    unit: str
    episodes: int
    evicted: int
    missing: list[tuple[int, int]]
    parts: int
    steps: int
    frames: int
    bytes: int
    bytes_per_frame: float
    compression: float
    mean_return: float
    best_return: float
    worst_return: float
    mean_length: float
    terminated: float
    fingerprint: str

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def facts(self) -> list[tuple[str, str]]:
        """Names and texts for a table."""
        evicted = f", {self.evicted} older {self.unit}s evicted" if self.evicted else ""
        observation = f", {self.observation}" if self.observation != "rgb" else ""
        mask = f", mask {self.mask}" if self.mask != "none" else ""
        whole = self.unit == "episode"
        counted, each = ("episodes", "an episode") if whole else (f"{self.unit}s of episodes", f"a {self.unit}")
        missing = evicted + "".join(f", {last - first} lost at {first}" for first, last in self.missing)
        return [
            ("environment", self.env),
            ("policy", self.policy if self.origin else f"{self.policy}, seed {self.seed}"),
            *([("origin", self.origin)] if self.origin else []),
            (counted, f"{self.episodes}{missing}, in {self.parts} {'part' if self.parts == 1 else 'parts'}"),
            (
                "steps",
                f"{self.steps:,}; {self.mean_length:.0f} {each}; {self.terminated:.0%} terminated",
            ),
            (
                "return" if whole else f"return of {each}",
                f"mean {self.mean_return:.2f}, from {self.worst_return:.2f} to {self.best_return:.2f}",
            ),
            ("frames", f"{self.frames:,} of {self.size}x{self.size}x{self.channels}{observation}{mask}"),
            ("renderer", self.render),
            (
                "size",
                f"{format_size(self.bytes)}, {self.bytes_per_frame} bytes a frame, {self.compression}x below raw",
            ),
            ("fingerprint", self.fingerprint),
        ]


def summarize(path: Path) -> tuple[Summary, Dataset]:
    """The statistics of the dataset at `path`, and the dataset."""
    dataset = Dataset.open(path)
    recipe, table, shape = dataset.recipe, dataset.table, dataset.frame_shape
    size = dataset.bytes
    returns, lengths, has_episodes = table["return"], lengths_of(dataset), dataset.episodes > 0
    frames = dataset.rows
    evicted = [(first, last) for first, last in dataset.missing if first == 0 and recipe.get("evicts")]
    return (
        Summary(
            path=str(path),
            env=recipe["env"]["name"],
            policy=str(recipe.get("policy", "unknown")),
            seed=int(recipe.get("seed", 0)),
            origin=describe_origin(recipe),
            size=shape[0],
            channels=shape[2],
            render=str(recipe["env"].get("render", "unknown")),
            observation=str(recipe["env"].get("observation", "rgb")),
            mask=str(recipe["env"].get("mask", "none")),
            unit=unit_of(recipe),
            episodes=dataset.episodes,
            evicted=sum(last for _, last in evicted),
            missing=[gap for gap in dataset.missing if gap not in evicted],
            parts=len(dataset.parts),
            steps=int(lengths.sum()),
            frames=frames,
            bytes=size,
            bytes_per_frame=round(size / frames, 1) if has_episodes else 0.0,
            compression=round(frames * int(np.prod(shape)) / size, 1) if has_episodes else 0.0,
            mean_return=float(returns.mean()) if has_episodes else 0.0,
            best_return=float(returns.max()) if has_episodes else 0.0,
            worst_return=float(returns.min()) if has_episodes else 0.0,
            mean_length=float(lengths.mean()) if has_episodes else 0.0,
            terminated=float(table["terminated"].mean()) if has_episodes else 0.0,
            fingerprint=dataset.fingerprint,
        ),
        dataset,
    )


def lengths_of(dataset: Dataset) -> NDArray[np.int64]:
    """Number of actions of every episode."""
    return np.diff(dataset.ends, prepend=0) - 1
