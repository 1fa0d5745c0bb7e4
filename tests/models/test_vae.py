import pytest
import torch

from wm.errors import UsageProblem
from wm.models.vae.networks import (
    FEATURES,
    HEADS,
    AttentiveVae,
    PaperVae,
    build,
    decoder_kernels,
    encoder_sides,
    to_frames,
)


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_at_64_pixels_it_is_the_papers_network() -> None:
    assert parameters(PaperVae(64, 3, 32)) == 4_348_547
    assert parameters(PaperVae(64, 3, 64)) == 4_446_915
    assert encoder_sides(64) == [31, 14, 6, 2]
    assert decoder_kernels(64, 4) == (5, 5, 6, 6)


def test_the_small_network_is_a_twentieth_of_it() -> None:
    assert parameters(build("small", 64, 3, 32)) == 225_584


@pytest.mark.parametrize("network", ["small", "attentive", "paper"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", range(32, 129, 16))
def test_reconstructions_have_the_size_of_frames(size: int, channels: int, network: str) -> None:
    model = build(network, size, channels, 8)
    frames = torch.randint(0, 256, (2, size, size, channels), dtype=torch.uint8)
    mean, logvar = model.encode(frames)
    assert mean.shape == logvar.shape == (2, 8)
    assert to_frames(model.decode(mean)).shape == frames.shape


@pytest.mark.parametrize("size", [40, 16, 144])
def test_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(UsageProblem, match="multiple of 16 from 32 to 128"):
        build("paper", size, 3, 32)


def test_the_matrix_product_is_the_transposed_convolution_of_one_pixel() -> None:
    model = PaperVae(64, 3, 8)
    z = torch.randn(3, 8)
    x = model.expand(z)[:, :, None, None]
    for number, layer in enumerate(model.deconvolutions):
        x = layer(x if number == 0 else torch.relu(x))
    by_definition = torch.sigmoid(x + torch.logit(model.mean_image, eps=1e-3))
    assert torch.allclose(model.decode(z), by_definition, atol=1e-5)


@pytest.mark.parametrize("network", ["small", "attentive", "paper"])
def test_an_untrained_decoder_returns_the_mean_image(network: str) -> None:
    frames = torch.randint(0, 256, (50, 32, 32, 3), dtype=torch.uint8)
    model = build(network, 32, 3, 8)
    model.fit_normalization(frames)
    mean = frames.float().mean(0).permute(2, 0, 1) / 255
    assert (model.decode(torch.zeros(1, 8))[0] - mean).abs().mean() < 0.02


def test_attention_features_do_not_depend_on_the_position_of_an_object() -> None:
    torch.manual_seed(0)
    model = build("attentive", 64, 3, 8)
    frames = torch.full((2, 64, 64, 3), 20, dtype=torch.uint8)
    patch = torch.randint(0, 256, (8, 8, 3), dtype=torch.uint8)
    frames[0, 10:18, 10:18], frames[1, 40:48, 30:38] = patch, patch  # moved by (20, 30) pixels, whole 2x2 blocks
    assert isinstance(model, AttentiveVae)
    with torch.no_grad():
        model.attention.weight.mul_(1e4)  # each head attends to one position
        model.mean_image.fill_(20 / 255)  # or the picture's edge would be a patch, too
        features_of_objects = model._encoder_features(
            (frames.permute(0, 3, 1, 2).float() / 255 - model.mean_image) / model.image_std
        )
    features, places = features_of_objects[:, -HEADS * (FEATURES + 2) :].split([HEADS * FEATURES, HEADS * 2], dim=1)
    assert torch.allclose(features[0], features[1], atol=1e-4)
    moved = (places[1] - places[0]).unflatten(0, (HEADS, 2)) * 31.5  # half the side, in pixels
    attending = moved.abs().sum(1) > 1  # a head may attend to the empty ground instead
    assert attending.any()
    assert torch.allclose(moved[attending], torch.tensor([20.0, 30.0]), atol=1.0)
