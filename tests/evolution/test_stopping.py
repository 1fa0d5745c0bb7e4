import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import METRICS, PROVENANCE, SLUG, arguments, run
from wm.artifacts import manifest
from wm.artifacts.chained_log import chain_all, start
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import RECIPE_FILE, Run
from wm.evolution.search_log import LOG, read_log
from wm.evolution.stopping import resume_from_other_limits
from wm.settings import ControllerSettings

SEARCH = ControllerSettings(popsize=6, max_generations=6, validate_every=2)


def run_of(root: Path, settings: ControllerSettings) -> Run:
    return Run(root, "controller", Recipe("controller", 1, settings.result_settings(), {"vae": "v", "mdnrnn": "m"}))


def lines(count: int, validated: set[int], score: float = 0.0) -> list[dict[str, Any]]:
    log: list[dict[str, Any]] = []
    for generation in range(1, count + 1):
        line = {"generation": generation, "in": "real", "candidates": "c", "returns": [1.0]}
        log.append(line | {"env_steps": 10, "seconds": 1.0})
        if generation in validated:
            log[-1]["validation"] = [score, score]
    return log


def finish(root: Path, settings: ControllerSettings, log: list[dict[str, Any]]) -> Path:
    run = run_of(root, settings)
    with run.build(False, str) as builder:
        (builder.folder / LOG).write_text("".join(json.dumps(line) + "\n" for line in log))
        (builder.folder / "whitener-0.npy").write_bytes(b"whitener")
        builder.publish(METRICS["controller"], PROVENANCE)
    return run.folder


def resumed(root: Path, settings: ControllerSettings) -> int:
    with run_of(root, settings).build(False, str) as builder:
        count, source = resume_from_other_limits(builder.run, settings, builder.folder)
        assert (builder.folder / LOG).exists() == (source is not None) == (count > 0)
        if source is not None:
            assert (builder.folder / LOG).read_text().count("\n") == count
            assert (builder.folder / "whitener-0.npy").exists() == (source / "whitener-0.npy").exists()
        shutil.rmtree(builder.folder)
    return count


def test_all_generations_are_resumed_from_if_the_new_limits_do_not_change_them(tmp_path: Path) -> None:
    finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    assert resumed(tmp_path, replace(SEARCH, max_generations=60)) == 6
    assert resumed(tmp_path, replace(SEARCH, max_hours=1.0)) == 6
    assert resumed(tmp_path, replace(SEARCH, target_return=5.0)) == 6


def test_a_search_with_other_settings_is_not_resumed_from(tmp_path: Path) -> None:
    finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    assert resumed(tmp_path, replace(SEARCH, max_generations=60, sigma=0.2)) == 0
    assert resumed(tmp_path, replace(SEARCH, max_generations=60, validate_every=3)) == 0


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_generations": 4}, 4),
        ({"max_generations": 5}, 4),  # the fifth would be validated
        ({"max_env_steps": 25}, 2),  # the third would be the last, and validated
        ({"max_env_steps": 40}, 4),
        ({"max_hours": 2.5 / 3600}, 2),
        ({"target_return": 0.0}, 2),
        ({"target_return": -1.0}, 2),
    ],
)
def test_narrower_limits_resume_from_the_generations_within_them(
    limits: dict[str, Any], expected: int, tmp_path: Path
) -> None:
    finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    assert resumed(tmp_path, replace(SEARCH, **limits)) == expected


def test_what_was_played_after_a_target_that_is_nearer_now_is_not_resumed(tmp_path: Path) -> None:
    every = replace(SEARCH, validate_every=1)
    finish(tmp_path, every, lines(6, {1, 2, 3, 4, 5, 6}))
    assert resumed(tmp_path, replace(every, target_return=0.0)) == 1


def test_a_last_validation_that_a_longer_search_would_not_have_is_not_resumed(tmp_path: Path) -> None:
    before = replace(SEARCH, max_generations=5)
    finish(tmp_path, before, lines(5, {2, 4, 5}))
    assert resumed(tmp_path, replace(SEARCH, max_generations=8)) == 4


def test_the_final_phase_is_resumed_from_only_if_it_starts_at_the_same_generation(tmp_path: Path) -> None:
    settings = replace(SEARCH, final_phase_episodes=2)  # the final phase starts after two thirds
    finish(tmp_path, settings, lines(6, {2, 4, 6}))
    assert resumed(tmp_path, replace(settings, max_generations=12)) == 4
    finish(tmp_path, replace(settings, final_phase_after=3), lines(6, {2, 4, 6}))
    assert resumed(tmp_path, replace(settings, final_phase_after=3, max_generations=12)) == 6


