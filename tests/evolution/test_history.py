import numpy as np

from wm.evolution.history import History


def line(generation: int, validation: list[float] | None = None, dream: float = 1.0, where: str = "dream") -> dict:
    found = {"generation": generation, "returns": [dream], "env_steps": 10, "seconds": 0.5, "in": where}
    return found | ({"validation": validation} if validation else {})


def told(*lines: dict) -> History:
    history = History()
    for found in lines:
        history.add(found, np.array([found["generation"]], np.float32))
    return history


def test_the_best_mean_by_validation_is_kept_not_the_last_one() -> None:
    history = told(line(1), line(2, [5.0, 7.0]), line(3), line(4, [1.0, 2.0]))
    assert history.best is not None
    assert history.best.tolist() == [2.0]
    assert (history.best_score, history.best_generation, history.env_steps, history.seconds) == (6.0, 2, 40, 2.0)


GOOD, BAD = [10.0, 11.0, 9.0, 10.0], [2.0, 3.0, 1.0, 2.5]


def test_a_dream_that_pleases_while_reality_gets_worse_is_exploited() -> None:
    lines = [line(1, GOOD, 1.0), line(2, BAD, 2.0), line(3, BAD, 3.0)]
    assert not told(*lines).exploited()
    assert told(*lines, line(4, BAD, 4.0)).exploited()


def test_reality_that_only_swings_is_no_exploit() -> None:
    swings = [[10.0, 5.0, 14.0, 9.0], [2.0, 18.0, 9.0, 9.0], [11.0, 9.0, 9.0, 10.0]]
    assert not told(line(1, GOOD), *(line(2 + place, some, 5.0) for place, some in enumerate(swings))).exploited()


def test_a_dream_that_gets_worse_too_is_no_exploit() -> None:
    assert not told(*(line(1 + place, GOOD if not place else BAD, -place) for place in range(5))).exploited()


def test_means_are_kept_at_equal_distances() -> None:
    generations, means = told(*(line(number) for number in range(1, 101))).spaced_means(4)
    assert generations == [1, 34, 67, 100]
    assert means[:, 0].tolist() == generations
    assert told(line(1), line(2)).spaced_means(8)[0] == [1, 2]


def test_starts_that_are_worse_than_the_best_of_them_are_no_exploit() -> None:
    lines = [line(1, GOOD, 1.0), *(line(2 + place, BAD, 2.0 + place) for place in range(5))]
    assert told(*lines).exploited()
    assert not told(*lines).exploited(since=4)
    assert told(*lines).exploited(since=3)


def test_the_best_start_is_the_one_whose_last_generation_validates_best() -> None:
    history = told(line(1, GOOD), line(2, BAD), line(3, BAD), line(4, GOOD), line(5), line(6, BAD))
    assert history.best_start(range(2, 7, 2)) == 1
