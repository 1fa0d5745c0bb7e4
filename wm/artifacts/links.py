"""Links inside a dataset or a run are refused: a folder may be copied from a stranger, and a link leads out of it.

The folder that a user names may itself be a link, such as `data` on a larger disk.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from wm.errors import BadData


def refuse(path: Path) -> Path:
    """`path`, which need not exist. Raises BadData if it is a link."""
    if path.is_symlink():
        raise BadData(problem(path))
    return path


def refuse_below(folder: Path) -> None:
    """Raise BadData for the first link at any depth below `folder`."""
    for path in below(folder):
        raise BadData(problem(path))


def problem(path: Path) -> str:
    """The sentence about a link."""
    return (
        f"{path} is a link; links inside a dataset or a run are not followed, "
        "so remove it, or replace it by what it points to."
    )


def below(folder: Path) -> Iterator[Path]:
    """Every link below `folder`, in the order of names; none is followed."""
    for entry in _entries(folder):
        if entry.is_symlink():
            yield Path(entry.path)
        elif entry.is_dir(follow_symlinks=False):
            yield from below(Path(entry.path))


def directly_in(folder: Path) -> list[Path]:
    """The links in `folder` itself."""
    return [Path(entry.path) for entry in _entries(folder) if entry.is_symlink()]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder by name; none if it does not exist, or another process has just moved it."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
