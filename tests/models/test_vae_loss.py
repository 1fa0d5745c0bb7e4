import torch

from wm.models.vae.loss import VaeLoss, VaeLossTerms
from wm.models.vae.networks import Vae, build, pictures


def moving_square() -> torch.Tensor:
    frames = torch.zeros(16, 32, 32, 3, dtype=torch.uint8)
    for k in range(16):
        frames[k, 2 * k % 28 : 2 * k % 28 + 4, 10:14] = 255
    return frames


def objective(vae: Vae, sample: torch.Tensor, **changes: float) -> VaeLoss:
    chosen = {"pixels": 0.0, "rarity": 0.0, "moments": 0.0, "kl_tolerance": 0.5} | changes
    return VaeLoss(vae, sample, **chosen)


def seen(size: int = 32, latent: int = 4) -> Vae:
    torch.manual_seed(0)
    vae = build("small", size, 3, latent)
    vae.look_at(moving_square())
    return vae


def test_without_extras_it_is_the_papers_loss() -> None:
    vae, frames, noise = seen(), moving_square(), torch.randn(16, 4)
    mean, logvar = vae.encode(frames)
    drawn = vae.decode(mean + noise * torch.exp(0.5 * logvar))
    error = (drawn - pictures(frames)).square().sum((1, 2, 3))
    divergence = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, torch.exp(0.5 * logvar)), torch.distributions.Normal(0.0, 1.0)
    ).sum(1)
    by_definition = (error + divergence.clamp(min=0.5 * 4)).mean()
    assert torch.allclose(objective(vae, frames)(frames, noise).total, by_definition, rtol=1e-4)


def test_the_divergence_has_its_free_nats() -> None:
    loss = objective(seen(), moving_square(), kl_tolerance=100.0)(moving_square(), torch.zeros(16, 4))
    assert torch.isclose(loss.total, loss.error + 400.0)


def test_the_mean_picture_costs_what_pixels_says_be_the_picture_calm_or_busy() -> None:
    for brightness in (30, 255):
        frames = (moving_square() > 0).to(torch.uint8) * brightness
        vae = seen()
        vae.look_at(frames)
        torch.nn.init.zeros_(vae.expand.weight)
        torch.nn.init.zeros_(vae.expand.bias)
        for parameter in vae.decoder.parameters():  # type: ignore[union-attr]
            torch.nn.init.zeros_(parameter)
        loss = objective(vae, frames, pixels=1000.0, rarity=0.5, kl_tolerance=0.0)(frames, torch.zeros(16, 4))
        assert abs(loss.total.item() - loss.divergence.item() - 1000) < 10


def train(chosen: VaeLoss, steps: int) -> list[VaeLossTerms]:
    optimizer = torch.optim.Adam(chosen.parameters(), 2e-3)
    found = []
    for _ in range(steps):
        loss = chosen(moving_square(), torch.randn(16, 4))
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        found.append(loss)
    return found


def test_training_on_one_batch_learns_it() -> None:
    found = train(objective(seen(), moving_square(), pixels=1000.0), 150)
    assert found[-1].error < 0.5 * found[0].error


def test_moments_make_z_tell_where_things_are() -> None:
    found = train(objective(seen(), moving_square(), pixels=1000.0, moments=100.0), 150)
    assert found[-1].moments < 0.5 * found[0].moments
