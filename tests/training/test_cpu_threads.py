"""On several cores V and M are trained by threads with a share of the rows each: faster, and the same step."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.losses import mdnrnn, step, vae
from wm.errors import UsageProblem
from wm.settings import MdnRnnSettings, VaeSettings
from wm.training.mdnrnn import accelerated_mdnrnn_loss
from wm.training.precision import Precision
from wm.training.vae import accelerated_vae_loss

CPU = torch.device("cpu")
MDNRNN, VAE = MdnRnnSettings(batch=192), VaeSettings()
KINDS = [(mdnrnn, "rollout"), (mdnrnn, "paper"), (vae, "small"), (vae, "attentive"), (vae, "paper")]


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def accelerated(build: Any, model: Any, loss: Callable[..., Any], format_: Precision) -> AbstractContextManager[Any]:
    if build is vae:
        return accelerated_vae_loss(model, loss, VAE, format_)
    return accelerated_mdnrnn_loss(model, loss, MDNRNN, format_)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("build", "network"), KINDS)
def test_threads_give_the_loss_and_the_gradient_of_the_whole_batch(
    build: Any, network: str, precision: str, three_threads: None
) -> None:
    model, loss, batch = build(network, CPU)
    format_ = Precision(precision, CPU)
    if network == "paper" and build is mdnrnn:
        try:
            format_.require_lstm()
        except UsageProblem:
            pytest.skip(f"this CPU has no LSTM in {precision}")
    with accelerated(build, model, loss, format_) as threaded:
        assert threaded is not loss
        (terms, gradient), (whole, of_whole) = (step(model, run, batch(0), format_) for run in (threaded, loss))
    tolerance = 1e-5 if precision == "fp32" else 3e-2
    torch.testing.assert_close(terms, whole, rtol=tolerance, atol=tolerance)
    assert (gradient - of_whole).norm() < 2 * tolerance * of_whole.norm()


def test_a_step_by_threads_has_the_same_bits_however_they_take_turns(three_threads: None) -> None:
    # With autocast's cache, which threads share, some of them differed.
    model, loss, batch = mdnrnn("rollout", CPU)
    format_ = Precision("bf16", CPU)
    with accelerated(mdnrnn, model, loss, format_) as threaded:
        gradients = [step(model, threaded, batch(0), format_)[1] for _ in range(12)]
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


def test_threads_compute_alone_and_leave_nothing_behind(three_threads: None) -> None:
    model, loss, batch = vae("small", CPU)
    counts = list[int]()
    posterior = model.vae.posterior

    def counted(images: torch.Tensor) -> Any:
        counts.append(torch.get_num_threads())
        return posterior(images)

    model.vae.posterior = counted
    before = threading.active_count()
    with accelerated(vae, model, loss, Precision("fp32", CPU)) as threaded:
        step(model, threaded, batch(0), Precision("fp32", CPU))
        assert torch.get_num_threads() == 3
    assert counts == [1, 1, 1]
    assert threading.active_count() == before


def test_a_step_that_fails_raises_what_it_raised_and_leaves_torch_its_threads(three_threads: None) -> None:
    model, loss, batch = vae("small", CPU)

    def posterior(images: torch.Tensor) -> Any:
        raise MemoryError(len(images))

    model.vae.posterior = posterior
    with pytest.raises(MemoryError), accelerated(vae, model, loss, Precision("fp32", CPU)) as threaded:
        threaded(*batch(0))
    with ThreadPoolExecutor(1) as later:
        assert (torch.get_num_threads(), later.submit(torch.get_num_threads).result()) == (3, 3)


@pytest.mark.parametrize(
    ("settings", "precision", "threads"),
    [
        (replace(MDNRNN, pieces=2), "fp32", 1),
        (MDNRNN, "fp16", 1),
        (replace(MDNRNN, compile=True), "fp32", 3),
    ],
    ids=["pieces", "fp16", "compiled"],
)
def test_losses_that_cannot_be_shared_stay_as_they_are(
    settings: MdnRnnSettings, precision: str, threads: int, three_threads: None
) -> None:
    model: Any = nn.Linear(1, 1)
    format_ = Precision(precision, CPU)
    with accelerated_mdnrnn_loss(model, model, settings, format_) as run:
        assert (run, torch.get_num_threads()) == (model, threads)
    assert torch.get_num_threads() == 3
    with accelerated_mdnrnn_loss(model, model, settings, format_, ranks=True) as run:
        assert (run, torch.get_num_threads()) == (model, 3)


def test_one_thread_stays_as_it_is() -> None:
    model: Any = nn.Linear(1, 1)
    with accelerated_mdnrnn_loss(model, model, MDNRNN, Precision("fp32", CPU)) as run:
        assert run is model
