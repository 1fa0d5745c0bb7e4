from wm.seeding import episode_seed, generator, integer, split_of


def test_splits_never_share_an_episode_seed() -> None:
    seeds = {split: {episode_seed(split, s, "x", k) for s in range(5) for k in range(100)} for split in
             ("train", "validation", "test")}  # fmt: skip
    assert not seeds["train"] & seeds["validation"]
    assert not seeds["train"] & seeds["test"]
    assert not seeds["validation"] & seeds["test"]
    assert all(0 <= seed < 2**31 for group in seeds.values() for seed in group)
    assert all({split_of(seed) for seed in group} == {split} for split, group in seeds.items())
    assert [split_of(seed) for seed in (-1, 2**31, 2**40)] == [None, None, None]


def test_a_path_decides_the_numbers() -> None:
    assert integer(1, "a", 2) == integer(1, "a", 2)
    assert integer(1, "a", 2) != integer(1, "a", 3)
    assert generator(1, "a").random() != generator(1, "b").random()
