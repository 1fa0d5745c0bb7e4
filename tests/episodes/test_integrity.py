import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import RECIPE, make_episode, write_dataset
from tests.episodes.test_writer import bytes_of
from wm import seeding
from wm.artifacts import durable, manifest
from wm.episodes import schema
from wm.episodes.committed_parts import QUARANTINE
from wm.episodes.dataset import Dataset
from wm.episodes.integrity import verify
from wm.episodes.parts import PartBuilder, root_files
from wm.episodes.writer import Writer, create
from wm.errors import BadData, MissingInput


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    return write_dataset(tmp_path / "d.zarr", 9)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(bytes(data))


def test_a_whole_dataset_has_no_problem(path: Path) -> None:
    report = verify(path.parent)
    assert [checked.folder.name for checked in report.checked] == [
        "d.zarr", "part-000000-000003", "part-000003-000006", "part-000006-000009",
    ]  # fmt: skip
    assert not report.damaged


def test_every_broken_part_is_named_and_repair_keeps_the_rest(path: Path) -> None:
    whole = bytes_of(path)
    flip(path / "part-000000-000003" / "rewards" / "c.0")
    (path / "part-000003-000006" / "manifest.json").unlink()
    assert [broken.folder.name for broken in verify(path).damaged] == ["part-000000-000003", "part-000003-000006"]
    assert len(verify(path, repair_datasets=True).repaired) == 2
    assert verify(path, repair_datasets=True).repaired == []
    rest = Dataset.open(path)
    assert (rest.episodes, rest.missing) == (3, [(0, 6)])
    assert rest.column("rewards").shape == (60,)
    with Writer(rest) as writer:
        for index in writer.dataset.absent(9):
            writer.add(make_episode(index, terminated=index % 2 == 0).pack())
    files = bytes_of(path)
    assert {name: data for name, data in files.items() if not name.startswith(QUARANTINE)} == whole


@pytest.mark.parametrize("recipe", [{}, {**RECIPE, "env": {"name": 3}}])
def test_a_root_is_not_restored_from_a_part_without_a_valid_recipe(path: Path, recipe: dict[str, Any]) -> None:
    for part in path.glob("part-*"):
        group = json.loads((part / "zarr.json").read_text())
        group["attributes"]["recipe"] = recipe
        (part / "zarr.json").write_bytes(durable.canonical_json(group))
        body = json.loads((part / manifest.NAME).read_text())
        manifest.write(part, {key: body[key] for key in ("kind", "format", "name")})
    (path / "zarr.json").unlink()
    with pytest.raises(BadData, match="has neither an intact root nor an intact part"):
        verify(path, repair_datasets=True)


def test_a_missing_part_is_reported_although_every_other_checksum_holds(path: Path) -> None:
    shutil.rmtree(path / "part-000003-000006")
    assert "lost episodes 3 to 5" in verify(path.parent).damaged[0].problem
    with pytest.raises(BadData, match="lost episodes 3 to 5"):
        Dataset.open(path)
    verify(path, repair_datasets=True)
    assert Dataset.open(path).episodes == 6


@pytest.mark.parametrize("file", ["manifest.json", "zarr.json"])
def test_a_broken_root_is_written_again_from_a_part(path: Path, file: str) -> None:
    whole = bytes_of(path)
    flip(path / file)
    assert verify(path).damaged[0].folder == path
    verify(path, repair_datasets=True)
    assert bytes_of(path) == whole


