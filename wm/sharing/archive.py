"""A shared run in one zip file, on this machine or at a web address, such as a file of a release."""

import http.client
import io
import os
import stat
import struct
import tempfile
import urllib.error
import urllib.request
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from wm.artifacts import durable, links, manifest
from wm.artifacts.json_reader import LARGEST
from wm.errors import BadData, Unreachable, UsageProblem
from wm.sharing.contents import MAX_FILES, WAY_OUT
from wm.sharing.folder import PIECE

# Seconds; any value of that size would do. It only bounds how long a silent server is waited for.
TIMEOUT = 60  # seconds without an answer
LIST_BYTES = 2_000_000  # of an archive besides its files: names and sizes
IN_MEMORY = 1 << 24  # bytes of a download, above which it is on disk
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest one of the format: equal files make equal archives
_Opened = IO[bytes] | io.BufferedIOBase
# All that Python reads without further libraries, and all that zip programs write by default.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What zipfile raises for an archive that is damaged, or has what it cannot read: RuntimeError for what is encrypted.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, struct.error, RuntimeError)


class ArchivePlace:
    """A zip file, which need not exist, at a path."""

    address = ""
    replaceable = frozenset[str]()

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def files(self) -> dict[str, int]:
        """Every file with its size. Raises BadData for what is no zip file, for links, and for too many files."""
        if not links.refuse(self.path).exists():
            return {}
        with durable.open_file(self.path, "rb") as opened:
            return _sizes(opened, self.name)

    def read(self, file: str) -> Iterator[bytes]:
        """The bytes of a file in pieces."""
        with durable.open_file(self.path, "rb") as opened:
            yield from _pieces(opened, file, self.name)

    def publish(self, files: Mapping[str, bytes], message: str) -> None:
        """Write the archive in place of the one that is there. Weights and latents are compressed already."""
        manifest.require_outside(self.path)
        archive = io.BytesIO()
        # Stored, not compressed: weights, latents and pictures are compressed already or do not compress.
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as opened:
            for name in sorted(files):
                opened.writestr(zipfile.ZipInfo(name, _DATE), files[name])
        durable.make_folder(self.path.parent)
        durable.write_bytes(self.path, archive.getvalue())


class DownloadPlace:
    """A zip file at an address of the web, which is read once and held while it is used."""

    replaceable = frozenset[str]()

    def __init__(self, address: str, max_size: int) -> None:
        self.name = self.address = address
        self._max_size = max_size
        self._archive: IO[bytes] | None = None

    def files(self) -> dict[str, int]:
        """As ArchivePlace; empty where nothing is found. Raises Unreachable where the network fails, and UsageProblem
        for more bytes than allowed."""
        if self._archive is None:
            self._archive = self._download()
        return _sizes(self._archive, self.name) if self._archive.seek(0, os.SEEK_END) else {}

    def read(self, file: str) -> Iterator[bytes]:
        """The bytes of a file in pieces."""
        assert self._archive is not None
        yield from _pieces(self._archive, file, self.name)

    def publish(self, files: Mapping[str, bytes], message: str) -> None:
        """Raises UsageProblem: a web address is for reading."""
        raise UsageProblem(f"{self.name} can only be pulled from; push to a .zip file, and upload that.")

    def _download(self) -> IO[bytes]:
        limit = self._max_size + LIST_BYTES
        archive: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115, closed with this place
        # The place may be dropped without being closed.
        weakref.finalize(self, archive.close)
        for piece in self._arriving():
            try:
                archive.write(piece)
            except OSError as error:
                # Of this machine's disk and not of the network, which `_arriving` explains.
                error.filename = error.filename or tempfile.tempdir
                raise
            if archive.tell() > limit:
                raise UsageProblem(
                    f"{self.name} has more than --max-size {self._max_size:,} bytes; raise it if you trust it."
                )
        return archive

    def _arriving(self) -> Iterator[bytes]:
        """The bytes at the address in pieces; none where nothing is found."""
        try:
            with urllib.request.urlopen(self.address, timeout=TIMEOUT) as answer:
                while piece := answer.read(PIECE):
                    yield piece
        except urllib.error.HTTPError as error:
            # Only these two say that nothing is there; another answer may be another one later.
            if error.code not in (404, 410):
                raise Unreachable(f"{self.name} answered {error.code}; check the address, or try later.") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = str(getattr(error, "reason", error)) or type(error).__name__
            raise Unreachable(f"{self.name} cannot be reached ({why[:200]}); try again later.") from None


def _sizes(opened: _Opened, name: str) -> dict[str, int]:
    """The files of an archive with their sizes."""
    sizes: dict[str, int] = {}
    with _archive(opened, name) as archive:
        for entry in archive.infolist():
            # The upper half holds the mode of Unix, which tells links from files.
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if entry.is_dir():
                continue
            if kind not in (0, stat.S_IFREG) or entry.flag_bits & 1 or entry.compress_type not in _METHODS:
                raise BadData(f"{name} holds {entry.filename[:80]!r}, which is no plain file; {WAY_OUT}.")
            if entry.filename in sizes:
                raise BadData(f"{name} holds {entry.filename[:80]!r} twice; {WAY_OUT}.")
            sizes[entry.filename] = entry.file_size
            # A hundred more, for files that may lie beside those of the list.
            if len(sizes) > MAX_FILES + 100:
                raise BadData(f"{name} has more than {MAX_FILES} files; that is no shared run.")
    return sizes


def _pieces(opened: _Opened, file: str, name: str) -> Iterator[bytes]:
    with _archive(opened, name) as archive:
        try:
            with archive.open(file) as entry:
                while piece := entry.read(PIECE):
                    yield piece
        except _UNREADABLE as error:
            raise BadData(f"{name} is damaged at {file} ({error}); {WAY_OUT}.") from None


class _Bounded:
    """A file for zipfile, which reads the list of an archive's files at once, whatever its size."""

    def __init__(self, opened: _Opened) -> None:
        self._opened = opened
        self.tell, self.seekable = opened.tell, opened.seekable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As of a file. Raises BadZipFile for a place that no file has: the list says where the files are."""
        if whence == os.SEEK_SET and not 0 <= offset <= LARGEST:
            raise zipfile.BadZipFile(f"its list of files says that one begins at byte {offset}")
        return self._opened.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        """As of a file. Raises BadZipFile for more than such a list may have."""
        if size > LIST_BYTES:
            raise zipfile.BadZipFile(f"its list of files has {size:,} bytes")
        return self._opened.read(size)


def _archive(opened: _Opened, name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(_Bounded(opened))
    except _UNREADABLE as error:
        raise BadData(f"{name} is no zip file, or a damaged one ({error}); {WAY_OUT}.") from None
