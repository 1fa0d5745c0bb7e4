"""Growing a dataset, part by part. One process writes; the order of parts is the order of episodes."""

import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import zarr

from wm.artifacts import durable, manifest
from wm.episodes.dataset import KIND, Dataset
from wm.episodes.parts import STAGING, write_part
from wm.episodes.schema import FORMAT, PackedEpisode, part_is_full


def create(path: Path, recipe: dict[str, Any]) -> None:
    """Make an empty dataset, whole or not at all."""
    durable.make_folder(path.parent)
    durable.sweep(path.parent, path.name)
    staged = durable.aside(path)
    zarr.open_group(staged, mode="w", zarr_format=3, attributes={"format": FORMAT, "kind": KIND, "recipe": recipe})
    manifest.write(staged, {"kind": KIND, "format": FORMAT, "recipe": recipe}, files=["zarr.json"])
    durable.commit_folder(staged, path)


class Writer:
    """Adds episodes in order and commits full parts; `seal` commits what remains as a short part.

    Hold the dataset's lock while using it.
    """

    def __init__(self, path: Path, recipe: dict[str, Any]) -> None:
        self.path, self.recipe = path, recipe
        shutil.rmtree(path / STAGING, ignore_errors=True)
        dataset = Dataset.open(path)
        self._remove_superseded(dataset)
        self._pending: list[PackedEpisode] = []
        self.next = dataset.episodes
        self.committed = dataset.episodes
        if dataset.parts:
            last = dataset.parts[-1]
            if not part_is_full(last.first, last.last, last.rows):
                self._pending = [episode.pack() for episode in dataset.episodes_of(last)]

    def _remove_superseded(self, dataset: Dataset) -> None:
        for part in dataset.parts:
            self._remove_shorter(part.first, part.last)

    def _remove_shorter(self, first: int, last: int) -> None:
        for folder in self.path.glob(f"part-{first:06d}-*"):
            if not folder.name.endswith(f"-{last:06d}"):
                durable.remove_folder(folder)

    def add(self, episode: PackedEpisode) -> bool:
        """Take the next episode. Returns whether a part was committed."""
        if episode.index != self.next:
            raise ValueError(f"episode {episode.index} does not follow {self.next - 1}")
        self._pending.append(episode)
        self.next += 1
        first = self._pending[0].index
        if part_is_full(first, self.next, sum(item.rows for item in self._pending)):
            self._commit()
            return True
        return False

    def seal(self) -> bool:
        """Commit the finished episodes as a short part, if there are any that are not on disk yet."""
        if self.next > self.committed:
            self._commit(short=True)
            return True
        return False

    def _commit(self, short: bool = False) -> None:
        first = self._pending[0].index
        write_part(self.path, self.recipe, [episode.unpack() for episode in self._pending])
        self.committed = self.next
        self._remove_shorter(first, self.next)
        if not short:
            self._pending = []

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Seal what is finished, unless the disk was the problem."""
        if not isinstance(error, OSError):
            self.seal()
