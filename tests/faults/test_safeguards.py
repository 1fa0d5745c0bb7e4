"""Each safeguard against a leak is removed once; its test, green in the suite, must then fail."""

import math
import mmap
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.episodes import test_parts as part_tests
from tests.episodes import test_replay as replay_tests
from tests.models import test_dreamer as dreamer_tests
from wm.artifacts import durable
from wm.episodes import parts
from wm.episodes.chunk_pipeline import WholeChunks
from wm.episodes.parts import PartBuilder
from wm.episodes.replay import ReplayBuffer, ReplayWriter
from wm.models.dreamer.agent import Dreamer, DreamerTrainer
from wm.models.dreamer.rssm import Rssm

Removal = Callable[[pytest.MonkeyPatch], None]


def without_inference_mode(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dreamer, "act", Dreamer.act.__wrapped__)  # type: ignore[attr-defined]


def with_a_cached_state(patch: pytest.MonkeyPatch) -> None:
    plain = Rssm.step

    def step(self: Rssm, state: Any, action: Any) -> Any:
        self.cached = plain(self, state, action)
        return self.cached

    patch.setattr(Rssm, "step", step)


def with_metrics_kept_in_a_list(patch: pytest.MonkeyPatch) -> None:
    plain, kept = DreamerTrainer.update, list[Any]()

    def update(self: DreamerTrainer, *arguments: Any, **named: Any) -> Any:
        kept.append(plain(self, *arguments, **named))
        return kept[-1]

    patch.setattr(DreamerTrainer, "update", update)


def with_graphs_in_metrics(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.Tensor, "detach", lambda self: self)


def with_imagination_from_attached_states(patch: pytest.MonkeyPatch) -> None:
    from wm.models.dreamer.rssm import State

    patch.setattr(State, "detach", lambda self: self)


def with_samples_that_are_views(patch: pytest.MonkeyPatch) -> None:
    def frames(self: ReplayBuffer, rows: Any, out: Any) -> Any:
        return self.columns["frames"][:, : rows.shape[1]]

    patch.setattr(ReplayBuffer, "_frames", frames)


def with_a_buffer_whose_memory_comes_later(patch: pytest.MonkeyPatch) -> None:
    class Lazy(np.ndarray[Any, Any]):
        def fill(self, value: Any) -> None:
            """Leaves the pages untouched: they are the system's zeros until written."""

    def lazy(shape: tuple[int, ...], dtype: Any) -> Any:
        pages = mmap.mmap(-1, max(1, math.prod(shape) * np.dtype(dtype).itemsize), flags=mmap.MAP_PRIVATE)
        return np.ndarray(shape, dtype, pages).view(Lazy)

    patch.setattr("wm.episodes.replay.np.empty", lazy)


def without_eviction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplayWriter, "evict", lambda self: None)


def with_a_second_load(patch: pytest.MonkeyPatch) -> None:
    plain = ReplayWriter.restore

    def restore(self: ReplayWriter, *arguments: Any) -> None:
        plain(self, *arguments)
        plain(self, *arguments)

    patch.setattr(ReplayWriter, "restore", restore)


def without_removing_newer_parts(patch: pytest.MonkeyPatch) -> None:
    plain = ReplayWriter.restore
    patch.setattr(ReplayWriter, "restore", lambda self, next_piece, envs: plain(self, 1 << 20, envs))


def without_staging(patch: pytest.MonkeyPatch) -> None:
    def commit(self: PartBuilder, allow: Any = None) -> Path:
        folder = self.root / parts.part_name(self.first, self.last)
        durable.write_folder(folder, self.files())
        return folder

    patch.setattr(PartBuilder, "commit", commit)


def without_syncing_files(patch: pytest.MonkeyPatch) -> None:
    def write_folder(folder: Path, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)

    patch.setattr(durable, "write_folder", write_folder)


def without_renaming(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(durable, "publish", lambda staged, final: shutil.copytree(staged, final))


def without_empty_chunks(patch: pytest.MonkeyPatch) -> None:
    plain = WholeChunks.write

    async def write(self: WholeChunks, batch_info: Any, value: Any, drop_axes: Any = ()) -> None:
        await plain(self, [item for item in batch_info if value[item[3]].as_numpy_array().any()], value, drop_axes)

    patch.setattr(WholeChunks, "write", write)


@pytest.mark.parametrize(
    ("remove", "test"),
    [
        (without_staging, part_tests.test_a_part_is_synced_in_staging_and_appears_whole),
        (without_syncing_files, part_tests.test_a_part_is_synced_in_staging_and_appears_whole),
        (without_renaming, part_tests.test_a_part_is_synced_in_staging_and_appears_whole),
        (without_empty_chunks, part_tests.test_an_all_black_chunk_is_written_all_the_same),
        (without_inference_mode, dreamer_tests.test_acting_builds_no_graph),
        (without_inference_mode, dreamer_tests.test_an_acted_state_cannot_be_trained_on_by_mistake),
        (with_a_cached_state, dreamer_tests.test_the_model_keeps_nothing_between_calls),
        (with_metrics_kept_in_a_list, dreamer_tests.test_an_update_leaves_no_tensor_behind),
        (with_graphs_in_metrics, dreamer_tests.test_metrics_have_no_graph),
        (with_imagination_from_attached_states, dreamer_tests.test_states_for_imagination_are_detached),
        (with_samples_that_are_views, replay_tests.test_a_sample_owns_its_memory),
        (with_a_buffer_whose_memory_comes_later, replay_tests.test_a_buffer_takes_its_whole_memory_from_the_start),
        (without_eviction, replay_tests.test_the_replay_on_disk_is_at_most_the_capacity_and_two_parts),
        (with_a_second_load, replay_tests.test_a_restored_buffer_equals_the_one_that_was_written),
        (without_removing_newer_parts, replay_tests.test_restoring_removes_parts_newer_than_the_checkpoint),
    ],
)
@pytest.mark.slow
def test_without_the_safeguard_its_test_fails(
    remove: Removal, test: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = (tmp_path,) if "tmp_path" in test.__annotations__ else ()
    remove(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        test(*arguments)
