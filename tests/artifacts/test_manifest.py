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
    with pytest.raises(BadData, match="holds a 'thing'; expected 'vae', so give"):
        manifest.read(folder, "vae")
    with pytest.raises(MissingInput):
        manifest.read(tmp_path / "nowhere", "vae")


def test_more_bytes_than_an_artifact_can_have_are_refused_without_hashing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file takes no place on the disk, and hours to hash."""
    body = {key: value for key, value in manifest.read_json(folder / manifest.NAME).items() if key != "sha256"}
    body["files"]["a"]["size"] = 1 << 40
    with (folder / "a").open("ab") as file:
        file.truncate(1 << 40)
    (folder / manifest.NAME).write_bytes(manifest.sealed(body))
    monkeypatch.setattr("hashlib.file_digest", None)
    with pytest.raises(BadData, match=r"manifest\.json lists files of 1099\.5 GB; expected at most 17\.2 GB"):
        manifest.verify(folder, "thing")
    with pytest.raises(BadData, match=r"a has 1099\.5 GB; expected at most 17\.2 GB"):
        manifest.sha256_file(folder / "a")  # as a file that no manifest lists is read


def test_a_folder_in_the_place_of_a_manifest_is_damage(folder: Path) -> None:
    """A report leaves the artifact out, as one whose manifest is damaged."""
    (folder / manifest.NAME).unlink()
    (folder / manifest.NAME).mkdir()
    with pytest.raises(
        BadData, match=r"manifest\.json is no file; remove it, and restore it or create the thing again"
    ):
        manifest.read(folder, "thing")
