"""Parts that are written where their episodes are played, and committed by the one process that holds the dataset.

Workers write into a folder in the dataset's staging, which that process makes and removes; into an object store they
put all of a part but its manifest. So what they leave is no part before it is committed, and is swept as other staging.
"""

import platform
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wm.artifacts import durable, manifest
from wm.artifacts.disk import DiskBudget
from wm.artifacts.object_store import ObjectStore
from wm.episodes import mirror as mirrors
from wm.episodes.committed_parts import Part, read_table
from wm.episodes.mirror import Mirror
from wm.episodes.parts import STAGING, PartBuilder, frame_block
from wm.episodes.schema import PackedEpisode, part_is_full, part_name, part_range
from wm.episodes.shards import METADATA
from wm.errors import BadData, DiskProblem, MissingInput, WmError
from wm.units import format_size


@dataclass(frozen=True)
class StagedPart:
    """A part that was written and is not committed: its folder, of which an object store has the name alone, its rows,
    the size of its files, and those of them that tell its table."""

    folder: Path
    rows: int
    size: int
    head: dict[str, bytes]

    @property
    def episodes(self) -> tuple[int, int]:
        """Of the first episode, and of the one after the last."""
        episodes = part_range(self.folder.name)
        assert episodes is not None
        return episodes

    def commit(self, root: Path) -> Part:
        """Make it a part of the dataset at `root`. Raises BadData where not all of it has arrived."""
        final = root / self.folder.name
        if (mirror := mirrors.of(root)) is not None:
            mirror.commit_part(final.name, self.head)
        else:
            here = self.folder / manifest.NAME
            if not here.is_file() or durable.read_bytes(here) != self.head[manifest.NAME]:
                raise BadData(f"{here} is not what its worker wrote; run the same command again.")
            read_table(self.folder)  # compares the size of every file too
            durable.publish(self.folder, final)
        return Part(final, *self.episodes, read_table(final))


@dataclass(frozen=True)
class Place:
    """Where workers write the parts of a dataset: a folder, or the address of the dataset in an object store, where its
    root has the manifest `root`."""

    folder: Path
    address: str = ""
    root: bytes = b""

    def problem(self) -> str:
        """Why this process cannot write there, in one sentence; empty if it can."""
        try:
            if self.address:
                self._require_store(ObjectStore.open(self.address))
            else:
                self._require_folder()
                durable.write_bytes(self.folder / f"{uuid.uuid4().hex[:12]}.probe", b"")
        except (WmError, OSError) as error:
            # Said in the answer and not raised: a cluster then writes by the client instead.
            return str(error)
        return ""

    def write(self, builder: PartBuilder) -> StagedPart:
        """Write a part, all of it or, in an object store, all but its manifest. Raises MissingInput and DiskProblem."""
        files = builder.files()
        name, size = part_name(builder.first, builder.last), sum(map(len, files.values()))
        staged = self.folder / uuid.uuid4().hex[:12] / name
        if self.address:
            Mirror(ObjectStore.open(self.address), self.folder).put_files(name, files)
        else:
            self._require_folder()
            if size > (free := DiskBudget(self.folder).available(0)):
                raise DiskProblem(
                    f"a part of {format_size(size)} does not fit {self.folder}, where {format_size(max(free, 0))} may "
                    "be used; free some space, and run the same command again."
                )
            durable.write_folder(staged, files)
        return StagedPart(staged, builder.rows, size, {key: files[key] for key in (METADATA, manifest.NAME)})

    def _require_store(self, store: ObjectStore) -> None:
        """The dataset is there, as its writer sees it, and takes objects."""
        if not store.holds(manifest.NAME, self.root):
            raise MissingInput(
                f"{platform.node()} does not see the dataset {self.address}; give its worker the AWS_* variables of "
                "the process that collects."
            )
        probe = f"{STAGING}/{uuid.uuid4().hex[:12]}.probe"
        store.put(probe, self.root)
        store.remove([probe])

    def _require_folder(self) -> None:
        """What is written after the folder was removed would stay there."""
        if not self.folder.is_dir():
            raise MissingInput(
                f"{platform.node()} does not see {self.folder}, where workers write; mount it under that name, or name "
                "an object store with --data s3://BUCKET/PREFIX."
            )


@contextmanager
def open_place(path: Path) -> Iterator[Place]:
    # In a store nothing is staged: the parts are put under their names, and only the manifest makes them count.
    """The place of the dataset at `path`, which is open for writing. What is not committed is removed at the end."""
    if (mirror := mirrors.of(path)) is not None:
        yield Place(path.absolute() / STAGING, mirror.store.address, durable.read_bytes(path / manifest.NAME))
        return
    folder = path.absolute() / STAGING / uuid.uuid4().hex[:12]
    durable.make_folder(folder)
    try:
        yield Place(folder)
    finally:
        durable.remove(folder)


def write_block(
    play: Callable[[int], PackedEpisode], place: Place, recipe: dict[str, Any], first: int, last: int
) -> list[StagedPart]:
    """Play the episodes first..last-1, of a block that begins with `first`, and write the parts that a Writer makes of
    them. Runs in a worker."""
    staged, block = list[StagedPart](), frame_block(recipe)
    builder = PartBuilder(Path(), recipe, first, block)
    for index in range(first, last):
        builder.add(play(index))
        if index + 1 == last or part_is_full(builder.last, builder.rows):
            staged.append(place.write(builder))
            builder = PartBuilder(Path(), recipe, index + 1, block)
    return staged
