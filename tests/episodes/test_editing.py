from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import RECIPE, make_episode
from wm.artifacts.disk import DiskBudget
from wm.episodes import editing, new_datasets, schema
from wm.episodes.archive import find_dataset, read_provenance
from wm.episodes.dataset import Dataset
from wm.episodes.schema import Episode, describe_origin
from wm.episodes.summary import summarize
from wm.episodes.writer import Writer, create
from wm.errors import DiskProblem, MissingInput, RecipeMismatch, UsageProblem


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)


def collected(path: Path, first: int, last: int, recipe: dict[str, Any] | None = None, **changes: Any) -> Dataset:
    """A dataset of episodes made from the numbers first..last-1; `changes` are of their fields."""
    with Writer(create(path, RECIPE if recipe is None else recipe)) as writer:
        for number in range(first, last):
            writer.add(replace(make_episode(number), index=number - first, **changes).pack())
    return Dataset.open(path)


def written(path: Path, edit: editing.Edit, limit: int | None = None) -> Dataset:
    new_datasets.write(path, edit, DiskBudget(path, limit), lambda: {"command": "wm data"}, lambda done: None)
    return Dataset.open(path)


def episodes_of(dataset: Dataset) -> list[Episode]:
    return [episode for part in dataset.parts for episode in dataset.episodes_of(part)]


def same(episode: Episode, other: Episode) -> bool:
    columns = ("frames", "actions", "rewards", "labels", "seed", "terminated", "truncated")
    return all(np.array_equal(getattr(episode, name), getattr(other, name)) for name in columns)


def test_a_merge_has_the_episodes_of_one_dataset_after_those_of_the_other(tmp_path: Path) -> None:
    first, second = collected(tmp_path / "a.zarr", 0, 5), collected(tmp_path / "b.zarr", 5, 9)
    merged = written(tmp_path / "c.zarr", editing.merge([first, second]))
    assert merged.episodes == 9
    assert [episode.index for episode in episodes_of(merged)] == list(range(9))
    assert all(map(same, episodes_of(merged), map(make_episode, range(9))))
    assert merged.recipe["origin"]["datasets"] == [first.fingerprint, second.fingerprint]
    assert read_provenance(merged.path) == [{"episodes": 9, "command": "wm data"}]


def test_both_sides_of_a_split_have_their_episodes(tmp_path: Path) -> None:
    dataset = collected(tmp_path / "a.zarr", 0, 7)
    first, rest = editing.split(dataset, 4)
    parts = [written(tmp_path / f"{number}.zarr", edit) for number, edit in enumerate((first, rest))]
    assert [part.episodes for part in parts] == [4, 3]
    assert all(map(same, [*episodes_of(parts[0]), *episodes_of(parts[1])], map(make_episode, range(7))))
    assert describe_origin(parts[1].recipe) == f"episodes 4-6 of {dataset.fingerprint[:8]}"


def test_dropped_episodes_are_gone_and_the_others_numbered_from_zero(tmp_path: Path) -> None:
    dataset = collected(tmp_path / "a.zarr", 0, 9)
    rest = written(tmp_path / "b.zarr", editing.drop(dataset, "0,3,5-7"))
    assert [episode.index for episode in episodes_of(rest)] == [0, 1, 2, 3]
    assert all(map(same, episodes_of(rest), map(make_episode, (1, 2, 4, 8))))
    assert describe_origin(rest.recipe) == f"episodes 1-2,4,8 of {dataset.fingerprint[:8]}"
    assert dataset.episodes == 9


