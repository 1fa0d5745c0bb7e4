import pickle
import shutil
from pathlib import Path

import pytest

from wm.artifacts import manifest
from wm.errors import BadData
from wm.rollouts.artifact_transfer import Lacking, TaskPickler, find_folders, run_task, store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An artifact."""
    made = tmp_path / "here" / "vae"
    made.mkdir(parents=True)
    (made / "model.json").write_text("{}")
    (made / "weights.safetensors").write_bytes(b"weights")
    manifest.write(made, {"kind": "vae"})
    return made


def both(folder: Path, other: Path) -> tuple[Path, Path]:
    return folder, other


def run(task: bytes, cache: Path) -> tuple[Path, Path]:
    """What `both` finds on another machine."""
    result: tuple[Path, Path] = pickle.loads(run_task(*find_folders(task, cache)))
    return result


def test_folders_that_are_shared_keep_their_path(folder: Path, tmp_path: Path) -> None:
    task = TaskPickler().dump(both, (folder, tmp_path))
    assert run(task, tmp_path / "cache") == (folder, tmp_path)


def test_an_artifact_that_is_not_here_is_asked_for_and_kept(folder: Path, tmp_path: Path) -> None:
    pickler, cache = TaskPickler(), tmp_path / "cache"
    task = pickler.dump(both, (folder, tmp_path))
    (tmp_path / "there").mkdir()
    shutil.move(folder, tmp_path / "there")
    with pytest.raises(Lacking) as lacking:
        run(task, cache)
    shutil.move(tmp_path / "there" / "vae", folder.parent)
    (digest,) = lacking.value.digests
    files = pickler.files(digest)
    shutil.rmtree(folder)
    for _ in range(2):
        store(cache, digest, files)
    found, same = run(task, cache)
    assert found == cache / digest
    assert (found / "weights.safetensors").read_bytes() == b"weights"
    assert same == tmp_path


def test_another_artifact_at_the_same_path_is_not_taken_for_it(folder: Path, tmp_path: Path) -> None:
    task = TaskPickler().dump(both, (folder, tmp_path))
    (folder / "weights.safetensors").write_bytes(b"others")
    manifest.write(folder, {"kind": "vae"})
    with pytest.raises(Lacking):
        run(task, tmp_path / "cache")


def test_files_of_another_digest_are_not_kept(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="others than announced"):
        store(tmp_path / "cache", "0" * 64, {manifest.NAME: b"{}"})
    assert not (tmp_path / "cache").exists()
