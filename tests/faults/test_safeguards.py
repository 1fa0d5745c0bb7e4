"""Each safeguard against a leak is broken once, and the test that watches it, green in the suite, goes red."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.episodes import test_replay as replay_tests
from tests.models import test_dreamer as dreamer_tests
from wm.episodes.replay import ReplayWriter, Ring
from wm.models.dreamer.agent import Dreamer, DreamerTrainer
from wm.models.dreamer.rssm import Rssm

Break = Callable[[pytest.MonkeyPatch], None]


def without_inference_mode(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dreamer, "act", Dreamer.act.__wrapped__)  # type: ignore[attr-defined]


def with_a_cached_state(patch: pytest.MonkeyPatch) -> None:
    plain = Rssm.carry

    def carry(self: Rssm, state: Any, action: Any) -> Any:
        self.cached = plain(self, state, action)
        return self.cached

    patch.setattr(Rssm, "carry", carry)


def with_losses_in_a_list(patch: pytest.MonkeyPatch) -> None:
    plain, kept = DreamerTrainer.update, list[Any]()

    def update(self: DreamerTrainer, *arguments: Any, **named: Any) -> Any:
        kept.append(plain(self, *arguments, **named))
        return kept[-1]

    patch.setattr(DreamerTrainer, "update", update)


def with_history_in_figures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.Tensor, "detach", lambda self: self)


def with_imagination_from_attached_states(patch: pytest.MonkeyPatch) -> None:
    from wm.models.dreamer.rssm import State

    patch.setattr(State, "detach", lambda self: self)


def with_a_view_handed_out(patch: pytest.MonkeyPatch) -> None:
    def frames(self: Ring, lanes: Any, oldest: Any, since: Any, back: Any, stack: int, out: Any) -> Any:
        return self.columns["frames"][:, : since.shape[1]]

    patch.setattr(Ring, "_frames", frames)


def with_a_ring_that_is_touched_later(patch: pytest.MonkeyPatch) -> None:
    class Lazy:
        def __init__(self, *arguments: Any) -> None:
            self._made = np.zeros(*arguments)

        def __getattr__(self, name: str) -> Any:
            return (lambda _: None) if name == "fill" else getattr(self._made, name)

    patch.setattr("wm.episodes.replay.np.empty", Lazy)


def without_unlinking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplayWriter, "evict", lambda self: None)


def with_a_second_load(patch: pytest.MonkeyPatch) -> None:
    plain = ReplayWriter.restore

    def restore(self: ReplayWriter, *arguments: Any) -> None:
        plain(self, *arguments)
        plain(self, *arguments)

    patch.setattr(ReplayWriter, "restore", restore)


def without_removing_what_is_newer(patch: pytest.MonkeyPatch) -> None:
    plain = ReplayWriter.restore
    patch.setattr(ReplayWriter, "restore", lambda self, upto, lanes: plain(self, 1 << 20, lanes))


@pytest.mark.parametrize(
    ("broken", "watch"),
    [
        (without_inference_mode, dreamer_tests.test_acting_builds_no_graph),
        (without_inference_mode, dreamer_tests.test_an_acted_state_cannot_be_trained_on_by_mistake),
        (with_a_cached_state, dreamer_tests.test_the_model_keeps_nothing_between_calls),
        (with_losses_in_a_list, dreamer_tests.test_an_update_leaves_no_tensor_behind),
        (with_history_in_figures, dreamer_tests.test_figures_carry_no_history),
        (with_imagination_from_attached_states, dreamer_tests.test_states_for_imagination_are_detached),
        (with_a_view_handed_out, replay_tests.test_a_sample_owns_its_memory),
        (with_a_ring_that_is_touched_later, replay_tests.test_a_ring_has_its_whole_size_from_the_start),
        (without_unlinking, replay_tests.test_the_disk_holds_no_more_than_the_capacity_and_two_parts),
        (with_a_second_load, replay_tests.test_what_is_read_back_is_what_was_in_memory),
        (without_removing_what_is_newer, replay_tests.test_what_was_written_after_a_checkpoint_is_gone_after_it),
    ],
)
def test_without_the_safeguard_its_test_goes_red(
    broken: Break, watch: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = (tmp_path,) if "tmp_path" in watch.__annotations__ else ()
    broken(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError, pytest.fail.Exception)):
        watch(*arguments)
