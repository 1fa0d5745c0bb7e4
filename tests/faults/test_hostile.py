"""Datasets made to do harm: refused, nothing executed, nothing outside opened, little memory used."""

import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import zstandard

from tests.conftest import RECIPE, ROOT, write_dataset
from wm.artifacts import durable, manifest
from wm.episodes.schema import array_specs

EXTRA_MEMORY = 64 << 20

# Opens datasets as a stage would and reads all of them, each from its own folder, where code in it would leave a mark;
# says of each but the first how it ended and by how much memory grew at its peak.
READ = """
import os, resource, sys
from pathlib import Path
from wm.episodes.integrity import verify
from wm.report.inventory import describe
from wm.episodes.frame_batches import FrameBatches
from wm.episodes.dataset import Dataset
from wm.errors import WmError
import numpy as np
def peak():
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss begins at the size of the process that forked this one
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def read(path):
    dataset = Dataset.open(path)
    for name in ("actions", "rewards", "labels"):
        dataset.column(name)
    FrameBatches(dataset, np.ones(dataset.episodes, bool), 4, 0, 0).at(0)
good, *others = map(Path, sys.argv[1:])
read(good); describe(good); verify(good)
for bad in others:
    os.chdir(bad.parent)
    before, refused = peak(), 0
    for use in (read, describe, verify):
        try:
            result = use(bad)
            refused += use is verify and bool(result.damaged)
        except WmError:
            refused += 1
    print(refused, peak() - before)
"""


def seal(part: Path) -> None:
    """Make the manifest of a part agree with what is in it now."""
    body = {"kind": "part", "format": 2, "name": part.name}
    names = [file.relative_to(part).as_posix() for file in part.rglob("*") if file.is_file()]
    (part / manifest.NAME).write_bytes(
        manifest.of(body, {name: (part / name).read_bytes() for name in names if name != manifest.NAME})
    )


def put(part: Path, column: str, frame: bytes, offset: int = 0) -> None:
    """A shard of one chunk, every checksum right."""
    chunk = frame + struct.pack("<I", google_crc32c.value(frame))
    index = struct.pack("<QQ", offset, len(chunk))
    shard = next((part / column).glob("c*"))
    shard.write_bytes(chunk + index + struct.pack("<I", google_crc32c.value(index)))


def change_metadata(part: Path, column: str, **values: Any) -> None:
    file = part / column / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


class Canary:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch canary",)


def pickle_filter(part: Path) -> None:
    """Zarr version 2 metadata whose filter would run code; the version 3 files beside it stay, or are gone."""
    shutil.rmtree(part / "actions")
    (part / "actions").mkdir()
    described = {
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "compressor": None, "fill_value": None,
        "order": "C", "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}],
    }  # fmt: skip
    (part / "actions" / ".zarray").write_text(json.dumps(described))
    (part / "actions" / "0").write_bytes(pickle.dumps([Canary()]))


def unknown_codec(part: Path) -> None:
    (meta,) = json.loads((part / "frames" / "zarr.json").read_text())["codecs"]
    meta["configuration"]["codecs"][1] = {"name": "numcodecs.pickle", "configuration": {}}
    change_metadata(part, "frames", codecs=[meta])


def huge_shape(part: Path) -> None:
    change_metadata(part, "frames", shape=[2**50, 32, 32, 3])


def huge_table(part: Path) -> None:
    file = part / "zarr.json"
    group = json.loads(file.read_text())
    group["attributes"]["episodes"]["ends"] = [20, 40, 2**39]
    file.write_bytes(durable.canonical_json(group))
    rows = array_specs(RECIPE, 2**39)
    for name, form in rows.items():
        (part / name / "zarr.json").write_text(json.dumps(form.metadata))


def frame_bomb(part: Path) -> None:
    put(part, "frames", zstandard.compress(np.zeros(700 << 20, np.uint8)))


def column_bomb(part: Path) -> None:
    put(part, "rewards", zstandard.compress(np.zeros(700 << 20, np.uint8)))


def pointing_index(part: Path) -> None:
    put(part, "rewards", zstandard.compress(np.zeros(60, np.float32)), offset=2**62)


