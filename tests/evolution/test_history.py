import weakref

import numpy as np

from wm.evolution.history import History


def line(generation: int, validation: list[float] | None = None, dream: float = 1.0, place: str = "dream") -> dict:
    line = {"generation": generation, "returns": [dream], "env_steps": 10, "seconds": 0.5, "in": place}
    return line | ({"validation": validation} if validation else {})


def history_of(*lines: dict) -> History:
    history = History()
    for line in lines:
        history.add(line, np.array([line["generation"]], np.float32))
    return history


def test_the_best_mean_by_validation_is_kept_not_the_last_one() -> None:
    history = history_of(line(1), line(2, [5.0, 7.0]), line(3), line(4, [1.0, 2.0]))
    assert history.best is not None
    assert history.best.tolist() == [2.0]
    assert (history.best_score, history.best_generation, history.env_steps, history.seconds) == (6.0, 2, 40, 2.0)


GOOD, BAD = [10.0, 11.0, 9.0, 10.0], [2.0, 3.0, 1.0, 2.5]


def test_rising_dream_returns_with_falling_real_returns_are_an_exploit() -> None:
    lines = [line(1, GOOD, 1.0), line(2, BAD, 2.0), line(3, BAD, 3.0)]
    assert not history_of(*lines).exploited()
    assert history_of(*lines, line(4, BAD, 4.0)).exploited()


def test_a_search_that_falls_below_the_earlier_policy_it_began_with_exploits_the_dream() -> None:
    def begun_with(score: float, dream: float) -> History:
        history = History(best_score=score)
        for generation in range(1, 5):
            history.add(line(generation, BAD, dream * generation), np.zeros(1, np.float32))
        return history

    assert begun_with(10.0, 1.0).exploited()
    assert not begun_with(10.0, -1.0).exploited()
    assert not begun_with(2.6, 1.0).exploited()  # within the interval of the three
    assert history_of(line(0, GOOD, place="real"), *(line(place, BAD, place) for place in (1, 2, 3))).exploited()


def test_fluctuating_real_returns_are_no_exploit() -> None:
    swings = [[10.0, 5.0, 14.0, 9.0], [2.0, 18.0, 9.0, 9.0], [11.0, 9.0, 9.0, 10.0]]
    assert not history_of(line(1, GOOD), *(line(2 + place, some, 5.0) for place, some in enumerate(swings))).exploited()


def test_falling_dream_returns_are_no_exploit() -> None:
    assert not history_of(*(line(1 + place, GOOD if not place else BAD, -place) for place in range(5))).exploited()


def test_of_all_parameters_only_the_best_stay_in_memory() -> None:
    history, kept = History(), []
    for generation in range(1, 51):
        parameters = np.full(3, generation, np.float32)
        kept.append(weakref.ref(parameters))
        history.add(line(generation, [float(-abs(generation - 20))]), parameters)
        del parameters
    assert [number for number, reference in enumerate(kept, 1) if reference() is not None] == [20]


def test_candidate_searches_worse_than_the_best_of_them_are_no_exploit() -> None:
    lines = [line(1, GOOD, 1.0), *(line(2 + place, BAD, 2.0 + place) for place in range(5))]
    assert history_of(*lines).exploited()
    assert not history_of(*lines).exploited(since=4)
    assert history_of(*lines).exploited(since=3)


def test_the_best_candidate_search_is_the_one_whose_last_generation_validates_best() -> None:
    history = history_of(line(1, GOOD), line(2, BAD), line(3, BAD), line(4, GOOD), line(5), line(6, BAD))
    assert history.best_candidate_search(range(2, 7, 2)) == 1
