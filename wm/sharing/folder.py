"""A shared run in a folder."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from wm.artifacts import durable, links, locks, manifest
from wm.errors import BadData, UsageProblem
from wm.sharing.contents import MAX_DEPTH, MAX_FILES

PIECE = 1 << 20  # bytes that are read at once


class FolderPlace:
    """A folder, which need not exist. It may itself be a link; a link inside is refused."""

    address = ""
    replaceable = frozenset[str]()

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, str(folder)

    def files(self) -> dict[str, int]:
        """Every file with its size. Raises BadData for a link, a pipe or a device, and for too many files."""
        sizes: dict[str, int] = {}
        folders = [""]
        while folders:
            below = folders.pop()
            for name, status in _entries(self.folder / below):
                path = f"{below}{name}"
                if stat.S_ISDIR(status.st_mode):
                    if path.count("/") > MAX_DEPTH:
                        raise BadData(f"{self.folder} has {path} deeper than a run's folders; that is no shared run.")
                    folders.append(f"{path}/")
                elif stat.S_ISREG(status.st_mode):
                    sizes[path] = status.st_size
                else:
                    links.refuse(self.folder / path)
                    raise BadData(f"{self.folder / path} is a pipe or a device; expected a file, so remove it.")
                if len(sizes) + len(folders) > MAX_FILES + 100:
                    raise BadData(f"{self.folder} has more than {MAX_FILES} files; that is no shared run.")
        return sizes

    def read(self, file: str) -> Iterator[bytes]:
        """The bytes of a file in pieces."""
        with durable.open_file(manifest.locate(self.folder, file), "rb") as opened:
            while piece := opened.read(PIECE):
                yield piece

    def publish(self, files: Mapping[str, bytes], message: str) -> None:
        """Write a new folder next to this one and rename it. What lies here is set aside before and removed after; a
        kill between the two renames leaves nothing here, and the same command publishes it."""
        with locks.exclusive(self.folder):
            durable.sweep(self.folder.parent, self.folder.name)
            staged, old = durable.staging_path(self.folder), durable.staging_path(self.folder)
            try:
                durable.write_folder(staged, dict(files))
                if links.refuse(self.folder).exists():
                    os.rename(self.folder, old)
                durable.publish(staged, self.folder)
            # Also after a signal: what was there before comes back if the new folder has not taken its name.
            finally:
                if old.exists() and not self.folder.exists():
                    os.rename(old, self.folder)
                for leftover in (staged, old):
                    durable.remove(leftover)


def _entries(folder: Path) -> list[tuple[str, os.stat_result]]:
    """Names and states of what is in a folder, no link followed; none if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except FileNotFoundError:
        # An empty place and no error: a push makes the folder.
        return []
    except NotADirectoryError:
        raise UsageProblem(f"{folder} is a file; expected a folder with a shared run.") from None
