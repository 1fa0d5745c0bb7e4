"""On a GPU the losses of V and M are replayed as CUDA graphs, which changes their speed and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from wm.actions import ActionSpace
from wm.settings import MdnRnnSettings, VaeSettings
from wm.training.cuda_graph import GraphedLoss, graphed_on_cuda
from wm.training.mdnrnn import mdnrnn_config, new_mdnrnn
from wm.training.precision import Precision
from wm.training.vae import new_vae, new_vae_loss

CUDA, ACTIONS, BATCH, LENGTH, LATENT = torch.device("cuda"), 3, 8, 6, 4
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def mdnrnn(network: str) -> tuple[nn.Module, Callable[..., Any], Callable[[int], list[Tensor]]]:
    settings = MdnRnnSettings(network=network, hidden=16, **({"units": 16} if network == "rollout" else {}))
    model = new_mdnrnn(mdnrnn_config(settings, LATENT, ActionSpace(count=ACTIONS)), 0).to(CUDA)

    def batch(number: int) -> list[Tensor]:
        random = torch.Generator().manual_seed(number)
        z = torch.randn(BATCH, LENGTH + 1, LATENT, generator=random)
        actions = torch.eye(ACTIONS)[torch.randint(ACTIONS, (BATCH, LENGTH), generator=random)]
        flat = torch.rand(BATCH, LENGTH, generator=random).round()
        latents = [z, 0.1 * z[:, :3], actions] if network == "rollout" else [z[:, :-1], actions, z[:, 1:]]
        return [part.to(CUDA) for part in (*latents, flat, 0.0 * flat, 1.0 + 0.0 * flat)]

    return model, model.loss, batch


def vae(network: str) -> tuple[nn.Module, Callable[..., Any], Callable[[int], list[Tensor]]]:
    settings = VaeSettings(network=network, latent=LATENT)

    def batch(number: int) -> list[Tensor]:
        random = torch.Generator().manual_seed(number)
        frames = torch.randint(0, 256, (BATCH, 64, 64, 3), dtype=torch.uint8, generator=random)
        return [frames.to(CUDA), torch.randn(BATCH, LATENT, generator=random).to(CUDA)]

    loss = new_vae_loss(settings, new_vae(settings, (64, 64, 3), 0).to(CUDA), batch(0)[0], 0)
    return loss, loss, batch


@needs_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("build", "network"),
    [(mdnrnn, "rollout"), (mdnrnn, "paper"), (vae, "small"), (vae, "attentive"), (vae, "paper")],
)
def test_a_replayed_loss_has_the_values_and_gradients_of_a_plain_one(
    build: Callable[..., Any], network: str, precision: str
) -> None:
    model, loss, batch = build(network)
    format_ = Precision(precision, CUDA)
    graphed = graphed_on_cuda(model, loss, MdnRnnSettings(), format_)
    assert isinstance(graphed, GraphedLoss)
    # The plain loss comes last: a graph is not recorded beside nodes that another stream has left.
    replayed, plain = ([step(model, run, batch(number), format_) for number in range(3)] for run in (graphed, loss))
    tolerance = 1e-4 if precision == "fp32" else 3e-2
    for (terms, gradient), (plain_terms, plain_gradient) in zip(replayed, plain, strict=True):
        torch.testing.assert_close(terms, plain_terms, rtol=tolerance, atol=tolerance)
        assert (gradient - plain_gradient).norm() < 2 * tolerance * plain_gradient.norm()


def step(model: nn.Module, run: Callable[..., Any], batch: list[Tensor], format_: Precision) -> tuple[Tensor, Tensor]:
    """The terms of the loss, and the gradient."""
    model.zero_grad(set_to_none=True)
    with format_.cast():
        terms = run(*batch)
    terms.total.backward()
    gradients = [part.grad.clone().flatten() for part in model.parameters() if part.grad is not None]
    return torch.stack([term.detach().float() for term in terms]), torch.cat(gradients)


def test_losses_that_a_graph_cannot_hold_stay_as_they_are() -> None:
    cpu, gpu = Precision("fp32", torch.device("cpu")), Precision("fp32", CUDA)
    model = nn.Linear(1, 1)
    assert graphed_on_cuda(model, model, MdnRnnSettings(), cpu) is model
    for settings in (MdnRnnSettings(accumulate=2), MdnRnnSettings(pieces=8), MdnRnnSettings(compile=True)):
        assert graphed_on_cuda(model, model, settings, gpu) is model
    assert graphed_on_cuda(model, model, MdnRnnSettings(), gpu, ranks=True) is model
