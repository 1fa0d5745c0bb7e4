import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import METRICS, PROVENANCE
from wm.artifacts import durable, manifest, runs
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import Run
from wm.errors import BadData, MissingInput, RecipeMismatch

SETTINGS = {"network": "small"}


def run(root: Path, latent: int = 32) -> Run:
    return Run(root, "vae", Recipe("vae", 1, SETTINGS | {"latent": latent}))


def make(root: Path, latent: int = 32, keep_current: bool = False) -> list[str]:
    log: list[str] = []
    with run(root, latent).build(keep_current, log.append) as builder:
        if builder.restored is None:
            (builder.folder / "weights").write_bytes(b"w%d" % latent)
            builder.publish(METRICS["vae"], PROVENANCE)
    return log


@pytest.mark.parametrize("name", ["num_envs", "rollout_steps"])
def test_sizes_of_a_search_are_numbers(tmp_path: Path, name: str) -> None:
    recipe = {"settings": {"algo": "ppo", name: "8"}, "inputs": {"vae": "0", "mdnrnn": "0"}}
    body = {"kind": "controller", "fingerprint": "0", "metrics": METRICS["controller"], "provenance": PROVENANCE}
    manifest.write(tmp_path, {**body, "recipe": recipe})
    with pytest.raises(BadData, match=f'recipe.settings.{name} is "8"; expected an integer'):
        runs.read(tmp_path, "controller")


@pytest.mark.parametrize(
    ("recipe", "problem"),
    [
        ({}, "kind is missing"),
        ({"kind": "vae", "settings": 3, "inputs": {}}, "settings is 3"),
        ({"kind": "vae", "settings": {"packages": [1]}, "inputs": {}}, "settings.packages is a list of 1 values"),
        ({"kind": "vae", "settings": {}, "inputs": {"vae": 1}}, "inputs.vae is 1"),
    ],
)
def test_unfinished_work_with_a_recipe_that_is_none_is_neither_resumed_nor_moved(
    tmp_path: Path, recipe: dict[str, Any], problem: str
) -> None:
    partial = run(tmp_path).partial
    partial.mkdir()
    durable.write_json(partial / runs.RECIPE_FILE, recipe)
    (partial / "metrics.jsonl").write_text("hours of work")
    with pytest.raises(BadData, match=f"{runs.RECIPE_FILE}: {problem}; expected .*, so restore it, or remove"):
        make(tmp_path)
    assert sorted(path.name for path in partial.iterdir()) == ["metrics.jsonl", runs.RECIPE_FILE]


def test_a_finished_run_of_the_same_recipe_is_current(tmp_path: Path) -> None:
    assert run(tmp_path).current() is None
    make(tmp_path)
    current = run(tmp_path).current()
    assert current is not None
    assert current.read_bytes("weights") == b"w32"
    assert run(tmp_path, 64).current() is None
    assert run(tmp_path, 64).why_stale() == "latent 32 -> 64"


def test_a_copy_takes_no_disk_space_of_its_own_and_is_checked(tmp_path: Path) -> None:
    make(tmp_path / "one")
    artifact = run(tmp_path / "one").current()
    assert artifact is not None
    runs.copy(artifact, tmp_path / "two" / "vae")
    copied = runs.load(tmp_path / "two" / "vae", "vae", "")
    assert copied.read_bytes("weights") == b"w32"
    assert (copied.folder / "weights").samefile(artifact.folder / "weights")
    (artifact.folder / "weights").write_bytes(b"w33")
    with pytest.raises(BadData, match="does not match its checksum"):
        runs.copy(artifact, tmp_path / "three" / "vae")
    assert not (tmp_path / "three" / "vae").exists()


