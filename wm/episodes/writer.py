"""Writing a dataset, part by part. One process writes; the order of parts is the order of episodes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from wm.artifacts import durable
from wm.episodes import mirror as mirrors
from wm.episodes.committed_parts import Part
from wm.episodes.dataset import Dataset
from wm.episodes.parts import STAGING, PartBuilder, frame_block, root_files
from wm.episodes.schema import PackedEpisode, part_is_full, part_range
from wm.episodes.staged_parts import StagedPart
from wm.errors import DiskProblem, Locked, NotPermitted, Unreachable


def create(path: Path, recipe: dict[str, Any]) -> Dataset:
    """Create an empty dataset, whole or not at all."""
    durable.make_folder(path.parent)
    durable.sweep(path.parent, path.name)
    files = root_files(recipe)
    if (mirror := mirrors.of(path)) is not None:
        mirror.put_root(files)
    else:
        staged = durable.staging_path(path)
        durable.write_folder(staged, files)
        durable.publish(staged, path)
    return Dataset(path, recipe, [])


@contextmanager
def write_whole(path: Path, recipe: dict[str, Any], allow: Callable[[int], None] | None = None) -> "Iterator[Writer]":
    """Write a new dataset that appears at `path` when the block ends without an error, and not at all otherwise.

    The caller holds the lock of `path`, where nothing exists. What a killed process left is swept.
    """
    durable.make_folder(path.parent)
    durable.sweep(path.parent, path.name)
    staged = durable.staging_path(path)
    try:
        durable.write_folder(staged, root_files(recipe))
        writer = Writer(Dataset(staged, recipe, []), allow)
        yield writer
        writer.seal()
        durable.remove(staged / STAGING)
        durable.publish(staged, path)
    except BaseException:
        # Also for a signal: a folder that no manifest completes must not stay.
        durable.remove(staged)
        raise


class Writer:
    """Adds the missing episodes in the order of their indices, gaps first, and commits full parts; `seal` commits the
    rest as a short part. `dataset` has the parts committed so far.

    The caller holds the lock under which the dataset was opened. `allow` takes the bytes of every part before it is
    written, and may raise DiskProblem; `committed` takes the number of episodes after every part.
    """

    def __init__(
        self,
        dataset: Dataset,
        allow: Callable[[int], None] | None = None,
        committed: Callable[[int], None] | None = None,
    ) -> None:
        self.dataset = dataset.first(0)
        self.path, self.recipe, self._allow, self._committed = dataset.path, dataset.recipe, allow, committed
        self._block = frame_block(self.recipe)
        durable.remove(self.path / STAGING)
        durable.sweep(self.path)
        self._remove_superseded()
        self._gaps = list(self.dataset.missing)
        self.next = self._first_missing()
        self._pending: PartBuilder | None = None  # made with its first episode: it may begin with those of a short part
        self._written = self.next

    def _first_missing(self) -> int:
        return self._gaps[0][0] if self._gaps else self.dataset.collected

    def _builder(self, first: int) -> PartBuilder:
        """The part that takes episode `first`: a new one, or the short one that ends before it."""
        preceding = next((part for part in self.dataset.parts if part.last == first), None)
        if preceding is None or part_is_full(first, preceding.rows):
            return PartBuilder(self.path, self.recipe, first, self._block)
        builder = PartBuilder(self.path, self.recipe, preceding.first, self._block)
        for episode in self.dataset.episodes_of(preceding):
            builder.add(episode.pack())
        return builder

    def _remove_superseded(self) -> None:
        """Remove what a kill has left of short parts. The folder is listed once: it may have 100,000 parts."""
        lasts = {part.first: part.last for part in self.dataset.parts}
        for folder in self.path.glob("part-*-*"):
            if (episodes := part_range(folder.name)) is not None and episodes[1] < lasts.get(episodes[0], 0):
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        if (mirror := mirrors.of(self.path)) is not None:
            mirror.remove_part(folder.name)
        durable.remove(folder)

    def add(self, episode: PackedEpisode) -> Path | None:
        """Take the next episode. Returns the folder of its part if the part is full."""
        if episode.index != self.next:
            raise ValueError(f"episode {episode.index} is not the next one, {self.next}")
        self._pending = pending = self._pending or self._builder(self.next)
        pending.add(episode)
        self.next += 1
        gap_filled = bool(self._gaps) and self.next == self._gaps[0][1]
        if not gap_filled and not part_is_full(self.next, pending.rows):
            return None
        folder = self._commit(pending)
        if gap_filled:
            del self._gaps[0]
            self.next = self._first_missing()
        self._pending, self._written = None, self.next
        return folder

    def take(self, staged: StagedPart) -> Path:
        """Commit a part of the next episodes that a worker has written. Returns its folder."""
        first, last = staged.episodes
        if first != self.next or self._pending is not None or self._gaps:
            raise ValueError(f"{staged.folder.name} does not begin with the next episode, {self.next}")
        if self._allow is not None and mirrors.of(self.path) is None:  # else no array comes to this machine
            self._allow(staged.size)
        self._add_part(part := staged.commit(self.path))
        self.next = self._written = last
        return part.folder

    def seal(self) -> Path | None:
        """Commit the finished episodes that are not on disk yet, if any, as a short part."""
        pending = self._pending
        return self._commit(pending) if pending is not None and pending.last > self._written else None

    def _commit(self, pending: PartBuilder) -> Path:
        folder = pending.commit(self._allow)
        self._written = pending.last
        self._add_part(Part(folder, pending.first, pending.last, pending.table))
        return folder

    def _add_part(self, part: Part) -> None:
        for shorter in (other for other in self.dataset.parts if other.first == part.first):
            self._remove(shorter.folder)
        others = [other for other in self.dataset.parts if other.first != part.first]
        parts = sorted([*others, part], key=lambda part: part.first)
        self.dataset = Dataset(self.path, self.recipe, parts)
        if self._committed is not None:
            self._committed(self.dataset.collected)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Commit the finished episodes, unless the disk or the store was the problem, or another writer."""
        # With these the next write fails as well, and an error while handling one would hide the first.
        if not isinstance(error, OSError | DiskProblem | Locked | NotPermitted | Unreachable):
            self.seal()
