import json
import os
from pathlib import Path

import pytest

from tests.conftest import METRICS, PROVENANCE, write_dataset
from tests.stages.conftest import Output
from wm.artifacts import durable, locks
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import RECIPE_FILE, Run
from wm.episodes import leftovers, schema
from wm.episodes.committed_parts import QUARANTINE
from wm.episodes.dataset import Dataset


def litter(workspace: Path) -> None:
    for name in (".staging/abc/frames", f"{QUARANTINE}/part-000090-000091"):
        (workspace / "data" / "d.zarr" / name).mkdir(parents=True)
    (workspace / "data" / "d.zarr" / ".staging" / "abc" / "frames" / "c.0").write_bytes(bytes(1000))
    (workspace / "data" / "d.zarr" / QUARANTINE / "part-000090-000091" / "c.0").write_bytes(bytes(300))
    (workspace / "data" / ".d.zarr.0123abcd.tmp").mkdir()
    (workspace / "runs" / "X" / "vae.partial").mkdir(parents=True)
    recipe = durable.canonical_json(Recipe("vae", 1, {}).as_json())
    (workspace / "runs" / "X" / "vae.partial" / RECIPE_FILE).write_bytes(recipe)
    (workspace / "runs" / "X" / "vae.partial" / "weights").write_bytes(bytes(200 - len(recipe)))
    (workspace / "runs" / "X" / "vae.partial" / ".m.0123abcd.tmp").write_bytes(bytes(7))


def test_clean_removes_orphans_alone_and_says_what_more_could_go(workspace: Path, output: Output) -> None:
    litter(workspace)
    assert json.loads(output("clean", "--dry-run", "--json"))["bytes"] == 1000
    assert (workspace / "data" / "d.zarr" / ".staging").exists()
    text = output("clean")
    assert "freed 1.0 kB" in text
    assert "300 B more with --quarantine" in text
    assert "207 B more with --unfinished" in text
    assert not (workspace / "data" / "d.zarr" / ".staging").exists()
    assert (workspace / "runs" / "X" / "vae.partial" / "weights").exists()
    assert "freed 507 B" in output("clean", "--quarantine", "--unfinished")
    assert Dataset.open(workspace / "data" / "d.zarr").episodes == 20


def test_clean_leaves_what_other_programs_call_by_the_same_names(workspace: Path, output: Output) -> None:
    others = ["webapp/checkpoints/best.pt", "x/.staging/thesis.tex", "x/.quarantine/mail", "x/archive/2020/letter"]
    others += ["x/film.partial/film", "x/archive/empty/"]
    for name in others:
        path = workspace / "mine" / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True)
        if not name.endswith("/"):
            path.write_bytes(b"dear")
    (workspace / "mine" / "webapp" / "manifest.json").write_text('{"name": "a page", "files": {}}')
    (workspace / "mine" / "x" / "film.partial" / "recipe.json").write_text('{"kind": "soup"}')
    (workspace / "mine" / "webapp" / "archive").symlink_to(workspace)
    assert "freed 0 B" in output("clean", "mine", "--archive", "--unfinished", "--quarantine")
    assert all((workspace / "mine" / name).exists() for name in others)
    assert not list((workspace / "mine").rglob("*.lock"))


def test_clean_removes_checkpoints_of_what_is_finished_and_archived_artifacts(workspace: Path, output: Output) -> None:
    run = workspace / "runs" / "X"
    for latent in (4, 5):
        with Run(run, "vae", Recipe("vae", 1, {"network": "x", "latent": latent})).build(False, print) as builder:
            builder.publish(METRICS["vae"], PROVENANCE)
    with Run(run, "vae", Recipe("vae", 1, {"network": "x", "latent": 6})).build(False, print):
        pass  # unfinished
    with Run(run, "vae", Recipe("vae", 1, {"network": "x", "latent": 7})).build(False, print):
        pass  # and the other one is in the archive
    durable.write_folder(run / "vae" / "checkpoints", {"step": b"s"})
    durable.write_folder(run / "archive" / "vae-damaged0", {"manifest.json": b"{"})
    write_dataset(workspace / "runs" / "archive" / "d-01234567.zarr", 3)
    (run / "vae" / "archive").mkdir()
    removed = json.loads(output("clean", "--archive", "--json"))["removed"]
    names = sorted(Path(each["path"]).name for each in removed)
    assert [name[:4] for name in names] == ["chec", "d-01", "vae-", "vae-", "vae-"]
    assert (run / "vae.partial").is_dir()


def test_clean_leaves_what_a_running_process_holds(workspace: Path, output: Output) -> None:
    litter(workspace)
    with locks.exclusive(workspace / "data" / "d.zarr"):
        assert "a running process holds its lock" in output("clean")
        assert "data/d.zarr/.staging" in json.loads(output("clean", "--json"))["in_use"]
    assert (workspace / "data" / "d.zarr" / ".staging" / "abc").exists()


def test_a_dataset_without_a_part_is_still_readable_when_its_quarantine_was_cleaned(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    write_dataset(workspace / "data" / "e.zarr", 9)
    (workspace / "data" / "e.zarr" / "part-000003-000006" / "zarr.json").write_bytes(b"?")
    output("verify", "data/e.zarr", "--repair")
    assert Dataset.open(workspace / "data" / "e.zarr").missing == [(3, 6)]
    output("clean", "--quarantine")
    assert Dataset.open(workspace / "data" / "e.zarr").missing == [(3, 6)]
    assert "more with --quarantine" not in output("clean")


@pytest.mark.parametrize("killed", ["shutil.rmtree", "pathlib.Path.unlink", "os.replace"])
def test_a_dataset_is_still_readable_when_cleaning_its_quarantine_was_killed(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    path = write_dataset(workspace / "data" / "e.zarr", 9)
    for part in ("part-000000-000003", "part-000003-000006"):
        (path / part / "zarr.json").write_bytes(b"?")
    output("verify", "data/e.zarr", "--repair")
    aside = path / QUARANTINE / "part-000000-000003"
    durable.remove(aside)
    aside.symlink_to(workspace)

    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    found = [each for each in leftovers.find([path]) if each.kind == "quarantine"]
    with monkeypatch.context() as patch:
        patch.setattr(killed, kill)
        with pytest.raises(KeyboardInterrupt):
            leftovers.remove(found)
    assert Dataset.open(path).missing == [(0, 6)]
    output("clean", "--quarantine")
    assert durable.folder_size(path / QUARANTINE) == 0
    assert Dataset.open(path).missing == [(0, 6)]


def test_clean_says_what_the_system_did_not_let_it_remove(
    workspace: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    litter(workspace)
    real = os.unlink

    def refuse(path: str, **options: int) -> None:
        if str(path).endswith("c.0"):
            raise PermissionError(13, "Permission denied", path)
        real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        text = output("clean", "--quarantine", "--unfinished", code=77)
    assert "did not let data/d.zarr/.quarantine, data/d.zarr/.staging be removed" in text
    assert not (workspace / "runs" / "X" / "vae.partial").exists()
    assert "freed 1.0 kB" in output("clean")
