"""Links inside a dataset or a run are refused: a folder may be copied from a stranger, and a link leads out of it.

The folder that a user names may itself be a link, such as `data` on a larger disk.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from wm.errors import BadData, UsageProblem

DEEPEST = 64  # folders below one that is walked; ours have at most 8
# Files and folders in a row without one of _LISTS among them: 100,000 exported episodes are fewer, and a home folder
# or a machine has more. They are walked in about four seconds.
MOST_OF_OTHERS = 200_000
_LISTS = ("manifest.json", "recipe.json")  # one is in each part, in each artifact and in unfinished work
# Folders of root's at the top of a volume, in which nobody keeps datasets.
_OF_FILE_SYSTEMS = ("lost+found",)


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
    return (path for path in walk(folder) if os.path.islink(path))


def walk(folder: Path, enter: Callable[[Path], bool] = lambda path: True) -> Iterator[Path]:
    """Everything below `folder`, each folder before what is in it, in the order of names. No link is followed, and no
    folder that `enter` is false for; of those that may not be read (`closed`) only their names are known. Raises
    PermissionError for `folder` itself, UsageProblem for `/`, and BadData for what lies more than DEEPEST folders deep,
    and for more than MOST_OF_OTHERS files of other programs."""
    if folder.resolve() == Path("/").resolve():
        raise UsageProblem(f"{folder} is the whole machine; name folders in it, such as data and runs.")
    # A stack and no recursion: a forged tree must not reach Python's recursion limit. Reversed, for pop takes the last.
    if folder.is_dir():
        os.scandir(folder).close()
    stack, others = [(entry, 1) for entry in reversed(_entries(folder))], 0
    while stack:
        entry, depth = stack.pop()
        path = Path(entry.path)
        if depth > DEEPEST:
            raise BadData(f"{path} is {depth} folders below {folder}; expected at most {DEEPEST}, so remove it.")
        others = 0 if entry.name in _LISTS else others + 1
        if others > MOST_OF_OTHERS:
            raise BadData(
                f"{folder} has more than {MOST_OF_OTHERS:,} files of other programs, as in {path.parent}; name folders "
                "with datasets and runs, such as data and runs."
            )
        yield path
        if entry.is_dir(follow_symlinks=False) and enter(path):
            stack += [(inside, depth + 1) for inside in reversed(_entries(path))]


def closed(folder: Path) -> list[Path]:
    """The folders below `folder` that may not be read, without those of a file system such as ext4's `lost+found`."""
    refused: list[Path] = []

    def enter(path: Path) -> bool:
        # Without the right to execute it its names can be listed, and no file in it can be opened.
        if not (readable := os.access(path, os.R_OK | os.X_OK)) and path.name not in _OF_FILE_SYSTEMS:
            refused.append(path)
        return readable

    for _ in walk(folder, enter):
        pass
    return refused


def directly_in(folder: Path) -> list[Path]:
    """The links in `folder` itself."""
    return [Path(entry.path) for entry in _entries(folder) if entry.is_symlink()]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder by name; none if it may not be read, does not exist, or another process has just moved
    it."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
