"""A link in a dataset or a run leads to a folder outside. It is named, and nothing outside is read, written or
removed."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stages.cli import run
from tests.conftest import METRICS, PROVENANCE, write_dataset
from tests.faults.conftest import collect
from wm.artifacts import durable, links, locks, manifest, runs
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import Run
from wm.episodes import schema
from wm.episodes.committed_parts import QUARANTINE
from wm.episodes.dataset import Dataset
from wm.episodes.parts import STAGING
from wm.errors import BadData
from wm.report.document import Picture
from wm.report.memory import memory_facts
from wm.report.run_summary import RunSummary
from wm.report.sections import vae_section

SECRET = b"of somebody else"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a file and a part, which must stay as they are."""
    folder = tmp_path / "outside"
    (folder / "part-000090-000091").mkdir(parents=True)
    (folder / "part-000090-000091" / "c.0").write_bytes(SECRET)
    (folder / "file").write_bytes(SECRET)
    return folder


def state(folder: Path) -> dict[str, str]:
    """Digests of all files, and the folders."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("place", [QUARANTINE, STAGING, "checkpoints", "archive", "x.partial", ".x.0123abcd.tmp"])
def test_clean_names_a_link_and_removes_nothing(
    tmp_path: Path,
    outside: Path,
    capsys: pytest.CaptureFixture[str],
    place: str,
) -> None:
    link = write_dataset(tmp_path / "data" / "d.zarr", 3) / place
    durable.remove(link)
    link.symlink_to(outside)
    before = state(outside)
    assert run(["clean", str(tmp_path / "data"), "--quarantine", "--unfinished", "--archive"]) == 65
    assert f"{link} is a link" in capsys.readouterr().err
    assert state(outside) == before
    assert link.is_symlink()


def test_a_link_that_a_repair_set_aside_is_removed_without_what_it_points_to(tmp_path: Path, outside: Path) -> None:
    part = write_dataset(tmp_path / "data" / "d.zarr", 3) / QUARANTINE / "part-000090-000091"
    (part.parent / "part-000080-000081").mkdir(parents=True)
    (part.parent / "part-000080-000081" / "c.0").write_bytes(b"damaged")
    part.symlink_to(outside)
    before = state(outside)
    assert run(["clean", str(tmp_path / "data"), "--quarantine"]) == 0
    assert (part.is_symlink(), part.read_bytes()) == (False, b"")
    assert not part.is_symlink()
    assert state(outside) == before


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("place", [STAGING, QUARANTINE, "provenance.jsonl", ".index", "other"])
def test_collecting_into_a_dataset_with_a_link_is_refused(
    tmp_path: Path, outside: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.zarr"
    assert collect(path, 5) == 0
    durable.remove(path / place)
    target = outside / "file" if "json" in place else outside
    (path / place).symlink_to(target)
    before = state(outside)
    capsys.readouterr()
    assert collect(path) == 65
    assert f"{place} is a link" in capsys.readouterr().err
    assert state(outside) == before


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("place", ["archive", ".d.zarr.owner", ".d.zarr.lock"])
def test_collecting_beside_a_link_is_refused(
    tmp_path: Path, outside: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / place).symlink_to(outside if place == "archive" else outside / "file")
    before = state(outside)
    assert collect(tmp_path / "data" / "d.zarr", 5) == 65
    assert f"{place} is a link" in capsys.readouterr().err
    assert state(outside) == before


def test_verify_names_a_link_and_repair_moves_nothing(
    tmp_path: Path,
    outside: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    link = write_dataset(tmp_path / "data" / "d.zarr", 3) / QUARANTINE
    link.symlink_to(outside)
    before = state(outside)
    for more in ([], ["--repair"]):
        assert run(["verify", str(tmp_path / "data"), *more]) == 65
        assert f"{QUARANTINE} is a link" in capsys.readouterr().err
    assert link.is_symlink()
    assert state(outside) == before


def test_an_array_behind_a_link_is_refused_though_the_index_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    path = write_dataset(tmp_path / "d.zarr", 3)
    Dataset.open(path)
    shutil.move(path / "part-000000-000003" / "rewards", tmp_path / "elsewhere")
    (path / "part-000000-000003" / "rewards").symlink_to(tmp_path / "elsewhere")
    dataset = Dataset.open(path)
    with pytest.raises(BadData, match="rewards is a link"):
        dataset.column("rewards")


def build(root: Path, name: str = "vae") -> None:
    with Run(root, name, Recipe("vae", 1, {"network": "x", "latent": 4})).build(False, print) as builder:
        durable.write_bytes(builder.folder / "weights", b"w")
        durable.write_bytes(durable.make_folder(builder.folder / runs.SCRATCH) / "step", b"s")
        durable.append(builder.folder / "metrics.jsonl", b"{}\n")
        builder.publish(METRICS["vae"], PROVENANCE)


PLACES = [
    "vae", "vae.partial", "vae.partial/checkpoints", "vae.partial/tensorboard", "archive", "archive/vae-01234567",
    "vae/weights", ".vae.owner", ".vae.lock", "vae.partial/metrics.jsonl", "vae.partial/recipe.json",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_an_artifact_is_not_built_through_a_link(tmp_path: Path, outside: Path, place: str) -> None:
    link = tmp_path / "run" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "file" if "." in link.name[1:] or link.name.startswith(".") else outside)
    before = state(outside)
    with pytest.raises(BadData, match=r"is a link; .* remove it, or replace it"):
        build(tmp_path / "run")
    assert state(outside) == before


def test_a_nested_name_does_not_lead_out_of_the_run(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "evaluation").symlink_to(outside)
    before = state(outside)
    with pytest.raises(BadData, match="evaluation is a link"):
        build(tmp_path / "run", "evaluation/controller")
    assert state(outside) == before


@pytest.mark.parametrize("read", [RunSummary.of, memory_facts], ids=["report", "memory"])
def test_a_run_with_a_link_is_not_read(tmp_path: Path, outside: Path, read: Callable[[Path], object]) -> None:
    build(tmp_path / "run")
    durable.write_bytes(tmp_path / "run" / "vae" / "metrics.jsonl", b'{"step": 1, "rss_anon_mb": 3}\n')
    (tmp_path / "run" / "vae" / "picture.png").symlink_to(outside / "file")
    with pytest.raises(BadData, match=r"picture\.png is a link"):
        read(tmp_path / "run")


def test_links_in_a_run_are_named_and_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    build(Path("runs/Pong"))
    build(Path("outside"), "controller")
    Path("runs/Pong/evaluation").symlink_to(tmp_path / "outside")
    problem = "runs/Pong/evaluation is a link"
    assert run(["verify", "runs"]) == 65
    assert problem in capsys.readouterr().err
    assert run(["ls", "runs", "--json"]) == 0
    entries = {entry["path"]: entry for entry in json.loads(capsys.readouterr().out)["entries"]}
    assert entries.keys() == {"runs/Pong/vae", "runs/Pong/evaluation"}
    assert entries["runs/Pong/evaluation"]["kind"] == "damaged"
    assert problem in entries["runs/Pong/evaluation"]["problem"]
    assert run(["push", "runs/Pong", "shared"]) == 65
    assert problem in capsys.readouterr().err
    assert not Path("shared").exists()


@pytest.mark.skipif(os.name == "nt", reason="every volume of Windows has a root of its own")
@pytest.mark.parametrize("words", [("clean", "--dry-run"), ("ls",), ("verify",)])
def test_the_whole_machine_is_not_walked(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "/"]) == 64
    assert capsys.readouterr().err == ("wm: / is the whole machine; name folders in it, such as data and runs.\n")


@pytest.mark.parametrize("words", [("clean", "--dry-run"), ("ls",), ("verify",)])
def test_a_folder_of_other_programs_is_not_walked_to_its_end(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies beside ours does not count up over them: a folder may have any number of parts."""
    for number in range(12):
        folder = tmp_path / "shop" / f"{number:02}"
        folder.mkdir(parents=True)
        (folder / ("manifest.json" if number % 4 == 3 else "file")).write_text("{}")
    monkeypatch.setattr(links, "MOST_OF_OTHERS", 9)
    assert len(list(links.walk(tmp_path))) == 25
    monkeypatch.setattr(links, "MOST_OF_OTHERS", 6)
    assert run([*words, str(tmp_path)]) == 65
    assert capsys.readouterr().err == (
        f"wm: {tmp_path} has more than 6 files of other programs, as in {tmp_path / 'shop' / '02'}; name folders with "
        "datasets and runs, such as data and runs.\n"
    )


