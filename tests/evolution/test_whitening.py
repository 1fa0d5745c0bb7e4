from itertools import product

import numpy as np
import torch

from wm.actions import ActionSpace
from wm.evolution.cma_es import Search
from wm.evolution.whitening import unwhiten, whiten, whitener_of
from wm.models.controller import Controller


def uneven_inputs(count: int = 4000) -> np.ndarray:
    """C's inputs: three directions with deviations 3, 1 and 0.3, and a mean that is not zero."""
    random = np.random.default_rng(0)
    rotation = np.linalg.qr(random.normal(size=(3, 3)))[0]
    return ((random.normal(size=(count, 3)) * [3.0, 1.0, 0.3]) @ rotation + [5.0, -2.0, 1.0]).astype(np.float32)


def outputs(weights: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    return np.c_[inputs, np.ones(len(inputs))] @ weights.T


def test_equal_whitened_steps_change_the_output_equally_in_every_direction() -> None:
    inputs = uneven_inputs()
    steps = np.eye(4)
    plain = outputs(steps, inputs)
    whitened = outputs(unwhiten(steps, whitener_of([inputs[:1000], inputs[1000:]])), inputs)
    spectra = [np.linalg.eigvalsh(change.T @ change / len(inputs)) for change in (plain, whitened)]
    plain_ratio, whitened_ratio = (spectrum[-1] / spectrum[0] for spectrum in spectra)
    assert whitened_ratio < plain_ratio / 20


def test_unwhitened_weights_have_the_order_of_a_controllers_parameters() -> None:
    controller = Controller(3, ActionSpace(count=4), "argmax")
    inputs, random = uneven_inputs(50), np.random.default_rng(1)
    whitener, rows = whitener_of([inputs]), random.normal(size=(4, 4))
    parameters = unwhiten(rows.reshape(1, -1), whitener).astype(np.float32)
    assert parameters.shape == (1, controller.parameters)
    expected = np.c_[inputs, np.ones(len(inputs))] @ whitener @ rows.T
    actions = controller.act(torch.from_numpy(parameters).expand(50, -1), torch.from_numpy(inputs))
    assert actions.tolist() == expected.argmax(1).tolist()


def test_unwhiten_inverts_whiten() -> None:
    whitener = whitener_of([uneven_inputs(50)])
    parameters = np.random.default_rng(2).normal(size=8).astype(np.float32)  # two outputs of three weights and a bias
    assert np.allclose(unwhiten(whiten(parameters, whitener)[None], whitener)[0], parameters, atol=1e-5)


def test_a_whitened_search_starts_from_its_parameters_with_steps_in_proportion() -> None:
    start, whitener = np.linspace(-1, 2, 8).astype(np.float32), whitener_of([uneven_inputs(200)])
    searches = [Search(scale * start, 64, 0.1, seed=0, whitener=whitener) for scale in (np.float32(1), np.float32(10))]
    assert np.allclose(searches[0].mean, start, atol=1e-5)
    spreads = [np.std([whiten(one, whitener) for one in search.ask()], axis=0).mean() for search in searches]
    assert np.isclose(spreads[0], 0.1 * np.sqrt(np.mean(whiten(start, whitener) ** 2)), rtol=0.1)
    assert np.isclose(spreads[1], 10 * spreads[0], rtol=1e-3)
    assert Search(np.zeros(8, np.float32), 8, 0.3, seed=0, whitener=whitener).sigma == 0.3


def test_the_whitener_does_not_depend_on_where_episodes_end() -> None:
    inputs = uneven_inputs(600)
    assert np.array_equal(whitener_of([inputs]), whitener_of([inputs[:100], inputs[100:]]))


def test_a_whitened_search_converges_faster_on_uneven_inputs() -> None:
    random = np.random.default_rng(0)
    inputs = (random.normal(size=(400, 12)) * np.geomspace(3, 0.3, 12)).astype(np.float32)
    target = outputs(np.append(1 / inputs.std(0), 0.0)[None], inputs)[:, 0]
    error = {False: 0.0, True: 0.0}
    for seed, whitened in product(range(3), error):
        search = Search(np.zeros(13, np.float32), 12, 0.3, seed)
        if whitened:
            search.restart_whitened(whitener_of([inputs]))
        for _ in range(30):
            populations = outputs(search.ask(), inputs)
            search.tell(np.array([np.corrcoef(one, target)[0, 1] for one in populations.T]))
        error[whitened] += 1 - np.corrcoef(outputs(search.mean[None], inputs)[:, 0], target)[0, 1]
    assert error[True] < error[False] / 3


def test_a_whitened_restart_starts_from_zero_with_the_initial_step_size() -> None:
    search = Search(np.ones(4, np.float32), 8, 0.3, seed=0)
    for _ in range(5):
        search.tell(search.ask().sum(axis=1).astype(np.float64))
    search.restart_whitened(whitener_of([uneven_inputs(100)]))
    assert not search.mean.any()
    assert search.sigma == 0.3
    assert search.generation == 5


def test_constant_inputs_have_a_finite_whitener() -> None:
    assert np.isfinite(whitener_of([np.zeros((9, 3), np.float32)])).all()
