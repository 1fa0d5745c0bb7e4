"""Optuna's study in a folder: what is tried after a kill, and what a folder of others may hold."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wm.artifacts import chained_log, durable
from wm.artifacts.json_reader import ANYTHING
from wm.artifacts.recipe import Recipe
from wm.errors import BadData, Locked, RecipeMismatch
from wm.sweeps.objective import OBJECTIVES
from wm.sweeps.space import Choices, Range, Space

pytestmark = pytest.mark.extra("sweep")

SPACE: Space = {
    "learning_rate": Range(1e-4, 1e-2, log=True),
    "units": Choices((64, 128)),
    "num_envs": Range(8, 64, step=8),
}
RETURNS = OBJECTIVES["train-controller"]


def recipe(**settings: Any) -> Recipe:
    return Recipe("sweep", 1, settings)


def opened(folder: Path, seed: int = 0, space: Space = SPACE) -> Any:
    from wm.sweeps.sweep import open_sweep

    return open_sweep(folder / "sweep", recipe(seed=seed), space, RETURNS, seed)


def figure(values: dict[str, Any]) -> float:
    return float(values["units"] - 1e4 * abs(values["learning_rate"] - 1e-3))


def tried(folder: Path, count: int, seed: int = 0, reopen: bool = False) -> list[dict[str, Any]]:
    """The values of so many trials; with `reopen` each by a process of its own that was killed before its figure."""
    values = []
    for _ in range(count):
        if reopen:
            with opened(folder, seed) as killed:
                killed.next_trial()
        with opened(folder, seed) as sweep:
            trial = sweep.next_trial()
            sweep.complete(trial, figure(trial.values))
            values.append(trial.values)
    return values


def forge(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change operations in a journal whose digests agree afterwards."""
    journal = folder / "sweep" / "journal.log"
    digest = chained_log.start(journal.parent)
    lines = chained_log.parse(journal.read_bytes(), "journal", digest, ANYTHING, "restore it")
    journal.write_bytes(chained_log.chain_all(digest, (line.value | change(line.value) for line in lines)))


def test_the_same_trials_follow_after_every_kill(tmp_path: Path) -> None:
    undisturbed = tried(tmp_path / "a", 14)
    assert tried(tmp_path / "b", 14, reopen=True) == undisturbed
    assert tried(tmp_path / "c", 3, seed=1) != undisturbed[:3]
    assert len({str(values) for values in undisturbed}) > 10
    for values in undisturbed:
        assert 1e-4 <= values["learning_rate"] <= 1e-2
        assert len(f"{values['learning_rate']:.15g}".strip("0.").replace("e-", "")) <= 6
        assert values["units"] in (64, 128)
        assert values["num_envs"] % 8 == 0


def test_optuna_opens_the_journal(tmp_path: Path) -> None:
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    values = tried(tmp_path, 3)
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "sweep" / "journal.log")))
    trials = optuna.load_study(study_name="sweep", storage=storage).trials
    assert [trial.params["units"] for trial in trials] == [each["units"] for each in values]
    assert [trial.value for trial in trials] == [figure(each) for each in values]


def test_the_best_are_the_complete_ones_with_the_highest_return(tmp_path: Path) -> None:
    with opened(tmp_path) as sweep:
        for value in (1.0, 5.0, None, 3.0):
            trial = sweep.next_trial()
            sweep.fail(trial) if value is None else sweep.complete(trial, value)
        assert [one.number for one in sweep.best(2)] == [1, 3]
        assert [one.state for one in sweep.outcomes()] == ["complete", "complete", "failed", "complete"]


def test_values_of_an_earlier_trial_have_its_figure(tmp_path: Path) -> None:
    with opened(tmp_path, space={"units": Choices((64, 128))}) as sweep:
        repeated = 0
        while len(sweep.outcomes()) < 6:
            trial = sweep.next_trial()
            if (earlier := sweep.same_as(trial)) is None:
                sweep.complete(trial, figure({**trial.values, "learning_rate": 0.0}))
            else:
                sweep.repeat(trial, earlier)
                repeated += 1
        assert repeated == 4
        assert len(sweep.best(5)) == 2


def test_a_trial_is_pruned_below_the_median_of_five_at_the_same_validation(tmp_path: Path) -> None:
    with opened(tmp_path) as sweep:
        for value in range(5):
            trial = sweep.next_trial()
            assert not any(trial.report(number, 10.0 * value + number) for number in range(3))
            sweep.complete(trial, 10.0 * value)
        trial = sweep.next_trial()
        assert not trial.report(0, 5.0)  # V and M are untrained at their first validation
        assert not trial.report(1, 30.0)
        (trial.folder / "vae").mkdir(parents=True)
    with opened(tmp_path) as sweep:
        trial = sweep.next_trial()
        assert not trial.report(1, 0.0)  # told before the kill
        worse = sweep.next_trial()
        sweep.prune(worse)
        assert not trial.folder.exists()
        trial = sweep.next_trial()
        assert [trial.report(0, 5.0), trial.report(1, 5.0)] == [False, True]