@pytest.mark.skipif(os.name == "nt", reason="paths of Windows are shorter")
def test_folders_that_are_nested_too_deeply_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    build(Path("runs/Pong"))
    deep = "runs/Pong/vae"
    for _ in range(1100):
        deep += "/d"
        os.mkdir(deep)
    for words in (["report", "runs"], ["ls", "runs"], ["verify", "runs"], ["clean", "runs"], ["memory", "runs/Pong"]):
        assert run(words) == 65
        assert "expected at most 64, so remove it" in capsys.readouterr().err
    with pytest.raises(BadData, match="nested too deeply"):
        durable.remove(Path("runs/Pong"))
    subprocess.run(["rm", "-r", tmp_path / "runs"], check=True)  # that of Python is what cannot


def test_an_artifact_behind_a_link_is_no_input(tmp_path: Path) -> None:
    build(tmp_path / "other")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "vae").symlink_to(tmp_path / "other" / "vae")
    with pytest.raises(BadData, match="is a link"):
        runs.load(tmp_path / "run" / "vae", "vae", "wm train-vae")
    (tmp_path / "other" / "vae" / manifest.NAME).rename(tmp_path / "manifest")
    (tmp_path / "other" / "vae" / manifest.NAME).symlink_to(tmp_path / "manifest")
    with pytest.raises(BadData, match="is a link"):
        runs.load(tmp_path / "other" / "vae", "vae", "wm train-vae")