def test_an_edited_dataset_is_not_one_that_its_recipe_could_continue(tmp_path: Path) -> None:
    dataset = collected(tmp_path / "a.zarr", 0, 4)
    first, _ = editing.split(dataset, 2)
    written(tmp_path / "b.zarr", first)
    assert find_dataset(tmp_path / "b.zarr", dataset.recipe) is None
    assert find_dataset(tmp_path / "a.zarr", dataset.recipe) is not None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"env": {"name": "Pong"}}, "the environment is tests.tiny:Tiny-v0 and Pong"),
        ({"env": {"size": 64}}, "size is 32 and 64"),
        ({"env": {"gray": True}}, "gray is false and true"),
        ({"env": {"observation": "motion"}}, "observation is rgb and motion"),
        ({"env": {"action_repeat": 2}}, "action_repeat is 1 and 2"),
        ({"action_space": {"count": 2}}, "the action space is"),
    ],
)
def test_datasets_that_differ_are_not_merged(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    first = collected(tmp_path / "a.zarr", 0, 1)
    recipe = RECIPE | {name: RECIPE[name] | values for name, values in change.items()}  # type: ignore[operator]
    other = Dataset(tmp_path / "b.zarr", recipe, [])
    with pytest.raises(RecipeMismatch, match=sentence):
        editing.merge([first, other])


def test_what_may_differ_is_named_in_the_recipe(tmp_path: Path) -> None:
    first = collected(tmp_path / "a.zarr", 0, 2, RECIPE | {"seed": 0, "policy": "sticky", "packages": {"gym": "1"}})
    env = RECIPE["env"] | {"render": "fast"}  # type: ignore[operator]
    other = RECIPE | {"env": env, "seed": 3, "policy": "human", "packages": {"gym": "2"}}
    recipe = editing.merge([first, collected(tmp_path / "b.zarr", 2, 4, other)]).recipe
    assert recipe["policy"] == "sticky and human"
    assert recipe["origin"]["mixed"] == ["render exact and fast", "gym 1 and 2", "seed 0 and 3"]
    assert "seed" not in recipe


def test_labels_that_one_dataset_lacks_are_unknown(tmp_path: Path) -> None:
    labelled = collected(tmp_path / "a.zarr", 0, 1)
    bare = collected(tmp_path / "b.zarr", 1, 2, RECIPE | {"labels": []}, labels=np.zeros((20, 0), np.float32))
    merged = written(tmp_path / "c.zarr", editing.merge([bare, labelled]))
    assert merged.label_names == ["a", "b"]
    first, second = (episode.labels for episode in episodes_of(merged))
    assert np.isnan(first).all()
    assert np.array_equal(second, make_episode(0).labels)


def test_the_same_episode_is_not_taken_twice(tmp_path: Path) -> None:
    first, second = collected(tmp_path / "a.zarr", 0, 4), collected(tmp_path / "b.zarr", 3, 6)
    with pytest.raises(UsageProblem, match=r"episode 0 of .*b\.zarr \(seed 1003\) is in .*a\.zarr too"):
        written(tmp_path / "c.zarr", editing.merge([first, second]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr", "b.zarr"]


def test_episodes_of_one_seed_that_differ_are_both_taken(tmp_path: Path) -> None:
    first, second = collected(tmp_path / "a.zarr", 0, 2), collected(tmp_path / "b.zarr", 5, 7, seed=1000)
    assert written(tmp_path / "c.zarr", editing.merge([first, second])).episodes == 4


@pytest.mark.parametrize("at", [0, 4, 9])
def test_a_split_leaves_no_side_empty(tmp_path: Path, at: int) -> None:
    with pytest.raises(UsageProblem, match="expected 1 to 3"):
        editing.split(collected(tmp_path / "a.zarr", 0, 4), at)


def test_what_cannot_be_dropped_or_merged_is_one_sentence(tmp_path: Path) -> None:
    dataset = collected(tmp_path / "a.zarr", 0, 4)
    with pytest.raises(UsageProblem, match="nothing would be left"):
        editing.drop(dataset, "0-3")
    with pytest.raises(MissingInput, match="has no episode 4"):
        editing.drop(dataset, "4")
    with pytest.raises(UsageProblem, match="two or more"):
        editing.merge([dataset, Dataset.open(tmp_path / "a.zarr")])


def test_a_dataset_without_many_scattered_episodes_is_small_and_its_size_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 8192)
    with Writer(create(tmp_path / "a.zarr", RECIPE)) as writer:
        for number in range(2 * editing.MOST_RANGES + 2):
            writer.add(make_episode(number, rows=2).pack())
    dataset = Dataset.open(tmp_path / "a.zarr")
    odd = ",".join(str(number) for number in range(1, dataset.episodes, 2))
    for name, dropped in (("few", odd.partition(",2")[0]), ("listed", odd[:-8]), ("many", odd)):
        edit = editing.drop(dataset, dropped)
        new = written(tmp_path / f"{name}.zarr", edit)
        assert new.bytes <= edit.need[0] <= 2 * new.bytes
        assert new.episodes == dataset.episodes - dropped.count(",") - 1
        listed = len(new.recipe["origin"].get("episodes", ()))
        assert listed <= editing.MOST_RANGES
        assert ("digest" in describe_origin(new.recipe)) == (not listed) == (name == "many")


def test_a_budget_that_is_too_small_is_found_before_or_while_writing_and_nothing_stays(tmp_path: Path) -> None:
    edit = editing.merge([collected(tmp_path / "a.zarr", 0, 3), collected(tmp_path / "b.zarr", 3, 6)])
    need, _ = edit.need
    with pytest.raises(DiskProblem, match="writing 6 episodes needs about"):
        new_datasets.require_disk([edit], DiskBudget(tmp_path / "c.zarr", need - 1))
    with pytest.raises(DiskProblem, match="nothing was written"):
        written(tmp_path / "c.zarr", edit, need // 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr", "b.zarr"]
    assert written(tmp_path / "c.zarr", edit, need).episodes == 6


def test_another_dataset_at_the_target_is_kept(tmp_path: Path) -> None:
    first, second = collected(tmp_path / "a.zarr", 0, 2), collected(tmp_path / "b.zarr", 2, 4)
    edit = editing.merge([first, second])
    with pytest.raises(UsageProblem, match="exists and is another dataset"):
        new_datasets.is_written(tmp_path / "a.zarr", edit)
    assert not new_datasets.is_written(tmp_path / "c.zarr", edit)
    written(tmp_path / "c.zarr", edit)
    assert new_datasets.is_written(tmp_path / "c.zarr", edit)


def test_a_target_is_a_dataset_outside_of_those_that_are_read(tmp_path: Path) -> None:
    edit = editing.split(collected(tmp_path / "a.zarr", 0, 2), 1)[0]
    with pytest.raises(UsageProblem, match="no suffix"):
        new_datasets.require_targets([(tmp_path / "new", edit)])
    with pytest.raises(UsageProblem, match="is inside"):
        new_datasets.require_targets([(tmp_path / "a.zarr" / "new.zarr", edit)])
    nested = [tmp_path / "b.zarr", tmp_path / "b.zarr" / "c.zarr"]
    for paths in (nested, nested[::-1]):
        with pytest.raises(UsageProblem, match=r"c.zarr is inside .*b.zarr, which is written"):
            new_datasets.require_targets([(path, edit) for path in paths])
    with pytest.raises(UsageProblem, match="given for two"):
        new_datasets.require_targets([(tmp_path / "b.zarr", edit), (tmp_path / "b.zarr", edit)])


def test_episodes_of_a_replay_become_an_ordinary_dataset(tmp_path: Path) -> None:
    replay = collected(tmp_path / "a.zarr", 0, 6, RECIPE | {"evicts": True})
    (tmp_path / "evicted").mkdir()
    replay.parts[0].folder.rename(tmp_path / "evicted" / "part")
    edit = editing.split(Dataset.open(tmp_path / "a.zarr"), 1)[1]
    rest = written(tmp_path / "b.zarr", edit)
    assert "evicts" not in rest.recipe
    assert summarize(rest.path)[0].unit == "piece"
    assert summarize(written(tmp_path / "c.zarr", editing.split(rest, 1)[0]).path)[0].unit == "piece"
    assert all(map(same, episodes_of(rest), map(make_episode, (4, 5))))
