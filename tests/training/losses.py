"""Small models with their losses and batches, for the tests of what computes losses faster."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from wm.actions import ActionSpace
from wm.settings import MdnRnnSettings, VaeSettings
from wm.training.mdnrnn import mdnrnn_config, new_mdnrnn
from wm.training.precision import Precision
from wm.training.vae import new_vae, new_vae_loss

ACTIONS, BATCH, LENGTH, LATENT = 3, 8, 6, 4

Built = tuple[Any, Callable[..., Any], Callable[[int], list[Tensor]]]
"""A model, its loss, and the arguments of the loss for a batch with some number."""


def mdnrnn(network: str, device: torch.device) -> Built:
    """M, whose last window ends early."""
    settings = MdnRnnSettings(network=network, hidden=16, **({"units": 16} if network == "rollout" else {}))
    model = new_mdnrnn(mdnrnn_config(settings, LATENT, ActionSpace(count=ACTIONS)), 0).to(device)
    mask = torch.ones(BATCH, LENGTH)
    mask[-1, -2:] = 0.0

    def batch(number: int) -> list[Tensor]:
        random = torch.Generator().manual_seed(number)
        z = torch.randn(BATCH, LENGTH + 1, LATENT, generator=random)
        actions = torch.eye(ACTIONS)[torch.randint(ACTIONS, (BATCH, LENGTH), generator=random)]
        flat = torch.rand(BATCH, LENGTH, generator=random).round()
        latents = [z, 0.1 * z[:, :3], actions] if network == "rollout" else [z[:, :-1], actions, z[:, 1:]]
        return [part.to(device) for part in (*latents, flat, 0.0 * flat, mask)]

    return model, model.loss, batch


def vae(network: str, device: torch.device) -> Built:
    """V in its loss."""
    settings = VaeSettings(network=network, latent=LATENT)

    def batch(number: int) -> list[Tensor]:
        random = torch.Generator().manual_seed(number)
        frames = torch.randint(0, 256, (BATCH, 64, 64, 3), dtype=torch.uint8, generator=random)
        return [frames.to(device), torch.randn(BATCH, LATENT, generator=random).to(device)]

    loss = new_vae_loss(settings, new_vae(network, LATENT, (64, 64, 3), 0).to(device), batch(0)[0], 0)
    return loss, loss, batch


def step(model: nn.Module, run: Callable[..., Any], batch: list[Tensor], format_: Precision) -> tuple[Tensor, Tensor]:
    """The terms of the loss, and the gradient."""
    model.zero_grad(set_to_none=True)
    with format_.cast():
        terms = run(*batch)
    terms[0].backward()
    gradients = [part.grad.clone().flatten() for part in model.parameters() if part.grad is not None]
    return torch.stack([term.detach().float() for term in terms]), torch.cat(gradients)
