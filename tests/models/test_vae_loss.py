import pytest
import torch

from wm.models.vae.loss import VaeLoss, VaeLossTerms
from wm.models.vae.networks import Vae, build, to_images


def moving_square() -> torch.Tensor:
    frames = torch.zeros(16, 32, 32, 3, dtype=torch.uint8)
    for k in range(16):
        frames[k, 2 * k % 28 : 2 * k % 28 + 4, 10:14] = 255
    return frames


def make_loss(vae: Vae, sample: torch.Tensor, **changes: float) -> VaeLoss:
    settings = {
        "reconstruction_nats": 0.0,
        "pixel_weighting": 0.0,
        "position_targets": 0.0,
        "kl_tolerance": 0.5,
    } | changes
    return VaeLoss(vae, sample, **settings)


def normalized_vae(size: int = 32, latent: int = 4) -> Vae:
    torch.manual_seed(0)
    vae = build("small", size, 3, latent)
    vae.fit_normalization(moving_square())
    return vae


def test_without_extras_it_is_the_papers_loss() -> None:
    vae, frames, noise = normalized_vae(), moving_square(), torch.randn(16, 4)
    mean, logvar = vae.encode(frames)
    reconstructions = vae.decode(mean + noise * torch.exp(0.5 * logvar))
    error = (reconstructions - to_images(frames)).square().sum((1, 2, 3))
    kl = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, torch.exp(0.5 * logvar)), torch.distributions.Normal(0.0, 1.0)
    ).sum(1)
    by_definition = (error + kl.clamp(min=0.5 * 4)).mean()
    assert torch.allclose(make_loss(vae, frames)(frames, noise).total, by_definition, rtol=1e-4)


def test_the_kl_term_has_its_free_nats() -> None:
    loss = make_loss(normalized_vae(), moving_square(), kl_tolerance=100.0)(moving_square(), torch.zeros(16, 4))
    assert torch.isclose(loss.total, loss.error + 400.0)


def test_the_mean_image_costs_the_reconstruction_nats_whatever_the_contrast() -> None:
    for brightness in (30, 255):
        frames = (moving_square() > 0).to(torch.uint8) * brightness
        vae = normalized_vae()
        vae.fit_normalization(frames)
        torch.nn.init.zeros_(vae.expand.weight)
        torch.nn.init.zeros_(vae.expand.bias)
        for parameter in vae.decoder.parameters():  # type: ignore[union-attr]
            torch.nn.init.zeros_(parameter)
        loss = make_loss(vae, frames, reconstruction_nats=1000.0, pixel_weighting=0.5, kl_tolerance=0.0)(
            frames, torch.zeros(16, 4)
        )
        assert abs(loss.total.item() - loss.kl.item() - 1000) < 10


def train(settings: VaeLoss, steps: int) -> list[VaeLossTerms]:
    optimizer = torch.optim.Adam(settings.parameters(), 2e-3)
    losses = []
    for _ in range(steps):
        loss = settings(moving_square(), torch.randn(16, 4))
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        losses.append(loss)
    return losses


@pytest.mark.slow
def test_training_on_one_batch_learns_it() -> None:
    losses = train(make_loss(normalized_vae(), moving_square(), reconstruction_nats=1000.0), 80)
    assert losses[-1].error < 0.5 * losses[0].error


@pytest.mark.slow
def test_position_targets_make_positions_decodable() -> None:
    losses = train(make_loss(normalized_vae(), moving_square(), reconstruction_nats=1000.0, position_targets=100.0), 80)
    assert losses[-1].position_error < 0.5 * losses[0].position_error
