import torch

from wm.training.vae import FRAMES_PER_BATCH, mean_terms


def test_every_frame_of_a_validation_counts_alike() -> None:
    frames = torch.randn(FRAMES_PER_BATCH + 6, 3)
    numbers = []

    def terms(number: int, part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        numbers.append(number)
        return part.mean(), part.square().mean()

    means = mean_terms(frames, terms)
    assert torch.allclose(torch.tensor(means), torch.stack([frames.mean(), frames.square().mean()]), atol=1e-6)
    assert numbers == [0, 1]
