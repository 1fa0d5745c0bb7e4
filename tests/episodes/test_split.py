import numpy as np

from wm.episodes.split import validation_mask


def test_the_split_of_an_episode_depends_on_its_own_seed_and_neither_side_is_empty() -> None:
    seeds = np.arange(200)
    mask = validation_mask(seeds, 0.1)
    assert 8 <= mask.sum() <= 35
    assert np.array_equal(validation_mask(seeds[:150], 0.1)[mask[:150]], mask[:150][mask[:150]])
    assert validation_mask(seeds[:2], 0.1).sum() == 1
    assert validation_mask(seeds[:1], 0.1).sum() == 0


def test_the_lives_of_an_episode_are_on_one_side() -> None:
    assert validation_mask(np.array([3, 3, 3, 5, 5]), 0.0).sum() in (2, 3)
    mask = validation_mask(np.repeat(np.arange(40), 5), 0.3).reshape(40, 5)
    assert (mask.all(1) | ~mask.any(1)).all()
    assert not validation_mask(np.array([3, 3]), 1.0).any()
