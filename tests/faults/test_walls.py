"""Each wall against bad input is removed once; a test that is green in the suite must then fail.

A removal names the function that is the wall and a careless one in its place.
"""

import hashlib
import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from wm.artifacts.chained_log import DIGITS
from wm.artifacts.runs import read_any
from wm.envs import registry
from wm.envs.instances import Instances
from wm.episodes import index


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _first(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _plain_json(data: bytes, *_: Any, **__: Any) -> Any:
    return json.loads(data)


def _unsealed(data: bytes, *_: Any) -> Any:
    value = json.loads(data)
    value.pop("sha256")
    return value


def _plain_table(folder: Path, data: bytes) -> Any:
    return json.loads(data)["attributes"]["episodes"]


def _plain_tensors(data: bytes, _: str) -> Any:
    import safetensors.torch

    return safetensors.torch.load(data)


def _cached_digest(folder: Path, way_out: str) -> str:
    """The digest of what the dataset's index says about a part, whatever the part's manifest says."""
    cached = index.read(folder.parent).get(folder.name, b"")
    return hashlib.sha256(cached).hexdigest() if cached else ""


def _purging_early(folder: str, purge_step: int | None) -> Any:
    """TensorBoard's writer, resumed at the checkpoint's own step instead of the one after it."""
    from torch.utils.tensorboard.writer import SummaryWriter

    return SummaryWriter(folder, purge_step=None if purge_step is None else purge_step - 1)


@dataclass(frozen=True)
class Wall:
    """The wall `function`, the careless version in its place, and the `test` that must notice."""

    function: str
    careless: Any
    test: str
    extra: str = ""  # that the test needs


WALLS = {
    "types of weights": Wall(
        "wm.training.weights.require_types",
        _nothing,
        "training/test_weights.py::test_numbers_of_another_type_are_refused_before_they_are_rounded[kind0]",
    ),
    "C that fits V, M and the environment": Wall(
        "wm.run_models._require_shape",
        _nothing,
        "test_pretrained.py::test_models_that_do_not_fit_each_other_are_refused[C of z]",
    ),
    "links": Wall(
        "wm.artifacts.links.refuse", _first, "faults/test_links.py::test_the_opener_and_the_remover_refuse_links[rb]"
    ),
    "links below a folder": Wall(
        "wm.artifacts.links.refuse_below",
        _nothing,
        "faults/test_links.py::test_an_artifact_is_not_built_through_a_link",
    ),
    "the place of an artifact": Wall(
        "wm.artifacts.runs.Run.require_place",
        _nothing,
        "artifacts/test_runs.py::test_an_artifact_of_another_kind_is_never_replaced",
    ),
    "the inside of what is finished": Wall(
        "wm.artifacts.manifest.require_outside",
        _nothing,
        "artifacts/test_locks.py::test_nothing_is_made_inside_what_is_finished[vae/more]",
    ),
    "the archive": Wall(
        "wm.artifacts.runs.free_name", _first, "artifacts/test_runs.py::test_nothing_in_the_archive_is_deleted"
    ),
    "modules that a run names": Wall(
        "wm.world.loading._require_imported",
        _nothing,
        "world/test_loading.py::test_the_module_of_an_environment_is_imported_by_the_user_only",
    ),
    "reserved names": Wall(
        "wm.pipeline.session.is_reserved",
        lambda *_: False,
        "stages/test_session.py::test_names_of_other_artifacts_are_reserved",
    ),
    "fingerprints": Wall(
        "wm.artifacts.runs._require_fingerprint",
        _nothing,
        "faults/test_edited_json.py::test_a_fingerprint_that_is_not_the_recipe_s_is_refused",
    ),
    "JSON": Wall("wm.artifacts.json_reader.parse", _plain_json, "artifacts/test_json_reader.py"),
    "the table of a part": Wall(
        "wm.episodes.committed_parts._parse_table",
        _plain_table,
        "episodes/test_dataset.py::test_a_column_of_another_type_is_refused_by_every_reader",
    ),
    "finite weights": Wall(
        "wm.training.weights.load_tensors",
        _plain_tensors,
        "training/test_weights.py::test_weights_that_nothing_can_be_computed_with_are_refused_by_name",
    ),
    "rewards": Wall(
        "wm.envs.checked_env.CheckedEnv._check_reward",
        lambda _, reward: float(reward),
        "envs/test_checked_env.py::test_a_reward_that_is_no_finite_number_is_refused_with_step_seed_and_value",
    ),
    "actions": Wall(
        "wm.envs.checked_env._plain_actions",
        lambda space: (space, None),
        "envs/test_checked_env.py::test_an_integer_box_receives_integers_and_random_actions_are_uniform",
    ),
    "pictures": Wall(
        "wm.envs.rgb._to_bytes", _first, "envs/test_rgb.py::test_other_pictures_are_refused_with_what_they_are"
    ),
    "ends": Wall(
        "wm.envs.checked_env.CheckedEnv._check_end",
        lambda _, __, end: bool(end),
        "envs/test_checked_env.py::test_an_end_that_is_neither_true_nor_false_is_refused",
    ),
    "limits of episodes": Wall(
        "wm.envs.checked_env.CheckedEnv.step",
        lambda self, action: self.env.step(action),
        "envs/test_checked_env.py::test_an_episode_is_truncated_after_its_limit_and_the_next_one_counts_anew",
    ),
    "instances that share state": Wall(
        "wm.rollouts.collection.compare_instances",
        lambda *_: Instances(),
        "test_odd_envs.py::test_instances_that_disturb_each_other_are_recorded_and_told",
    ),
    "actions of a training": Wall(
        "wm.envs.registry.EnvConfig.require_actions",
        _nothing,
        "envs/test_registry.py::test_other_actions_than_those_of_the_training_are_refused",
    ),
    "sources of environments": Wall(
        "wm.envs.code._digest",
        lambda *_: "same",
        "envs/test_code.py::test_an_edit_is_another_recipe_of_episodes_and_scores_and_is_told",
    ),
    "runs of other environments": Wall(
        "wm.run_models.require_run_of",
        _nothing,
        "stages/test_session.py::test_no_artifact_of_an_environment_is_made_in_the_run_of_another",
    ),
    "datasets of other environments": Wall(
        "wm.episodes.mixture.require_env",
        _nothing,
        "episodes/test_mixture.py::test_a_dataset_of_another_environment_is_refused",
    ),
    "versions of packages": Wall(
        "wm.extras._within",
        lambda *_: True,
        "test_extras.py::test_outdated_packages_are_one_sentence_with_one_command",
    ),
    "names of environments": Wall(
        "wm.envs.registration.require_form",
        _nothing,
        "envs/test_registration.py::test_a_wrong_name_gets_one_sentence_with_the_real_reason",
    ),
    "labels": Wall(
        "wm.envs.pixel_env.PixelEnv._labelled",
        lambda _, info, __: info,
        "test_odd_envs.py::test_what_is_stored_has_the_right_values[Labels]",
    ),
    "markup in pages": Wall(
        "wm.report.document.html.escape", _first, "report/test_document.py::test_what_people_name_cannot_become_markup"
    ),
    "markup in Markdown": Wall(
        "wm.report.document._markdown", _first, "report/test_document.py::test_names_are_text_in_markdown_too"
    ),
    "control characters": Wall(
        "stages.console.visible",
        _first,
        "stages/test_console.py::test_control_characters_become_visible_for_a_terminal",
    ),
    "lines of a log": Wall(
        "wm.artifacts.chained_log._digest",
        lambda *_: "0" * DIGITS,
        "artifacts/test_chained_log.py::test_every_changed_digit_is_named_with_its_line",
    ),
    "checkpoints": Wall(
        "wm.artifacts.manifest.parse_sealed",
        _unsealed,
        "training/test_checkpoint.py::test_whatever_is_changed_in_a_checkpoint_or_the_metrics_before_it_is_named",
    ),
    "states of checkpoints": Wall(
        "wm.training.loop.Trainer.state_schema",
        _nothing,
        "faults/test_checkpoint_states.py::test_a_checkpoint_s_record_has_its_schema[vae]",
    ),
    "wide integer boxes": Wall(
        "wm.envs.checked_env.LARGEST_INTEGER",
        1 << 64,
        "envs/test_checked_env.py::test_other_action_spaces_are_refused_by_name",
    ),
    "finished artifacts in pages": Wall(
        "wm.artifacts.runs.read_whole",
        lambda folder, kind="": read_any(folder),
        "artifacts/test_runs.py::test_an_artifact_that_is_read_whole_has_every_file_checked",
    ),
    "conclusions": Wall(
        "wm.report.conclusions.prediction_word",
        lambda errors: "better" if errors["M"] < errors["linear"] else "worse",
        "report/test_conclusions.py",
    ),
    "names of files that are pulled": Wall(
        "wm.sharing.contents.is_safe",
        lambda name: True,
        "sharing/test_contents.py::test_names_that_leave_the_run_or_mean_something_elsewhere_are_refused",
    ),
    "files of a pulled run": Wall(
        "wm.sharing.contents.travels",
        lambda name: True,
        "sharing/test_contents.py::test_names_that_leave_the_run_or_mean_something_elsewhere_are_refused",
    ),
    "names of pulled artifacts": Wall(
        "wm.sharing.contents._is_plain",
        lambda piece: True,
        "sharing/test_contents.py::test_names_that_no_artifact_of_the_kind_has",
    ),
    "pictures in pages": Wall(
        "wm.report.sections._picture",
        lambda artifact, name: artifact.folder / name,
        "faults/test_links.py::test_a_report_embeds_only_pictures_that_a_manifest_lists",
    ),
    "the index of a dataset": Wall(
        "wm.episodes.committed_parts._listed_digest",
        _cached_digest,
        "episodes/test_dataset.py::test_a_forged_index_is_rebuilt_from_the_parts",
    ),
    "datasets that cannot be opened": Wall(
        "wm.episodes.integrity._opens",
        lambda dataset: True,
        "stages/test_ls.py::test_a_dataset_that_cannot_be_opened_is_what_ls_and_verify_name_first[a lost part]",
    ),
    "datasets by their name": Wall(
        "wm.episodes.integrity.SUFFIX",
        ".none",
        "stages/test_ls.py::test_a_dataset_that_cannot_be_opened_is_what_ls_and_verify_name_first[a file]",
    ),
    "what another process stages": Wall(
        "wm.artifacts.locks.exclusive",
        lambda path: nullcontext(),
        "stages/test_export.py::test_the_second_of_two_exports_is_refused_and_sweeps_nothing",
    ),
    "grids of objects": Wall(
        "wm.envs.rgb.SMALLEST", 1, "envs/test_rgb.py::test_an_observation_is_an_image_from_16_pixels_a_side"
    ),
    "steps under an action repeat": Wall(
        "wm.envs.pixel_env.PixelEnv.steps",
        property(lambda self: self.env.steps * 2),
        "test_odd_envs.py::test_the_length_of_an_episode_counts_the_environments_steps",
    ),
    "exceptions in sentences": Wall(
        "wm.envs.registration.one_line",
        repr,
        "envs/test_registration.py::test_a_wrong_name_gets_one_sentence_with_the_real_reason",
    ),
    "extras that cannot be imported": Wall(
        "wm.extras.import_problem",
        lambda extra: "",
        "stages/test_doctor.py::test_an_extra_whose_import_fails_is_not_ok",
    ),
    "commands that install": Wall(
        "wm.extras.install_command",
        lambda extra: f"pip install 'wm[{extra}]'",
        "stages/test_export.py::test_a_missing_extra_gets_its_pip_line",
    ),
    "dreams of short episodes": Wall(
        "wm.dreams.initial_states.longest_context",
        lambda latents: 8,
        "dreams/test_initial_states.py::test_the_context_is_within_the_shortest_episode",
    ),
    "variables that nothing reads": Wall(
        "stages.options.check_variables",
        _nothing,
        "stages/test_cli.py::test_a_variable_that_nothing_reads_is_refused[WM_SEDE-did you mean WM_SEED?]",
    ),
    "points after a kill": Wall(
        "torch.utils.tensorboard.SummaryWriter",
        _purging_early,
        "telemetry/test_metrics_log.py::test_a_resumed_training_keeps_the_points_of_its_checkpoint_in_tensorboard",
        extra="tb",
    ),
    "colours of animations": Wall(
        "wm.report.film_strip.Image.Quantize",
        SimpleNamespace(FASTOCTREE=Image.Quantize.MEDIANCUT),
        "report/test_film_strip.py::test_an_animation_keeps_the_colour_of_a_small_thing",
    ),
    "the linear baseline": Wall(
        "wm.report.fidelity_plot.PREDICTORS",
        ("M", "persistence", "mean"),
        "report/test_conclusions.py::test_every_plot_and_page_of_open_loop_errors_has_the_linear_baseline",
    ),
    "scores of returns": Wall(
        "wm.artifacts.schemas._score_of_returns",
        _nothing,
        "faults/test_edited_json.py::test_an_interval_that_is_not_of_its_returns_is_refused",
    ),
    "edits after the training": Wall(
        "wm.envs.code.EnvCode.edited_since",
        lambda self, earlier: "",
        "envs/test_code.py::test_edited_modules_are_named",
    ),
    "splits of seeds": Wall(
        "wm.seeding.SPLITS",
        dict.fromkeys(("train", "validation", "test"), 0),
        "test_seeding.py::test_splits_never_share_an_episode_seed",
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.extra(wall.extra) if wall.extra else ()) for name, wall in WALLS.items()],
)
@pytest.mark.slow
def test_without_the_wall_its_test_fails(
    name: str, chain: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CHAIN_TO_TEST_WITH", str(chain))
    wall, tests, loaded = WALLS[name], Path(__file__).resolve().parents[1], set(sys.modules)
    careful = resolve_name(wall.function)
    monkeypatch.setattr(wall.function, wall.careless)
    # Without the plugin that collects garbage at its end, of which a process with torch in it has a lot.
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
    options += ["--basetemp", str(tmp_path / "inner")]
    assert pytest.main([*options, str(tests / wall.test)]) == pytest.ExitCode.TESTS_FAILED
    # What was found without a wall must not meet the tests after this, nor a module that took the careless function.
    registry._inspect.cache_clear()
    for module in [sys.modules[other] for other in set(sys.modules) - loaded]:
        for taken in [key for key, value in vars(module).items() if value is wall.careless]:
            setattr(module, taken, careful)
