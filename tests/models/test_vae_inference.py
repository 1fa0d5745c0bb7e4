import pytest
import torch

from wm.models.vae.inference import InferenceEncoder
from wm.models.vae.networks import build


@pytest.mark.parametrize("network", ["small", "attentive", "paper"])
@pytest.mark.parametrize(("size", "channels"), [(32, 3), (64, 1), (96, 3)])
def test_the_inference_encoder_returns_the_encoders_mean(network: str, size: int, channels: int) -> None:
    torch.manual_seed(0)
    vae = build(network, size, channels, 8).requires_grad_(False)
    frames = torch.randint(0, 256, (8, size, size, channels), dtype=torch.uint8)
    vae.fit_normalization(frames)
    vae.image_std.mul_(0.02)  # so that some pixels reach the limit of the contrast
    for rows in (8, 3):
        means = InferenceEncoder(vae, rows).encode(frames)
        assert torch.allclose(means, vae.encode(frames)[0], rtol=1e-4, atol=1e-4)