def sparse_chunk(part: Path) -> None:
    """One chunk of 200 MB, which takes no place on the disk."""
    size = 200 << 20
    index = struct.pack("<QQ", 0, size)
    shard = next((part / "rewards").glob("c*"))
    with shard.open("wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(index + struct.pack("<I", google_crc32c.value(index)))


def link_to_a_file(part: Path) -> None:
    shard = next((part / "rewards").glob("c*"))
    shard.unlink()
    shard.symlink_to("/etc/passwd")


def link_to_a_folder(part: Path) -> None:
    shutil.rmtree(part / "rewards")
    (part / "rewards").symlink_to("/etc")


def linked_part(part: Path) -> None:
    shutil.move(part, part.parent.parent / "elsewhere")
    part.symlink_to(part.parent.parent / "elsewhere")


def name_that_climbs(part: Path) -> None:
    (part.parent.parent / "outside").write_bytes(b"secret")
    listed = {"zarr.json": (part / "zarr.json").read_bytes(), "../../outside": b"secret"}
    (part / manifest.NAME).write_bytes(manifest.of({"kind": "part", "format": 2, "name": part.name}, listed))


def deep_json(part: Path) -> None:
    (part / manifest.NAME).write_text("[" * 100_000)


def large_json(part: Path) -> None:
    with open(part / manifest.NAME, "w") as file:
        file.write('{"kind": "part", "x": "')
        file.writelines("y" * (1 << 20) for _ in range(200))
        file.write('"}')


def wrong_types(part: Path) -> None:
    file = part / "zarr.json"
    group = json.loads(file.read_text())
    group["attributes"]["episodes"] = {"index": "abc", "ends": None}
    file.write_bytes(durable.canonical_json(group))


SEALED = [
    pickle_filter, unknown_codec, huge_shape, huge_table, frame_bomb, column_bomb, pointing_index, sparse_chunk,
    wrong_types,
]  # fmt: skip
UNSEALED = [link_to_a_file, link_to_a_folder, linked_part, name_that_climbs, deep_json, large_json]
ATTACKS = {attack.__name__: attack for attack in (*SEALED, *UNSEALED)}


def write_hostile(path: Path, attack: Callable[[Path], None]) -> Path:
    """A dataset of one part that was attacked."""
    path.parent.mkdir()
    part = write_dataset(path, 3) / "part-000000-000003"
    (path / ".index").unlink(missing_ok=True)
    attack(part)
    if attack in SEALED:
        seal(part)
    return path


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, int, int]]:
    """For each attack the folder of its dataset, how often reading was refused, and by how much memory grew; all in
    one process, most of whose time is its start."""
    folder = tmp_path_factory.mktemp("hostile")
    good = write_dataset(folder / "good", 3)
    bad = [write_hostile(folder / name / "bad", attack) for name, attack in ATTACKS.items()]
    done = subprocess.run(
        [sys.executable, "-c", READ, *map(str, (good, *bad))],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ended = [map(int, line.split()) for line in done.stdout.splitlines()]
    return {path.parent.name: (path.parent, *figures) for path, figures in zip(bad, ended, strict=True)}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_part_is_refused(reading: dict[str, tuple[Path, int, int]], attack: str) -> None:
    folder, refused, grown = reading[attack]
    assert not (folder / "canary").exists()
    assert refused >= 2, "reading and verifying must both refuse"
    assert grown < EXTRA_MEMORY


def test_a_hostile_root_is_refused(tmp_path: Path) -> None:
    from wm.episodes.dataset import Dataset
    from wm.errors import BadData

    for recipe in ({}, {"env": {"size": 2**40, "gray": False, "name": "x"}}, {**RECIPE, "action_space": {"count": -1}}):
        path = tmp_path / "d.zarr"
        durable.remove(path)
        path.mkdir()
        (path / manifest.NAME).write_bytes(manifest.of({"kind": "episodes", "format": 2, "recipe": recipe}, {}))
        with pytest.raises(BadData, match=r"manifest\.json: recipe\."):
            Dataset.open(path)
