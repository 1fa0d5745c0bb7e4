"""On a GPU the losses of V and M are replayed as CUDA graphs, which changes their speed and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.losses import mdnrnn, step, vae
from wm.settings import MdnRnnSettings
from wm.training.cuda_graph import GraphedLoss, graphed_on_cuda
from wm.training.mdnrnn import accelerated_mdnrnn_loss
from wm.training.precision import Precision

CUDA = torch.device("cuda")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("build", "network"),
    [(mdnrnn, "rollout"), (mdnrnn, "paper"), (vae, "small"), (vae, "attentive"), (vae, "paper")],
)
def test_a_replayed_loss_has_the_values_and_gradients_of_a_plain_one(
    build: Callable[..., Any], network: str, precision: str
) -> None:
    model, loss, batch = build(network, CUDA)
    format_ = Precision(precision, CUDA)
    graphed = graphed_on_cuda(model, loss, format_, 1)
    assert isinstance(graphed, GraphedLoss)
    # The plain loss comes last: a graph is not recorded beside nodes that another stream has left.
    replayed, plain = ([step(model, run, batch(number), format_) for number in range(3)] for run in (graphed, loss))
    tolerance = 1e-4 if precision == "fp32" else 3e-2
    for (terms, gradient), (plain_terms, plain_gradient) in zip(replayed, plain, strict=True):
        torch.testing.assert_close(terms, plain_terms, rtol=tolerance, atol=tolerance)
        assert (gradient - plain_gradient).norm() < 2 * tolerance * plain_gradient.norm()


def test_losses_that_a_graph_cannot_hold_stay_as_they_are() -> None:
    cpu, gpu = Precision("fp32", torch.device("cpu")), Precision("fp32", CUDA)
    model: Any = nn.Linear(1, 1)
    assert graphed_on_cuda(model, model, cpu, 1) is model
    for settings in (MdnRnnSettings(accumulate=2), MdnRnnSettings(pieces=8), MdnRnnSettings(compile=True)):
        with accelerated_mdnrnn_loss(model, model, settings, gpu) as run:
            assert run is model
    with accelerated_mdnrnn_loss(model, model, MdnRnnSettings(), gpu, ranks=True) as run:
        assert run is model
    with accelerated_mdnrnn_loss(model, model, MdnRnnSettings(), gpu) as run:
        assert isinstance(run, GraphedLoss)
