"""Episodes that others recorded, as their files tell them: npz, an MP4 with its npz, and Minari.

Pictures are read one at a time, so that an episode of large ones needs little memory. A file may be hostile: sizes are
read before what they describe, nothing is unpickled, and what is wrong is one sentence.
"""

import hashlib
import io
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from wm.artifacts import durable, links
from wm.episodes.shards import require_memory
from wm.errors import BadData, MissingInput, UsageProblem, WmError
from wm.units import format_size

MOST_ROWS = 1 << 17  # of an episode: 1.6 GB of 64 x 64 RGB, and five of the longest games of Atari
MOST_VALUES = 1 << 24  # of actions or rewards; a forged shape must not allocate all memory
MOST_BYTES = 1 << 26  # of a picture: 4,000 pixels a side
MOST_ARRAYS = 1 << 12  # of an episode in HDF5: observations, actions, rewards, two kinds of ends, and of each info one
COLUMNS = ("actions", "rewards", "terminated")  # that every npz has, besides frames
# Any block of about a megabyte would do: it bounds the memory of hashing a file.
_DIGEST_BLOCK = 1 << 20
_MOST_HEADER = 1 << 16  # bytes of an array's header: numpy takes 10,000
_MINARI = Path("data") / "main_data.hdf5"
_TOO_LARGE = re.compile(r"Picture size (\d+x\d+) exceeds")  # in what ffmpeg says
_MOST_PIXELS = f"expected at most {MOST_BYTES // 3:,}, so make them smaller"
_EXPECTED = "expected .npz, .mp4 with an .npz of the same name beside it, or the folder of a Minari dataset"


@dataclass(frozen=True)
class Recording:
    """An episode as it was recorded. `name` is its file, for messages; `frames` are T + 1 pictures, read once, and
    `rows` is their number where it is known before (0: it is not). `seed` is None where the file has none."""

    name: str
    frames: Iterable[NDArray[Any]]
    rows: int
    actions: NDArray[Any]
    rewards: NDArray[Any]
    terminated: bool
    truncated: bool
    seed: int | None = None


def extra_of(paths: Sequence[Path]) -> str:
    """The extra that reading these needs: `mp4`, `minari` or none. Raises MissingInput or UsageProblem for a path that
    is nothing to import."""
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise UsageProblem("files of several kinds are given; import each kind for itself, and merge the datasets.")
    return {"npz": ""}.get(kind := kinds.pop(), kind)


def _kind(path: Path) -> str:
    if path.is_dir():
        if (path / _MINARI).is_file():
            return "minari"
        raise UsageProblem(f"{path} is a folder without {_MINARI}; {_EXPECTED}.")
    if not path.exists():
        raise MissingInput(f"{path} does not exist; {_EXPECTED}.")
    if path.suffix.lower() not in (".npz", ".mp4"):
        raise UsageProblem(f"{path} cannot be imported; {_EXPECTED}.")
    return path.suffix.lower()[1:]


def digest_of(paths: Sequence[Path]) -> str:
    """A digest of the contents of all files that are read, in order."""
    total = hashlib.sha256()
    for path in paths:
        for file in _files_of(path):
            digest = hashlib.sha256()
            with durable.open_file(file, "rb") as stream:
                while block := stream.read(_DIGEST_BLOCK):
                    digest.update(block)
            total.update(digest.digest())
    return total.hexdigest()


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        return [path / _MINARI]
    return [path, _beside(path)] if path.suffix.lower() == ".mp4" else [path]


def _beside(video: Path) -> Path:
    """The npz of a video. Raises MissingInput without one."""
    path = video.with_suffix(".npz")
    if not path.exists():
        raise MissingInput(f"{video} has no {path.name} beside it, with {', '.join(COLUMNS)}; write one.")
    return path


def read(paths: Sequence[Path]) -> tuple[int, Iterator[Recording]]:
    """How many episodes there are, and each of them; the next one replaces what the one before had open."""
    if paths[0].is_dir():
        return _read_minari(paths)
    of = _of_video if paths[0].suffix.lower() == ".mp4" else _of_npz
    return len(paths), (of(path) for path in paths)


def _of_npz(path: Path) -> Recording:
    columns = _Npz(path)
    # A grayscale episode has three dimensions, one with channels four.
    shape = columns.shape("frames")
    if len(shape) not in (3, 4) or math.prod(shape[1:]) > MOST_BYTES or columns.dtype("frames") != np.uint8:
        raise BadData(
            f"{path} has frames of shape {shape} and type {columns.dtype('frames')}; expected (T + 1, height, width, "
            "channels) uint8."
        )
    return _recording(columns, columns.pictures(), shape[0])


