import random
from pathlib import Path

import pytest

from wm.artifacts import manifest
from wm.errors import BadData, MissingInput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(bytes(range(200)))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_bytes(b"hello")
    manifest.write(tmp_path, {"kind": "thing"})
    return tmp_path


def test_a_whole_folder_verifies(folder: Path) -> None:
    assert manifest.verify(folder, "thing") == 2


def test_any_flipped_bit_is_found(folder: Path) -> None:
    rng = random.Random(0)
    for path in [folder / "a", folder / "sub" / "b", folder / manifest.NAME]:
        good = path.read_bytes()
        for _ in range(60):
            bad = bytearray(good)
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            path.write_bytes(bytes(bad))
            with pytest.raises(BadData):
                manifest.verify(folder, "thing")
        path.write_bytes(good)


def test_a_missing_or_truncated_file_is_found_without_hashing(folder: Path) -> None:
    (folder / "a").write_bytes(b"x")
    with pytest.raises(BadData, match="another size"):
        manifest.read(folder, "thing")
    (folder / "a").unlink()
    with pytest.raises(BadData, match="missing"):
        manifest.read(folder, "thing")


def test_another_kind_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="holds a 'thing'; expected a 'vae'"):
        manifest.read(folder, "vae")
    with pytest.raises(MissingInput):
        manifest.read(tmp_path / "nowhere", "vae")