def test_a_part_can_be_checked_alone_and_an_empty_folder_is_refused(path: Path, tmp_path: Path) -> None:
    assert not verify(path / "part-000000-000003").damaged
    (tmp_path / "nothing").mkdir()
    with pytest.raises(MissingInput, match="holds no dataset and no artifact"):
        verify(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"actions": 3}, r"actions is wrong: an action is 3; expected integers from 0 to 2"),
        ({"actions": -1}, "actions is wrong: an action is -1"),
        ({"rewards": 3e38}, r"rewards has .*; expected finite numbers of at most 1e\+15"),
        ({"labels": float("inf")}, r"labels has inf; expected finite numbers of at most 1e\+15"),
        ({"labels": -3e38}, r"labels has -.*; expected finite numbers of at most 1e\+15"),
        ({"return": 999.0}, r"zarr\.json has the return 999\.0 for episode 1; expected -?\d"),
    ],
)
def test_values_that_no_collecting_writes_are_named(change: dict[str, float], problem: str, tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    durable.write_folder(path, root_files(RECIPE))
    builder = PartBuilder(path, RECIPE, 0)
    for index in range(3):
        episode = make_episode(index)
        for name in change.keys() - {"return"}:
            getattr(episode, name)[4] = change[name]
        builder.add(episode.pack())
    builder._table["return"][1] = change.get("return", builder._table["return"][1])
    part = builder.commit()
    (damaged,) = verify(path).damaged
    assert damaged.folder == part
    assert re.search(rf"{part}/{problem}.* run `wm verify {path} --repair`", damaged.problem)
    for name in change.keys() & {"rewards", "labels"}:
        with pytest.raises(BadData, match=problem):
            Dataset.open(path).column(name)


def test_a_label_of_an_absent_object_is_no_number(tmp_path: Path) -> None:
    episode = make_episode(0)
    episode.labels[4] = np.nan
    with Writer(create(tmp_path / "d.zarr", RECIPE)) as writer:
        writer.add(episode.pack())
    assert not verify(tmp_path / "d.zarr").damaged
    assert np.isnan(Dataset.open(tmp_path / "d.zarr").column("labels")[4]).all()


def test_a_part_of_another_dataset_is_named_and_opens_nowhere(path: Path) -> None:
    """Copied between two datasets of the same frames, whose parts have the same names."""
    name, other = "part-000003-000006", path.parent / "other.zarr"
    durable.write_folder(other, root_files(RECIPE | {"seed": 1}))
    shutil.copytree(path / name, other / name)
    for first in (0, 6):
        builder = PartBuilder(other, RECIPE | {"seed": 1}, first)
        for index in range(first, first + 3):
            builder.add(make_episode(index).pack())
        builder.commit()
    sentence = f"{other / name} is a part of another dataset: its seed differs; move it back, or remove it."
    with pytest.raises(BadData, match=f"^{re.escape(sentence)}$"):
        Dataset.open(other)
    assert [damaged.problem for damaged in verify(other).damaged] == [sentence]
    verify(other, repair_datasets=True)
    assert Dataset.open(other).missing == [(3, 6)]


def collected(path: Path, seeds: list[int], **recipe: Any) -> Path:
    """A dataset whose episodes have these seeds."""
    with Writer(create(path, RECIPE | {"seed": 7, "policy": "random", **recipe})) as writer:
        for index, seed in enumerate(seeds):
            writer.add(replace(make_episode(index), seed=seed).pack())
    return path


@pytest.mark.parametrize(("policy", "controller"), [("random", ""), (f"latest {'ab' * 8}, 0.05 random", "ab" * 32)])
def test_an_episode_with_the_seed_of_another_is_found_and_its_part_set_aside(
    policy: str, controller: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    seeds = [seeding.collected_seed(7, controller, index) for index in range(9)]
    assert not verify(collected(tmp_path / "sound.zarr", seeds, policy=policy)).damaged
    path = collected(tmp_path / "d.zarr", [*seeds[:5], seeds[1], *seeds[6:]], policy=policy)
    (damaged,) = verify(path).damaged
    assert damaged.folder.name == "part-000003-000006"
    assert f"has episode 5 with the seed {seeds[1]} of another one; expected its own, so run" in damaged.problem
    assert verify(path, repair_datasets=True).repaired == [
        f"part-000003-000006 moved to {path / '.quarantine' / 'part-000003-000006'}"
    ]
    assert not verify(path).damaged


@pytest.mark.parametrize("recipe", [{"evicts": True}, {"origin": {"operation": "import"}}])
def test_pieces_of_a_replay_and_imported_episodes_may_share_a_seed(recipe: dict[str, Any], tmp_path: Path) -> None:
    assert not verify(collected(tmp_path / "d.zarr", [1, 1, 1, 2, 2], **recipe)).damaged


def test_two_collected_episodes_may_meet_the_same_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10,000 every eleventh dataset has such a pair, and collecting it again gives it again."""
    monkeypatch.setattr(seeding, "episode_seed", lambda split, seed, *path: seeding.integer(seed, *path) & 3)
    seeds = [seeding.collected_seed(7, "", index) for index in range(9)]
    assert len(set(seeds)) < 9
    assert not verify(collected(tmp_path / "d.zarr", seeds)).damaged