def _of_video(path: Path) -> Recording:
    return _recording(_Npz(_beside(path)), _video_frames(path), 0)


def _recording(columns: "_Npz", frames: Iterable[NDArray[Any]], rows: int) -> Recording:
    terminated = columns.flag("terminated")
    return Recording(
        str(columns.path),
        frames,
        rows,
        columns.array("actions"),
        columns.array("rewards"),
        terminated,
        columns.flag("truncated") if "truncated" in columns else not terminated,
        columns.integer("seed") if "seed" in columns else None,
    )


class _Npz:
    """The arrays of an npz file, checked by their headers before they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._reading(), durable.open_file(path, "rb") as file, zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            self._headers = {name[:-4]: self._header(archive.open(name)) for name in names}

    def __contains__(self, name: str) -> bool:
        return name in self._headers

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise BadData for what a damaged file makes zipfile, its decompressors and numpy raise: anything."""
        try:
            yield
        except (WmError, MemoryError, PermissionError):
            raise
        except Exception as error:
            # Two lines of a message at most: the text comes from a stranger's file.
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            problem = f"{self.path} is no npz file ({reason}); write it with numpy.savez_compressed."
            raise BadData(problem) from None

    @staticmethod
    def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
        """Shape, Fortran order and type, and the length of the header itself, which may claim 4 GB."""
        file = io.BytesIO(stream.read(_MOST_HEADER))
        version = npy.read_magic(file)
        reader = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if reader is None:
            raise ValueError(f"version {version} of npy")
        shape, fortran, dtype = reader(file)
        # A forged header may have a negative dimension, which would pass the limits on sizes.
        if min(shape, default=0) < 0:
            raise ValueError(f"an array of the shape {shape}")
        return tuple(shape), fortran, dtype, file.tell()

    def _of(self, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
        if name not in self._headers:
            names = ", ".join(sorted(self._headers)[:8]) or "nothing"
            raise BadData(f"{self.path} has no {name!r} but {names}; expected frames, {', '.join(COLUMNS)}.")
        return self._headers[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array."""
        return self._of(name)[0]

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of an array's values."""
        return self._of(name)[2]

    def array(self, name: str) -> NDArray[Any]:
        """A small array. Raises BadData for one that is large, or not of numbers."""
        shape, fortran, dtype, _ = self._of(name)
        if dtype.kind not in "iufb" or math.prod(shape) > MOST_VALUES:
            raise BadData(f"{self.path} has {name} of shape {shape} and type {dtype}; expected numbers, one a step.")
        with durable.open_file(self.path, "rb") as file:
            data = b"".join(self._rows(file, name, 1, math.prod(shape) * dtype.itemsize))
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")

    def flag(self, name: str) -> bool:
        """One true or false."""
        values = self.array(name)
        if values.size != 1 or values.dtype.kind not in "b":
            raise BadData(f"{self.path} has {name} of shape {values.shape} and type {values.dtype}; expected one bool.")
        return bool(values.item())

    def integer(self, name: str) -> int:
        """One integer."""
        values = self.array(name)
        if values.size != 1 or values.dtype.kind not in "iu":
            kind = f"shape {values.shape} and type {values.dtype}"
            raise BadData(f"{self.path} has {name} of {kind}; expected one integer, or leave it out.")
        return int(values.item())

    def pictures(self) -> Iterator[NDArray[np.uint8]]:
        """The pictures in `frames`, one at a time."""
        (rows, *picture), fortran, _, _ = self._of("frames")
        if fortran:
            raise BadData(f"{self.path} has frames in Fortran order; save numpy.ascontiguousarray of them.")
        with durable.open_file(self.path, "rb") as file:
            for data in self._rows(file, "frames", rows, math.prod(picture)):
                yield np.frombuffer(data, np.uint8).reshape(picture)

    def _rows(self, file: Any, name: str, rows: int, size: int) -> Iterator[bytes]:
        """`rows` pieces of `size` bytes of an array."""
        header = self._of(name)[3]
        with self._reading(), zipfile.ZipFile(file) as archive, archive.open(f"{name}.npy") as stream:
            stream.read(header)
            for _ in range(rows):
                if len(data := stream.read(size)) < size:
                    raise ValueError(f"{name} ends early")
                yield data
            stream.read(1)  # past the end, where its checksum is compared


def _video_frames(path: Path) -> Iterator[NDArray[np.uint8]]:
    """The pictures of a video, (height, width, 3) each."""
    import imageio.v2 as imageio

    links.refuse(path)
    try:
        # The format is fixed: a playlist that is called .mp4 could name other files. ffmpeg bounds the pixels before it
        # decodes: a megabyte of black pictures took two gigabytes in its process and one in this.
        bounds = ["-f", "mp4", "-max_pixels", str(MOST_BYTES // 3)]
        reader: Any = imageio.get_reader(path, format="FFMPEG", input_params=bounds)
        with reader:
            yield from reader
    except Exception as error:  # ffmpeg's reader raises what it likes, RuntimeError and IndexError among others
        if large := _TOO_LARGE.search(str(error)):
            raise BadData(f"{path} has pictures of {large[1]} pixels; {_MOST_PIXELS}.") from None
        # The end of the text: ffmpeg says what is wrong last.
        reason = " ".join(str(error).split())[-120:] or type(error).__name__
        raise BadData(f"{path} cannot be read as a video ({reason}); expected an MP4 file.") from error


def _read_minari(paths: Sequence[Path]) -> tuple[int, Iterator[Recording]]:
    from minari.dataset.minari_dataset import MinariDataset

    for path in paths:
        _require_sound(path)
    try:
        datasets = [MinariDataset(path / _MINARI.parent) for path in paths]
        count = sum(int(dataset.total_episodes) for dataset in datasets)
    except Exception as error:  # of h5py, json, gymnasium or minari
        raise _unreadable_minari(paths[0], error) from error
    return count, (r for path, dataset in zip(paths, datasets, strict=True) for r in _of_minari(path, dataset))


def _require_sound(path: Path) -> None:
    """Raise BadData for an HDF5 file that takes data from another file, and BadData or MemoryProblem for an episode
    that is too large."""
    import h5py

    def points_outside(_: str, link: Any) -> bool | None:
        return isinstance(link, h5py.ExternalLink) or None

    def is_stored_outside(_: str, item: Any) -> bool | None:
        return bool(getattr(item, "external", None) or getattr(item, "is_virtual", False)) or None

    try:
        with h5py.File(path / _MINARI, "r") as file:
            if file.visititems_links(points_outside) or file.visititems(is_stored_outside):
                raise BadData(f"{path / _MINARI} takes data from other files; expected all of it in this one.")
            for name, episode in file.items():
                require_memory(_decoded_bytes(episode, f"{path}, {name},"), path / name)
    except WmError:
        raise
    except Exception as error:  # h5py raises what it likes for a damaged file
        raise _unreadable_minari(path, error) from error


def _decoded_bytes(episode: Any, name: str) -> int:
    """Bytes of an episode, which Minari decodes at once: any number of zeros compresses to little. Raises BadData for
    pictures that are too large or too many, and for more arrays than an episode has."""
    import h5py

    size, items = 0, [episode]
    for _ in range(MOST_ARRAYS):  # a group may be linked into itself
        if not items:
            return size
        item = items.pop()
        if isinstance(item, h5py.Group):
            items += item.values()
        elif item.shape is not None:
            size += math.prod(item.shape) * item.dtype.itemsize
            if item.name.endswith("/observations") and (
                item.shape[:1] > (MOST_ROWS,) or math.prod(item.shape[1:]) * item.dtype.itemsize > MOST_BYTES
            ):
                raise BadData(
                    f"{name} has observations of shape {item.shape} and type {item.dtype}; expected at most "
                    f"{MOST_ROWS:,} pictures of {format_size(MOST_BYTES)} each."
                )
    raise BadData(f"{name} has more than {MOST_ARRAYS:,} arrays; expected those of an episode.")


def _unreadable_minari(path: Path, error: Exception) -> BadData:
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    return BadData(f"{path} cannot be read by Minari ({reason}); expected a Minari dataset with pictures.")


def _of_minari(path: Path, dataset: Any) -> Iterator[Recording]:
    for number in map(int, dataset.episode_indices):
        try:
            (episode,) = dataset.iterate_episodes([number])
            metadata = next(iter(dataset.storage.get_episode_metadata([number])))
        except Exception as error:  # of h5py, json, gymnasium or minari
            raise _unreadable_minari(path, error) from error
        name = f"{path}, episode {number},"
        if not isinstance(episode.observations, np.ndarray) or not isinstance(episode.actions, np.ndarray):
            raise BadData(f"{name} has observations or actions of several parts; expected pictures and one action.")
        seed = metadata.get("seed")
        yield Recording(
            name,
            episode.observations,
            len(episode.observations),
            episode.actions,
            np.asarray(episode.rewards),
            any(map(bool, episode.terminations[-1:])),
            any(map(bool, episode.truncations[-1:])),
            # Minari's own files have the seed as text or None where none was given; then it follows from the content.
            int(seed) if isinstance(seed, int | np.integer) else None,
        )
