"""Datasets that are written whole: edits of others, and imports. What they share before, while and after writing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from wm.artifacts.disk import DiskBudget
from wm.episodes.archive import record
from wm.episodes.dataset import fingerprint_of, read_root
from wm.episodes.schema import SUFFIX
from wm.episodes.writer import Writer, write_whole
from wm.errors import DiskProblem, MissingInput, UsageProblem


class NewDataset(Protocol):
    """A dataset to write, whose recipe says where its episodes are from."""

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe."""

    @property
    def read(self) -> Sequence[Path]:
        """The paths it is made from."""

    @property
    def episodes(self) -> int:
        """How many it will have."""

    @property
    def need(self) -> tuple[int, int]:
        """About how many bytes and files it takes."""

    def write(self, writer: Writer, progress: Callable[[int], None]) -> None:
        """Add every episode to the writer. `progress` is told how many there are."""


def is_written(path: Path, new: NewDataset) -> bool:
    """Whether `path` is this dataset already. Raises UsageProblem if it is something else."""
    if not path.exists() and not path.is_symlink():
        return False
    try:
        if fingerprint_of(read_root(path)) == fingerprint_of(new.recipe):
            return True
    except MissingInput:
        # Something without a root: no dataset, so the refusal below says what is there.
        pass
    raise UsageProblem(f"{path} exists and is another dataset, or none; remove it, or name another path.")


def require_targets(targets: Sequence[tuple[Path, NewDataset]]) -> None:
    """Raise UsageProblem for a target without a dataset's suffix, inside a dataset that is read or another
    target, or given twice."""
    for path, new in targets:
        if path.suffix != SUFFIX:
            raise UsageProblem(f"{path} has no suffix {SUFFIX}; name it {path.name or 'data'}{SUFFIX}.")
        for source in new.read:
            if source.resolve() in path.resolve().parents:
                raise UsageProblem(f"{path} is inside {source}, which is read; name a path outside of it.")
        for other, _ in targets:
            if other.resolve() in path.resolve().parents:
                raise UsageProblem(f"{path} is inside {other}, which is written; name a path outside of it.")
    if len({path.resolve() for path, _ in targets}) < len(targets):
        raise UsageProblem(f"{targets[0][0]} is given for two datasets; name a path for each.")


def require_disk(news: Sequence[NewDataset], budget: DiskBudget) -> None:
    """Raise DiskProblem if the budget is too small for all of the datasets."""
    size, files = (sum(numbers) for numbers in zip(*(new.need for new in news), strict=True))
    budget.require(size, 0, f"writing {sum(new.episodes for new in news)} episodes", files)


def write(
    path: Path,
    new: NewDataset,
    budget: DiskBudget,
    provenance: Callable[[], dict[str, Any]],
    progress: Callable[[int], None],
) -> None:
    """Write the dataset, whole or not at all. The caller holds the lock of `path`. `provenance` is asked at the end."""
    written = 0

    def allow(size: int) -> None:
        nonlocal written
        if size > budget.available(written):
            raise DiskProblem(
                f"the disk budget at {path} is used up and nothing was written; free some space or raise "
                "--disk-budget, and run the same command again."
            )
        written += size

    with write_whole(path, new.recipe, allow) as writer:
        new.write(writer, progress)
        record(writer.path, {"episodes": writer.next, **provenance()})