def test_the_longest_search_is_resumed_from_finished_or_not(tmp_path: Path) -> None:
    finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    unfinished = tmp_path / "archive" / "controller-12345678.partial"
    unfinished.mkdir(parents=True)
    recipe = run_of(tmp_path, replace(SEARCH, max_generations=40)).recipe.as_json()
    (unfinished / RECIPE_FILE).write_text(json.dumps(recipe))
    log = chain_all(start(unfinished), lines(9, {2, 4, 6, 8})).decode()
    (unfinished / LOG).write_text(log + '{"generation": 10, "ret')
    wanted = replace(SEARCH, max_generations=60)
    assert resumed(tmp_path, wanted) == 9
    for changed in ("{]\n" + log, log.replace("1.0", "2.0", 1), chain_all("", lines(9, {2, 4, 6, 8})).decode()):
        (unfinished / LOG).write_text(changed)
        assert resumed(tmp_path, wanted) == 6
    for limit in (1.0, {}, [], "1", True, -1.0):
        edited = recipe | {"settings": recipe["settings"] | {"max_hours": limit}}
        (unfinished / RECIPE_FILE).write_text(json.dumps(edited))
        (unfinished / LOG).write_bytes(chain_all(start(unfinished), lines(9, {2, 4, 6, 8})))
        assert resumed(tmp_path, wanted) == (9 if limit == 1.0 and limit is not True else 6)
    for limits in ({"max_generations": None}, {"max_generations": "9"}, {"target_return": [1]}, {"packages": 1}):
        edited = recipe | {"settings": recipe["settings"] | limits}
        (unfinished / RECIPE_FILE).write_text(json.dumps(edited))
        (unfinished / LOG).write_bytes(chain_all(start(unfinished), lines(9, {2, 4, 6, 8})))
        assert resumed(tmp_path, wanted) == 6
    for damaged in ("[1]", "{}", "{"):
        (unfinished / RECIPE_FILE).write_text(damaged)
        assert resumed(tmp_path, wanted) == 6


def test_a_damaged_search_is_not_resumed_from(tmp_path: Path) -> None:
    finished = finish(tmp_path, SEARCH, lines(6, {2, 4, 6}))
    data = (finished / LOG).read_bytes()
    (finished / LOG).write_bytes(data.replace(b"1.0", b"2.0"))
    assert resumed(tmp_path, replace(SEARCH, max_generations=60)) == 0


def digests(folder: Path, name: str) -> tuple[str, list[Any]]:
    place = folder / "runs" / SLUG / name
    log = [json.loads(line) for line in (place / LOG).read_text().splitlines()]
    files = json.loads((place / manifest.NAME).read_text())["files"]
    return files["weights.safetensors"]["sha256"], [line | {"seconds": 0, "digest": ""} for line in log]


@pytest.mark.slow
def test_a_search_resumed_with_other_limits_equals_an_uninterrupted_one(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chain"
    shutil.copytree(chain, folder)
    for generations, of_before in ((7, 6), (4, 4)):
        words = arguments("train-controller", "--max-generations", str(generations))
        run(folder, *words, "--name", f"at-once-{generations}")
        moved = run(folder, *words)
        assert f"the first {of_before} generations are those of" in moved.stderr
        assert digests(folder, "controller") == digests(folder, f"at-once-{generations}")


def test_a_log_with_other_candidates_is_not_resumed_from(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "chain"
    shutil.copytree(chain, folder)
    words = arguments("train-controller", "--max-generations", "4")
    run(folder, *words, "--name", "at-once")
    unfinished = folder / "runs" / SLUG / "archive" / "controller-12345678.partial"
    unfinished.mkdir(parents=True)
    finished = folder / "runs" / SLUG / "controller"
    recipe = json.loads((finished / manifest.NAME).read_text())["recipe"]
    (unfinished / RECIPE_FILE).write_text(json.dumps(recipe))
    log = read_log(finished)
    log[2]["candidates"] = "0" * 16
    (unfinished / LOG).write_bytes(chain_all(start(unfinished), log))
    shutil.rmtree(finished)
    moved = run(folder, *words)
    assert "are those of" not in moved.stderr
    assert digests(folder, "controller") == digests(folder, "at-once")
