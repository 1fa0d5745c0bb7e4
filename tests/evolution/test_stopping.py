import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SLUG, arguments, run
from wm.artifacts import manifest
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import RECIPE_FILE, Run
from wm.evolution.stopping import LOG, resume_from_other_limits
from wm.settings import ControllerSettings

SEARCH = ControllerSettings(popsize=6, max_generations=6, validate_every=2)


def run_of(root: Path, settings: ControllerSettings) -> Run:
    return Run(root, "controller", Recipe("controller", 1, settings.result_settings()))


def lines(count: int, validated: set[int], score: float = 0.0) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for generation in range(1, count + 1):
        made.append({"generation": generation, "returns": [1.0], "env_steps": 10, "seconds": 1.0})
        if generation in validated:
            made[-1]["validation"] = [score, score]
    return made


def finish(root: Path, settings: ControllerSettings, log: list[dict[str, Any]]) -> Path:
    made = run_of(root, settings)
    with made.build(False, str) as builder:
        (builder.folder / LOG).write_text("".join(json.dumps(line) + "\n" for line in log))
        (builder.folder / "basis-0.npy").write_bytes(b"basis")
        builder.publish({}, {"wall_seconds": 1.0})
    return made.folder


def taken(root: Path, settings: ControllerSettings) -> int:
    with run_of(root, settings).build(False, str) as builder:
        count, source = resume_from_other_limits(builder.run, settings, builder.folder)
        assert (builder.folder / LOG).exists() == (source is not None) == (count > 0)
        if source is not None:
            assert (builder.folder / LOG).read_text().count("\n") == count
            assert (builder.folder / "basis-0.npy").exists() == (source / "basis-0.npy").exists()
        shutil.rmtree(builder.folder)
    return count


def test_all_generations_are_taken_over_where_the_new_limits_leave_them_as_they_were(tmp_path: Path) -> None:
    finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    assert taken(tmp_path, replace(SEARCH, max_generations=60)) == 6
    assert taken(tmp_path, replace(SEARCH, max_hours=1.0)) == 6
    assert taken(tmp_path, replace(SEARCH, target_return=5.0)) == 6


def test_a_search_of_other_settings_is_left_alone(tmp_path: Path) -> None:
    finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    assert taken(tmp_path, replace(SEARCH, max_generations=60, sigma=0.2)) == 0
    assert taken(tmp_path, replace(SEARCH, max_generations=60, validate_every=3)) == 0


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"max_generations": 4}, 4),
        ({"max_generations": 5}, 4),  # the fifth has to be validated
        ({"budget_steps": 25}, 2),  # with the third it would have ended, and been validated
        ({"budget_steps": 40}, 4),
        ({"max_hours": 2.5 / 3600}, 2),
        ({"target_return": 0.0}, 2),
        ({"target_return": -1.0}, 2),
    ],
)
def test_narrower_limits_take_what_lies_within_them(chosen: dict[str, Any], expected: int, tmp_path: Path) -> None:
    finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    assert taken(tmp_path, replace(SEARCH, **chosen)) == expected


def test_what_was_played_after_a_target_that_is_nearer_now_is_not_taken(tmp_path: Path) -> None:
    every = replace(SEARCH, validate_every=1)
    finish(tmp_path, every, lines(6, {1, 2, 3, 4, 5, 6}))
    assert taken(tmp_path, replace(every, target_return=0.0)) == 1


def test_a_last_validation_that_a_longer_search_would_not_have_is_not_taken(tmp_path: Path) -> None:
    before = replace(SEARCH, max_generations=5)
    finish(tmp_path, before, lines(5, {2, 4, 5}))
    assert taken(tmp_path, replace(SEARCH, max_generations=8)) == 4


def test_late_generations_are_taken_only_where_they_are_late_too(tmp_path: Path) -> None:
    settings = replace(SEARCH, final_phase_episodes=2)  # late after two thirds
    finish(tmp_path, settings, lines(6, {2, 4, 6}))
    assert taken(tmp_path, replace(settings, max_generations=12)) == 4
    finish(tmp_path, replace(settings, final_phase_after=3), lines(6, {2, 4, 6}))
    assert taken(tmp_path, replace(settings, final_phase_after=3, max_generations=12)) == 6


def test_the_search_that_got_furthest_is_taken_finished_or_not(tmp_path: Path) -> None:
    finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    unfinished = tmp_path / "archive" / "controller-12345678.partial"
    unfinished.mkdir(parents=True)
    recipe = run_of(tmp_path, replace(SEARCH, max_generations=40)).recipe.as_json()
    (unfinished / RECIPE_FILE).write_text(json.dumps(recipe))
    log = "".join(json.dumps(line) + "\n" for line in lines(9, {2, 4, 6, 8}))
    (unfinished / LOG).write_text(log + '{"generation": 10, "ret')
    wanted = replace(SEARCH, max_generations=60)
    assert taken(tmp_path, wanted) == 9
    (unfinished / LOG).write_text("{]\n" + log)
    assert taken(tmp_path, wanted) == 6
    for damaged in ("[1]", "{}", "{"):
        (unfinished / RECIPE_FILE).write_text(damaged)
        assert taken(tmp_path, wanted) == 6


def test_nothing_is_taken_from_a_damaged_search(tmp_path: Path) -> None:
    finished = finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    data = (finished / LOG).read_bytes()
    (finished / LOG).write_bytes(data.replace(b"1.0", b"2.0"))
    assert taken(tmp_path, replace(SEARCH, max_generations=60)) == 0


def digests(folder: Path, name: str) -> tuple[str, list[Any]]:
    place = folder / "runs" / SLUG / name
    log = [json.loads(line) for line in (place / LOG).read_text().splitlines()]
    files = json.loads((place / manifest.NAME).read_text())["files"]
    return files["weights.safetensors"]["sha256"], [line | {"seconds": 0} for line in log]


def test_a_search_with_its_limits_moved_ends_as_one_go_does(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chain"
    shutil.copytree(chain, folder)
    for generations, of_before in ((9, 6), (4, 4)):
        words = arguments("train-controller", "--max-generations", str(generations))
        run(folder, *words, "--name", f"at-once-{generations}")
        moved = run(folder, *words)
        assert f"the first {of_before} generations are those of" in moved.stderr
        assert digests(folder, "controller") == digests(folder, f"at-once-{generations}")


def test_a_log_of_candidates_that_no_longer_follow_is_not_gone_on_from(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chain"
    shutil.copytree(chain, folder)
    words = arguments("train-controller", "--max-generations", "7")
    run(folder, *words, "--name", "at-once")
    unfinished = folder / "runs" / SLUG / "archive" / "controller-12345678.partial"
    unfinished.mkdir(parents=True)
    finished = folder / "runs" / SLUG / "controller"
    recipe = json.loads((finished / manifest.NAME).read_text())["recipe"]
    (unfinished / RECIPE_FILE).write_text(json.dumps(recipe))
    log = (finished / LOG).read_text()
    digest = json.loads(log.splitlines()[2])["candidates"]
    (unfinished / LOG).write_text(log.replace(digest, "0" * 16))
    shutil.rmtree(finished)
    moved = run(folder, *words)
    assert "are those of" not in moved.stderr
    assert digests(folder, "controller") == digests(folder, "at-once")
