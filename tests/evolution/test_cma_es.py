import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from wm.errors import BadData
from wm.evolution.cma_es import Search, digest, replay


def sphere(candidates: np.ndarray) -> np.ndarray:
    return -np.square(candidates - 1.0).sum(axis=1).astype(np.float64)


def test_it_finds_the_maximum_of_a_sphere() -> None:
    search = Search(np.zeros(8, np.float32), 12, 0.3, seed=0)
    for _ in range(120):
        search.tell(sphere(search.ask()))
    assert np.abs(search.mean - 1.0).max() < 0.05


def test_replaying_the_log_brings_back_the_same_candidates_bit_for_bit() -> None:
    search, log = Search(np.zeros(20, np.float32), 8, 0.3, seed=3), []
    for _ in range(15):
        candidates = search.ask()
        returns = sphere(candidates)
        search.tell(returns)
        log.append((digest(candidates), [float(value) for value in returns]))
    resumed = Search(np.zeros(20, np.float32), 8, 0.3, seed=3)
    np.random.seed(99)  # the global generator must not matter
    for name, returns in log:
        replay(resumed, name, returns)
    assert np.array_equal(search.ask(), resumed.ask())
    assert np.array_equal(search.mean, resumed.mean)


def test_candidates_do_not_depend_on_the_number_of_threads() -> None:
    means = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            search = Search(np.zeros(400, np.float32), 16, 0.3, seed=0)
            for _ in range(12):
                search.tell(sphere(search.ask()))
            means.append(search.mean)
    assert np.array_equal(*means)


def test_a_log_of_other_candidates_is_refused() -> None:
    with pytest.raises(BadData, match="has other candidates than this search"):
        replay(Search(np.zeros(20, np.float32), 8, 0.3, seed=3), "0" * 16, [0.0] * 8)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_returns_that_are_not_finite_count_as_worse_than_the_worst(broken: float) -> None:
    means = []
    for value in (broken, -11.0):
        search = Search(np.zeros(4, np.float32), 4, 0.3, seed=0)
        search.ask()
        search.tell(np.array([5.0, -3.0, value, 0.0]))
        means.append(search.mean)
    assert np.array_equal(means[0], means[1])
    assert np.isfinite(means[0]).all()


def test_a_flat_landscape_does_not_stop_it() -> None:
    search = Search(np.zeros(4, np.float32), 8, 0.3, seed=0)
    for _ in range(60):
        search.ask()
        search.tell(np.full(8, -21.0))
    assert search.generation == 60


def test_it_starts_from_the_given_parameters() -> None:
    start = np.linspace(-1, 1, 6).astype(np.float32)
    search = Search(start, 8, 0.01, seed=0)
    assert np.array_equal(search.mean, start)
    assert np.abs(search.ask() - start).max() < 0.1


def test_sep_cma_finds_the_maximum_of_a_sphere() -> None:
    search = Search(np.zeros(8, np.float32), 12, 0.3, seed=0, algo="sep-cma")
    for _ in range(120):
        search.tell(sphere(search.ask()))
    assert np.abs(search.mean - 1.0).max() < 0.05


def test_some_candidates_mirror_the_worst_of_the_generation_before() -> None:
    search = Search(np.zeros(6, np.float32), 12, 0.3, seed=0)
    first = search.ask()
    returns = sphere(first)
    search.tell(returns)
    second = search.ask()
    away = first[returns.argmin()] - 0.0
    directions = [
        float(candidate @ -away / np.linalg.norm(candidate) / np.linalg.norm(away))
        for candidate in second - search.mean
    ]
    assert max(directions) > 0.99