def test_another_recipe_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(Locked), opened(tmp_path):
        pass
    from wm.sweeps.sweep import open_sweep

    with (
        pytest.raises(RecipeMismatch, match=r"sweep of another recipe \(seed 0 -> 1\); choose another --name"),
        open_sweep(tmp_path / "sweep", recipe(seed=1), SPACE, RETURNS, 1),
    ):
        pass


@pytest.mark.parametrize("change", [{"settings": []}, {"settings": {"packages": 3}}, {"inputs": "x"}])
def test_a_recipe_with_other_types_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    with opened(tmp_path):
        pass
    durable.write_json(tmp_path / "sweep" / "recipe.json", recipe().as_json() | change)
    named = r"recipe\.json: (settings|inputs).*, so restore it, or remove"
    with pytest.raises(BadData, match=named), opened(tmp_path):
        pass


def test_a_folder_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "mine.txt").write_text("x")
    with pytest.raises(BadData, match=r"has no recipe.json"), opened(tmp_path):
        pass
    assert [path.name for path in (tmp_path / "sweep").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"op_code": 5', '"op_code": 99'),
        ('"trial_id": 0', '"trial_id": 7'),
        ('"study_name": "sweep"', '"study_name": null'),
        ('"values": [', '"values": ["x", '),
        ('"directions": [2]', '"directions": [9]'),
    ],
)
def test_an_edited_journal_is_one_sentence(old: str, new: str, tmp_path: Path) -> None:
    tried(tmp_path, 2)
    journal = tmp_path / "sweep" / "journal.log"
    assert old in journal.read_text()
    journal.write_text(journal.read_text().replace(old, new))
    with pytest.raises(BadData, match=r"journal.log, line .*begin anew"), opened(tmp_path) as sweep:
        sweep.next_trial()


@pytest.mark.parametrize("value", ["x", None, [1.0]])
def test_a_figure_of_a_trial_that_is_no_number_is_one_sentence(value: Any, tmp_path: Path) -> None:
    """Also in a journal whose digests agree: whoever copied the folder may have written it."""
    tried(tmp_path, 2)
    forge(tmp_path, lambda operation: {"values": [value]} if operation.get("values") else {})
    with pytest.raises(BadData, match=r"journal.log is no journal of this sweep \(.*begin anew"), opened(tmp_path):
        pass


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("name", "forged", "problem"),
    [
        ("units", {"param_name": "layers"}, "trial 0 has values of .*layers.*; expected of learning_rate, units"),
        ("units", {"distribution": '{"name": "FloatDistribution", "attributes": {"low": 0.0, "high": 9.0}}'}, ""),
        ("num_envs", {"param_value_internal": 6400.0}, "trial 0 has num_envs 6400; expected 8 to 64, step 8"),
    ],
)
def test_values_that_are_not_of_the_space_are_one_sentence(
    name: str, forged: dict[str, Any], problem: str, finished: bool, tmp_path: Path
) -> None:
    with opened(tmp_path) as sweep:
        trial = sweep.next_trial()
        if finished:
            sweep.complete(trial, 1.0)
    forge(tmp_path, lambda operation: forged if operation.get("param_name") == name else {})
    sentence = rf"journal.log is no journal of this sweep \({problem}.*begin anew"
    with pytest.raises(BadData, match=sentence), opened(tmp_path) as sweep:
        sweep.next_trial()


def test_values_stand_in_the_order_of_the_space_whatever_it_was_before(tmp_path: Path) -> None:
    """A person who moves a line of the space goes on with the same sweep, and its table has one order of columns."""
    tried(tmp_path, 1)
    moved = dict(reversed(SPACE.items()))
    with opened(tmp_path, space=moved) as sweep:
        sweep.complete(sweep.next_trial(), 1.0)
        assert [list(one.values) for one in sweep.best(2)] == [list(moved)] * 2


def test_a_disk_that_takes_no_more_lines_damages_no_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried(tmp_path, 1)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(durable, "append", full)
        with pytest.raises(OSError, match="No space left"), opened(tmp_path):
            pass
    with opened(tmp_path) as sweep:
        assert len(sweep.outcomes()) == 1
