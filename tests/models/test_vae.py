import pytest
import torch

from wm.errors import UsageProblem
from wm.models.vae import ConvVae, decoder_kernels, encoder_sides, to_frames


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_at_64_pixels_it_is_the_papers_network() -> None:
    assert parameters(ConvVae(64, 3, 32)) == 4_348_547
    assert parameters(ConvVae(64, 3, 64)) == 4_446_915
    assert encoder_sides(64) == [31, 14, 6, 2]
    assert decoder_kernels(64, 4) == (5, 5, 6, 6)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", range(32, 129, 16))
def test_every_size_comes_back_as_it_went_in(size: int, channels: int) -> None:
    model = ConvVae(size, channels, 8)
    frames = torch.randint(0, 256, (2, size, size, channels), dtype=torch.uint8)
    mean, logvar = model.encode(frames)
    assert mean.shape == logvar.shape == (2, 8)
    assert to_frames(model.decode(mean)).shape == frames.shape


@pytest.mark.parametrize("size", [40, 16, 144])
def test_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(UsageProblem, match="multiple of 16 from 32 to 128"):
        ConvVae(size, 3, 32)


def test_the_matrix_product_is_the_transposed_convolution_of_one_pixel() -> None:
    model = ConvVae(64, 3, 8)
    z = torch.randn(3, 8)
    x = model.expand(z)[:, :, None, None]
    for number, layer in enumerate(model.deconvolutions):
        x = layer(x if number == 0 else torch.relu(x))
    by_definition = torch.sigmoid(x + torch.logit(model.background, eps=1e-3))
    assert torch.allclose(model.decode(z), by_definition, atol=1e-5)


def test_an_untrained_decoder_draws_the_mean_picture() -> None:
    frames = torch.randint(0, 256, (50, 32, 32, 3), dtype=torch.uint8)
    model = ConvVae(32, 3, 8)
    model.look_at(frames)
    mean = frames.float().mean(0).permute(2, 0, 1) / 255
    assert (model.decode(torch.zeros(1, 8))[0] - mean).abs().mean() < 0.02


def test_the_divergence_has_its_free_nats() -> None:
    model = ConvVae(32, 3, 4)
    frames = torch.zeros(2, 32, 32, 3, dtype=torch.uint8)
    loss = model.loss(frames, torch.zeros(2, 4), torch.ones(()), kl_tolerance=100.0)
    assert torch.isclose(loss.total, loss.error + 400.0)


def test_training_on_one_batch_learns_it() -> None:
    torch.manual_seed(0)
    frames = torch.zeros(16, 32, 32, 3, dtype=torch.uint8)
    for k in range(16):
        frames[k, 2 * k % 28 : 2 * k % 28 + 4, 10:14] = 255
    model = ConvVae(32, 3, 4)
    model.look_at(frames)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    errors = []
    for _ in range(150):
        loss = model.loss(frames, torch.randn(16, 4), torch.tensor(100.0), 0.5)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        errors.append(loss.error.item())
    assert errors[-1] < 0.5 * errors[0]
