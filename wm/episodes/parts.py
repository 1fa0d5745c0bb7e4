"""Writing a part: a Zarr v3 group of whole episodes, staged, fsynced, renamed, never changed."""

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec, ZstdCodec

from wm.artifacts import durable, manifest
from wm.episodes.schema import CHUNK_ROWS, FORMAT, Episode, part_name

KIND = "part"
STAGING = ".staging"


def add_array(group: zarr.Group, name: str, values: NDArray[Any], chunk_rows: int) -> None:
    """Store `values` as one shard of `chunk_rows`-row chunks: bytes, zstd 3, crc32c.

    No filter, no Blosc: plain zstd is smaller and faster on these frames. `write_empty_chunks` because a missing
    chunk would read as zeros, and because looking for empty chunks costs more than writing them.
    """
    rows = max(len(values), 1)
    chunk_rows = min(chunk_rows, rows)
    shard_rows = -(-rows // chunk_rows) * chunk_rows
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=(chunk_rows, *values.shape[1:]),
        shards=(shard_rows, *values.shape[1:]),
        compressors=[ZstdCodec(level=3), Crc32cCodec()],
        filters=None,
        chunk_key_encoding={"name": "default", "separator": "."},
        config={"write_empty_chunks": True},
    )
    array[...] = values


def write_part(root: Path, recipe: dict[str, Any], episodes: list[Episode]) -> Path:
    """Commit `episodes` (consecutive) as a part of the dataset at `root`. Returns the part's folder.

    The part exists from the rename on; a kill or an error before that leaves only staging, which is swept.
    """
    first, last = episodes[0].index, episodes[-1].index + 1
    staged = durable.make_folder(root / STAGING / uuid.uuid4().hex[:12])
    table = {
        "index": [episode.index for episode in episodes],
        "seed": [episode.seed for episode in episodes],
        "ends": np.cumsum([episode.rows for episode in episodes]).tolist(),
        "terminated": [episode.terminated for episode in episodes],
        "truncated": [episode.truncated for episode in episodes],
        "return": [float(episode.rewards.sum(dtype=np.float64)) for episode in episodes],
    }
    attributes: dict[str, Any] = {"format": FORMAT, "kind": KIND, "recipe": recipe, "episodes": table}
    group = zarr.open_group(staged, mode="w", zarr_format=3, attributes=attributes)
    for name in ("frames", "actions", "rewards", "labels"):
        values = np.concatenate([getattr(episode, name) for episode in episodes])
        if values.size or name != "labels":
            add_array(group, name, values, CHUNK_ROWS if name == "frames" else len(values))
    manifest.write(staged, {"kind": KIND, "format": FORMAT, "name": part_name(first, last)})
    final = root / part_name(first, last)
    durable.fsync_tree(staged)
    durable.remove_folder(final)  # only there if it lay beyond a gap; what replaces it holds the same episodes
    durable.commit_folder(staged, final)
    return final