@pytest.mark.parametrize("place", ["vae", "vae.partial", "archive"])
def test_a_file_in_the_place_of_a_folder_is_found_before_anything_is_built(tmp_path: Path, place: str) -> None:
    (tmp_path / place).write_text("mine")
    with pytest.raises(BadData, match=f"{place} is a file where a folder is expected; remove or rename it"):
        make(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [place]
    assert (tmp_path / place).read_text() == "mine"


def test_an_artifact_that_is_read_whole_has_every_file_checked(tmp_path: Path) -> None:
    make(tmp_path)
    assert runs.read_whole(tmp_path / "vae").metrics == METRICS["vae"]
    (tmp_path / "vae" / "weights").write_bytes(b"w33")
    with pytest.raises(BadData, match="weights does not match its checksum"):
        runs.read_whole(tmp_path / "vae")


def test_another_recipe_archives_the_finished_one_and_brings_it_back(tmp_path: Path) -> None:
    make(tmp_path, 32)
    assert "latent 32 -> 64" in make(tmp_path, 64)[0]
    archived = list((tmp_path / "archive").iterdir())
    assert [path.name for path in archived] == [f"vae-{run(tmp_path, 32).recipe.fingerprint[:8]}"]
    assert "restored from the archive" in make(tmp_path, 32)[-1]
    assert run(tmp_path, 32).current() is not None
    assert (tmp_path / "archive" / f"vae-{run(tmp_path, 64).recipe.fingerprint[:8]}" / "weights").exists()


def test_keep_current_refuses(tmp_path: Path) -> None:
    make(tmp_path, 32)
    with pytest.raises(RecipeMismatch, match="latent 32 -> 64"):
        make(tmp_path, 64, keep_current=True)
    assert run(tmp_path, 32).current() is not None


def test_unfinished_work_is_resumed_by_its_own_recipe_only(tmp_path: Path) -> None:
    def interrupt(latent: int) -> bool:
        with pytest.raises(ZeroDivisionError), run(tmp_path, latent).build(False, print) as builder:  # noqa: PT012
            resumed = builder.resumed
            (builder.folder / f"work-{latent}").touch()
            raise ZeroDivisionError
        return resumed

    assert not interrupt(32)
    assert interrupt(32)
    assert not interrupt(64)
    assert not (tmp_path / "vae.partial" / "work-32").exists()
    assert interrupt(32)
    assert (tmp_path / "vae.partial" / "work-32").exists()


def test_a_kill_between_manifest_and_rename_is_finished_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, 32)

    def die(self: Run, source: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "swap_in", die)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path, 64)
    assert run(tmp_path, 32).current() is not None
    with run(tmp_path, 64).build(False, print):
        pass
    assert run(tmp_path, 64).current() is not None


def test_checkpoints_are_not_part_of_the_result(tmp_path: Path) -> None:
    with run(tmp_path).build(False, print) as builder:
        (builder.folder / runs.SCRATCH).mkdir()
        (builder.folder / runs.SCRATCH / "step").touch()
        (builder.folder / "weights").touch()
        artifact = builder.publish(METRICS["vae"], PROVENANCE)
    assert set(artifact.manifest["files"]) == {"weights"}
    assert sorted(os.listdir(artifact.folder)) == [manifest.NAME, "weights"]


def test_a_damaged_artifact_is_refused_as_input_and_made_again(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "vae" / "weights").write_bytes(b"w33")
    loaded = runs.load(tmp_path / "vae", "vae", "wm train-vae")
    with pytest.raises(BadData, match="does not match its checksum"):
        loaded.read_bytes("weights")
    with pytest.raises(MissingInput, match="run `wm train-vae` first"):
        runs.load(tmp_path / "nothing", "vae", "wm train-vae")
    (tmp_path / "vae" / "weights").unlink()
    assert run(tmp_path).current() is None
    with pytest.raises(BadData, match=r"weights is missing .*, and --keep-current is given; restore the file"):
        make(tmp_path, keep_current=True)
    assert not (tmp_path / "archive").exists()
    assert "weights is missing or has another size than its manifest says; the artifact moves" in make(tmp_path)[0]
    assert run(tmp_path).current() is not None


@pytest.mark.parametrize("finished", [True, False])
def test_an_artifact_of_another_kind_is_never_replaced(tmp_path: Path, finished: bool) -> None:
    if finished:
        make(tmp_path)
    else:
        with pytest.raises(ZeroDivisionError), run(tmp_path).build(False, print):
            raise ZeroDivisionError
    controller = Run(tmp_path, "vae", Recipe("controller", 1, {}))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RecipeMismatch, match="holds a vae, and a controller does not replace it; choose another"):
        controller.current()
    with pytest.raises(RecipeMismatch, match="holds a vae"), controller.build(False, print):
        pass
    inside = Run(tmp_path, "vae/deep", Recipe("controller", 1, {}))
    if finished:
        with pytest.raises(RecipeMismatch, match="lies in it; choose another"):
            inside.current()
    assert sorted(path for path in tmp_path.rglob("*") if not path.name.startswith(".")) == [
        path for path in before if not path.name.startswith(".")
    ]


def test_an_artifact_whose_name_is_a_pattern_is_found_in_the_archive(tmp_path: Path) -> None:
    for latent in (1, 2):
        with Run(tmp_path, "vae[1]", Recipe("vae", 1, SETTINGS | {"latent": latent})).build(False, print) as builder:
            builder.publish(METRICS["vae"], PROVENANCE)
    assert len(Run(tmp_path, "vae[1]", Recipe("vae", 1, {})).archived) == 1


def test_nothing_in_the_archive_is_deleted(tmp_path: Path) -> None:
    for number in range(3):
        make(tmp_path)
        (tmp_path / "vae" / "weights").unlink()
        (tmp_path / "vae" / "kept").write_bytes(b"%d" % number)
    make(tmp_path)
    archived = sorted(path.read_bytes() for path in (tmp_path / "archive").rglob("kept"))
    assert archived == [b"0", b"1", b"2"]


def test_a_numbered_artifact_is_restored_from_the_archive(tmp_path: Path) -> None:
    make(tmp_path, 32)
    make(tmp_path, 64)
    (first,) = (tmp_path / "archive").iterdir()
    first.rename(first.with_name(f"{first.name}.2"))
    assert "restored from the archive" in make(tmp_path, 32)[-1]
