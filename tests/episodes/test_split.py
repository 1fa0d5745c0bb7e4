import numpy as np

from wm.episodes.split import validation_mask


def test_the_split_of_an_episode_depends_on_its_own_seed_and_neither_side_is_empty() -> None:
    seeds = np.arange(200)
    mask = validation_mask(seeds, 0.1)
    assert 8 <= mask.sum() <= 35
    assert np.array_equal(validation_mask(seeds[:150], 0.1)[mask[:150]], mask[:150][mask[:150]])
    assert validation_mask(seeds[:2], 0.1).sum() == 1
    assert validation_mask(seeds[:1], 0.1).sum() == 0
