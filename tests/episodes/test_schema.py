from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import make_episode
from wm.episodes.schema import BLOCK_EPISODES, PART_ROWS, FramePacker, part_is_full, part_name, round_labels


def test_a_packed_episode_unpacks_to_itself() -> None:
    episode = make_episode(3)
    again = episode.pack().unpack()
    assert np.array_equal(again.frames, episode.frames)
    assert np.array_equal(again.actions, episode.actions)
    assert (again.index, again.seed, again.terminated) == (3, 1003, True)
    again.frames[0] = 0  # its frames are its own


@pytest.mark.parametrize("rows", [1, 63, 64, 200])
def test_frames_packed_one_by_one_unpack_to_themselves(rows: int) -> None:
    episode, packer = make_episode(3, rows=rows), FramePacker()
    buffer = np.empty_like(episode.frames[0])
    for frame in episode.frames:
        buffer[:] = frame
        packer.add(buffer)  # which may be overwritten afterwards
    packed, shape = packer.finish()
    again = replace(episode.pack(), packed=packed, shape=shape).unpack()
    assert np.array_equal(again.frames, episode.frames)


def test_which_episodes_share_a_part_follows_from_their_rows_alone() -> None:
    assert not part_is_full(1, PART_ROWS - 1)
    assert part_is_full(1, PART_ROWS)
    assert part_is_full(BLOCK_EPISODES, 10)
    assert part_name(48, 56) == "part-000048-000056"


def test_labels_are_stored_to_one_part_in_two_thousand() -> None:
    labels = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32) * 100
    labels[7, 1] = np.nan
    stored = round_labels(labels)
    assert np.isnan(stored[7, 1])
    assert np.nanmax(np.abs(stored / labels - 1)) <= 1 / 2048
    assert round_labels(np.array([0.0, 1.0, -2.0], np.float32)).tolist() == [0.0, 1.0, -2.0]