@pytest.mark.parametrize("mode", ["rb", "rb+", "wb", "ab"])
def test_the_opener_and_the_remover_refuse_links(tmp_path: Path, outside: Path, mode: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(outside / "file")
    with pytest.raises(BadData, match="is a link"):
        durable.open_file(link, mode)  # type: ignore[arg-type]
    with pytest.raises(BadData, match="is a link"):
        durable.remove(link)
    (tmp_path / ".x.owner").symlink_to(outside / "file")
    with pytest.raises(BadData, match="is a link"), locks.exclusive(tmp_path / "x"):
        pass
    assert (outside / "file").read_bytes() == SECRET


def test_the_folder_that_a_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "big")
    build(tmp_path / "runs")
    assert runs.load(tmp_path / "runs" / "vae", "vae", "").read_bytes("weights") == b"w"
    links.refuse_below(tmp_path / "runs")


def test_a_report_embeds_only_pictures_that_a_manifest_lists(tmp_path: Path) -> None:
    recipe = {"settings": {"network": "x", "latent": 4}, "inputs": {}}
    body = {
        "kind": "vae",
        "metrics": METRICS["vae"],
        "fingerprint": manifest.sha256_json(recipe),
        "provenance": PROVENANCE,
        "recipe": recipe,
    }
    (tmp_path / "reconstructions.png").write_bytes(SECRET)

    def pictures(files: list[str]) -> list[Path]:
        manifest.write(tmp_path, body, files)
        artifact = runs.load(tmp_path, "vae", "wm train-vae")
        blocks = vae_section("X", artifact, [])
        return [block.path for block in blocks if isinstance(block, Picture)]

    assert pictures([]) == []
    assert pictures(["reconstructions.png"]) == [tmp_path / "reconstructions.png"]
    (tmp_path / "reconstructions.png").write_bytes(SECRET[::-1])
    with pytest.raises(BadData, match="does not match its checksum"):
        list(vae_section("X", runs.load(tmp_path, "vae", ""), []))
