"""Growing a dataset, part by part. One process writes; the order of parts is the order of episodes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from wm.artifacts import durable
from wm.episodes.committed_parts import committed_parts, gaps
from wm.episodes.dataset import Dataset
from wm.episodes.parts import STAGING, PartBuilder, frame_block, root_files
from wm.episodes.schema import PackedEpisode, part_is_full, part_range
from wm.errors import DiskProblem


def create(path: Path, recipe: dict[str, Any]) -> None:
    """Make an empty dataset, whole or not at all."""
    durable.make_folder(path.parent)
    durable.sweep(path.parent, path.name)
    staged = durable.aside(path)
    durable.write_folder(staged, root_files(recipe))
    durable.publish(staged, path)


class Writer:
    """Adds the episodes that are not there yet, in order, and commits full parts; `seal` commits what remains as a
    short part. Hold the dataset's lock while using it. Episodes that were lost in between come first. `allow` is told
    the bytes of every part before it is written, and may raise DiskProblem.
    """

    def __init__(self, path: Path, recipe: dict[str, Any], allow: Callable[[int], None] | None = None) -> None:
        self.path, self.recipe, self._allow = path, recipe, allow
        self._block = frame_block(recipe)
        shutil.rmtree(path / STAGING, ignore_errors=True)
        durable.sweep(path)
        parts = committed_parts(path)
        self.dataset = Dataset(path, recipe, parts)
        for part in parts:
            self._remove_shorter(part.first, part.last)
        self._lost = gaps(parts)
        self.committed = self.dataset.episodes
        self.next = self._lost[0][0] if self._lost else self.dataset.collected
        self._pending = self._continued(self.next)

    def _continued(self, first: int) -> PartBuilder:
        """The part that takes episode `first`: a new one, or the short one that ends there."""
        self._written = first
        ending = [part for part in self.dataset.parts if part.last == first]
        if not ending or part_is_full(ending[0].first, first, ending[0].rows):
            return PartBuilder(self.path, self.recipe, first, self._block)
        builder = PartBuilder(self.path, self.recipe, ending[0].first, self._block)
        for episode in self.dataset.episodes_of(ending[0]):
            builder.add(episode.pack())
        return builder

    def _remove_shorter(self, first: int, last: int) -> None:
        for folder in self.path.glob(f"part-{first:06d}-*"):
            if (named := part_range(folder.name)) is not None and named[1] < last:
                durable.remove_folder(folder)

    def add(self, episode: PackedEpisode) -> Path | None:
        """Take the next episode. Returns the folder of a part if that was its last one."""
        if episode.index != self.next:
            raise ValueError(f"episode {episode.index} is not the next one, {self.next}")
        self._pending.add(episode)
        self.next += 1
        gap_filled = bool(self._lost) and self.next == self._lost[0][1]
        if not gap_filled and not part_is_full(self._pending.first, self.next, self._pending.rows):
            return None
        folder = self._commit()
        if gap_filled:
            del self._lost[0]
            self.next = self._lost[0][0] if self._lost else self.dataset.collected
        self._pending = self._continued(self.next)
        return folder

    def seal(self) -> Path | None:
        """Commit the finished episodes as a short part, if there are any that are not on disk yet."""
        return self._commit() if self._pending.last > self._written else None

    def _commit(self) -> Path:
        folder = self._pending.commit(self._allow)
        self.committed += self._pending.last - self._written
        self._written = self._pending.last
        self._remove_shorter(self._pending.first, self._pending.last)
        return folder

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Seal what is finished, unless the disk was the problem."""
        if not isinstance(error, OSError | DiskProblem):
            self.seal()
