"""`wm data` as it is typed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY, outcome, run
from tests.stages.conftest import Output
from wm.artifacts import locks
from wm.episodes.dataset import Dataset


def test_an_edit_is_one_json_object_and_up_to_date_the_second_time(workspace: Path, output: Output) -> None:
    words = ("data", "split", "data/d.zarr", "--at", "8", "--out-first", "a.zarr", "--out-rest", "b.zarr", "--json")
    made = json.loads(output(*words))["datasets"]
    assert [(one["artifact"], one["status"], one["metrics"]["episodes"]) for one in made] == [
        ("a.zarr", "created", 8),
        ("b.zarr", "created", 12),
    ]
    assert [one["status"] for one in json.loads(output(*words))["datasets"]] == ["up to date"] * 2
    assert [one["fingerprint"] for one in made] == [Dataset.open(Path(one["artifact"])).fingerprint for one in made]
    merged = output("data", "merge", "a.zarr", "b.zarr", "--out", "c.zarr")
    assert "c.zarr: created" in merged
    assert "20 episodes" in merged


def test_what_was_edited_says_so_and_verifies(workspace: Path, output: Output) -> None:
    output("data", "drop", "data/d.zarr", "--episodes", "0,4-6", "--out", "data/e.zarr")
    described = output("info", "data/e.zarr")
    source = Dataset.open(Path("data/d.zarr")).fingerprint[:8]
    assert f"episodes 1-3,7-19 of {source}" in described
    assert "written " in described
    assert "seed 3" not in described
    assert "agree" in output("verify", "data/e.zarr")
    assert Path(output("view", "data/e.zarr").strip()).is_file()


def test_nothing_is_replaced_and_a_held_lock_is_respected(workspace: Path, output: Output) -> None:
    words = ("data", "drop", "data/d.zarr", "--episodes", "1", "--out")
    assert "is another dataset, or none" in output(*words, "data/d.zarr", code=64)
    (workspace / "notes.zarr").mkdir()
    assert "is another dataset, or none" in output(*words, "notes.zarr", code=64)
    with locks.exclusive(workspace / "new.zarr"):
        assert "is being written" in output(*words, "new.zarr", code=75)
    assert not (workspace / "new.zarr").exists()


def test_too_small_a_budget_is_refused_before_anything_is_written(workspace: Path, output: Output) -> None:
    words = ("data", "split", "data/d.zarr", "--at", "3", "--out-first", "a.zarr", "--out-rest", "b.zarr")
    assert "writing 20 episodes needs about" in output(*words, "--disk-budget", "100kB", code=74)
    assert sorted(path.name for path in workspace.iterdir()) == ["data"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("merge", "data/d.zarr", "--out", "a.zarr"), 64, "two or more"),
        (("merge", "data/d.zarr", "nowhere.zarr", "--out", "a.zarr"), 66, "does not exist"),
        (("split", "data/d.zarr", "--at", "20", "--out-first", "a.zarr", "--out-rest", "b.zarr"), 64, "1 to 19"),
        (("split", "data/d.zarr", "--at", "5", "--out-first", "a.zarr", "--out-rest", "a.zarr"), 64, "for two"),
        (("drop", "data/d.zarr", "--episodes", "0-19", "--out", "a.zarr"), 64, "nothing would be left"),
        (("drop", "data/d.zarr", "--episodes", "20", "--out", "a.zarr"), 66, "no episode 20"),
        (("import", "a.npz", "--env", TINY, "--out", "a.zarr"), 66, "does not exist"),
        (("mix",), 64, "there is no command 'data mix'; expected one of"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    workspace: Path, output: Output, words: tuple[str, ...], code: int, sentence: str
) -> None:
    message = output("data", *words, code=code)
    assert sentence in message
    assert message.count("\n") == 1
    assert sorted(path.name for path in workspace.iterdir() if not path.name.startswith(".")) == ["data"]


def test_without_a_subcommand_its_help_is_shown(output: Output) -> None:
    text = output("data")
    assert all(name in text for name in ("merge", "split", "drop", "import"))


def test_an_import_says_how_many_steps_an_action_took(tmp_path: Path) -> None:
    """So that C plays as the recorded one did, and the episodes go with collected ones."""
    own = ("--env", TINY, "--size", "32")
    run(tmp_path, "collect", *own, "--episodes", "2", "--set", "action_repeat=3", "--data", "a.zarr")
    run(tmp_path, "export", "a.zarr", "--to", "npz", "--out", "npz")
    words = ("data", "import", *sorted(map(str, (tmp_path / "npz").iterdir())), *own, "--out")
    run(tmp_path, *words, "b.zarr", "--action-repeat", "3")
    imported = Dataset.open(tmp_path / "b.zarr")
    assert imported.recipe["env"]["action_repeat"] == 3
    assert imported.env_steps == 3 * (imported.rows - imported.episodes)
    assert "up to date" in run(tmp_path, *words, "b.zarr", "--action-repeat", "3").stdout
    run(tmp_path, "data", "drop", "a.zarr", "--episodes", "0", "--out", "rest.zarr")
    run(tmp_path, "data", "drop", "b.zarr", "--episodes", "1", "--out", "first.zarr")
    assert "2 episodes" in run(tmp_path, "data", "merge", "first.zarr", "rest.zarr", "--out", "both.zarr").stdout
    refused = outcome(tmp_path, *words, "c.zarr", "--action-repeat", "0").stderr
    assert "--action-repeat is 0; expected a whole number from 1 to 16" in refused


def test_an_import_finds_instances_that_share_state_as_collecting_does(tmp_path: Path) -> None:
    """So that C is scored one episode at a time."""
    frames, steps = np.zeros((5, 32, 32, 3), np.uint8), np.zeros(4)
    np.savez(tmp_path / "a.npz", frames=frames, actions=steps.astype(np.int64), rewards=steps, terminated=True)
    words = ("data", "import", "a.npz", "--size", "32", "--env")
    said = run(tmp_path, *words, "tests.odd_envs:Shared-v0", "--out", "shared.zarr").stderr
    assert "share state (stepping one changes what another returns); each process plays one at a time" in said
    assert Dataset.open(tmp_path / "shared.zarr").recipe["env"]["envs_per_process"] == 1
    said = run(tmp_path, *words, "tests.odd_envs:Blind-v0", "--out", "broken.zarr").stderr
    assert "whether instances of tests.odd_envs:Blind-v0 share state is not known" in said


def test_an_export_that_is_imported_again_has_the_same_episodes_and_trains_v(chain_copy: Path) -> None:
    collected = next(chain_copy.glob("data/*.zarr"))
    run(chain_copy, "export", str(collected), "--to", "npz", "--out", "npz")
    files = sorted(str(path) for path in (chain_copy / "npz").iterdir())
    run(chain_copy, "data", "import", *files[:12], "--env", TINY, "--size", "32", "--out", "a.zarr")
    run(
        chain_copy, "data", "import", *files[12:], "--env", TINY, "--size", "32", "--policy", "human", "--out", "b.zarr"
    )
    run(chain_copy, "data", "merge", "a.zarr", "b.zarr", "--out", "c.zarr")
    original, merged = Dataset.open(collected), Dataset.open(chain_copy / "c.zarr")
    for name in ("actions", "rewards", "frames"):
        theirs = [np.concatenate([d.shard(part, name).all() for part in d.parts]) for d in (original, merged)]
        assert np.array_equal(*theirs), name
    assert merged.table["seed"].tolist() == original.table["seed"].tolist()
    words = ("--steps", "4", "--batch", "16", "--latent", "4", "--set", "validate_every=4", "--run", "r", "--json")
    made = json.loads(run(chain_copy, "train-vae", "--env", TINY, "--data", "c.zarr", *words).stdout)
    assert made["status"] == "created"
    again = json.loads(
        run(chain_copy, "collect", "--env", TINY, "--episodes", "2", "--data", "c.zarr", "--json").stdout
    )
    assert again["metrics"]["episodes"] == 2
    assert next((chain_copy / "archive").glob("c-*.zarr")).is_dir()


def test_a_name_that_is_no_text_is_refused(workspace: Path, output: Output) -> None:
    np.savez("a.npz", frames=np.zeros((3, 64, 64, 3), np.uint8), actions=[0, 1], rewards=[0.0, 1.0], terminated=True)
    words = ("data", "import", "a.npz", "--env", TINY, "--out", "data/new.zarr", "--policy")
    assert "\\udcff is not text in UTF-8" in output(*words, os.fsdecode(b"\xff"), code=64)
    assert not (workspace / "data" / "new.zarr").exists()
    output(*words, "me")
