from itertools import product

import numpy as np
import torch

from wm.actions import ActionSpace
from wm.evolution.cma_es import Search
from wm.evolution.whitening import coordinates_of, weights_of, whitener_of
from wm.models.controller import Controller


def uneven(count: int = 4000) -> np.ndarray:
    """What C is given: three directions, one of them moved thirty times as far as another, around a place not zero."""
    random = np.random.default_rng(0)
    turned = np.linalg.qr(random.normal(size=(3, 3)))[0]
    return ((random.normal(size=(count, 3)) * [3.0, 1.0, 0.3]) @ turned + [5.0, -2.0, 1.0]).astype(np.float32)


def answers(weights: np.ndarray, given: np.ndarray) -> np.ndarray:
    return np.c_[given, np.ones(len(given))] @ weights.T


def test_equal_steps_change_every_direction_of_what_c_says_alike() -> None:
    given = uneven()
    steps = np.eye(4)
    plain = answers(steps, given)
    flat = weights_of(steps, whitener_of([given[:1000], given[1000:]]))
    even = answers(flat, given)  # of one output: three weights, then the bias
    spreads = [np.linalg.eigvalsh(found.T @ found / len(given)) for found in (plain, even)]
    plain_ratio, even_ratio = (found[-1] / found[0] for found in spreads)
    assert even_ratio < plain_ratio / 20


def test_weights_come_in_the_order_a_controller_takes_them() -> None:
    controller = Controller(3, ActionSpace(count=4), "argmax")
    given, random = uneven(50), np.random.default_rng(1)
    basis, rows = whitener_of([given]), random.normal(size=(4, 4))
    flat = weights_of(rows.reshape(1, -1), basis).astype(np.float32)
    assert flat.shape == (1, controller.parameters)
    said = np.c_[given, np.ones(len(given))] @ basis @ rows.T
    acted = controller.act(torch.from_numpy(flat).expand(50, -1), torch.from_numpy(given))
    assert acted.tolist() == said.argmax(1).tolist()


def test_coordinates_are_those_of_the_weights_they_give() -> None:
    random = np.random.default_rng(2)
    basis = whitener_of([uneven(50)])
    parameters = random.normal(size=8).astype(np.float32)  # two outputs of three weights and a bias
    assert np.allclose(weights_of(coordinates_of(parameters, basis)[None], basis)[0], parameters, atol=1e-5)
    wider = whitener_of([uneven(50)], inputs=5)
    kept = weights_of(coordinates_of(random.normal(size=12), wider)[None], wider)[0]
    assert not kept[[3, 4, 8, 9]].any()  # what the basis leaves out stays zero


def test_an_evened_search_begins_where_it_is_told_to_with_steps_in_proportion() -> None:
    start, basis = np.linspace(-1, 2, 8).astype(np.float32), whitener_of([uneven(200)])
    searches = [Search(scale * start, 64, 0.1, seed=0, basis=basis) for scale in (np.float32(1), np.float32(10))]
    assert np.allclose(searches[0].mean, start, atol=1e-5)
    spreads = [np.std([coordinates_of(one, basis) for one in search.ask()], axis=0).mean() for search in searches]
    place = coordinates_of(start, basis)
    assert np.isclose(spreads[0], 0.1 * np.sqrt(np.mean(place**2)), rtol=0.1)
    assert np.isclose(spreads[1], 10 * spreads[0], rtol=1e-3)
    assert Search(np.zeros(8, np.float32), 8, 0.3, seed=0, basis=basis).sigma == 0.3


def test_where_one_episode_ends_and_another_begins_has_no_say() -> None:
    given = uneven(600)
    whole, parts = whitener_of([given]), whitener_of([given[:100], given[100:]])
    assert np.array_equal(whole, parts)


def test_an_evened_search_is_sooner_there() -> None:
    random = np.random.default_rng(0)
    given = (random.normal(size=(400, 12)) * np.geomspace(3, 0.3, 12)).astype(np.float32)
    wanted = answers(np.append(1 / given.std(0), 0.0)[None], given)[:, 0]
    wrong = {False: 0.0, True: 0.0}
    for seed, evened in product(range(3), wrong):
        search = Search(np.zeros(13, np.float32), 12, 0.3, seed)
        if evened:
            search.whiten(whitener_of([given]))
        for _ in range(30):
            said = answers(search.ask(), given)
            search.tell(np.array([np.corrcoef(one, wanted)[0, 1] for one in said.T]))
        wrong[evened] += 1 - np.corrcoef(answers(search.mean[None], given)[:, 0], wanted)[0, 1]
    assert wrong[True] < wrong[False] / 3


def test_evening_out_begins_at_zero_with_the_first_step_size() -> None:
    search = Search(np.ones(4, np.float32), 8, 0.3, seed=0)
    for _ in range(5):
        search.tell(search.ask().sum(axis=1).astype(np.float64))
    search.whiten(whitener_of([uneven(100)]))
    assert not search.mean.any()
    assert search.sigma == 0.3
    assert search.generation == 5


def test_a_search_over_the_first_of_what_c_is_given_leaves_the_other_weights_at_zero() -> None:
    given = uneven(100)
    search = Search(np.ones(2 * 6, np.float32), 8, 0.3, seed=0)
    search.whiten(whitener_of([given], inputs=5))
    asked = search.ask()
    rows = np.concatenate([asked[:, :10].reshape(-1, 2, 5), asked[:, 10:, None]], axis=2)
    assert rows[..., [0, 1, 2, 5]].all()
    assert not rows[..., 3:5].any()
    alone = Search(np.ones(2 * 4, np.float32), 8, 0.3, seed=0)
    alone.whiten(whitener_of([given]))
    assert np.array_equal(alone.ask()[:, :6], rows[..., :3].reshape(-1, 6))


def test_what_never_changes_does_not_break_the_basis() -> None:
    assert np.isfinite(whitener_of([np.zeros((9, 3), np.float32)])).all()
