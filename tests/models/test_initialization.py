import torch

from wm.models.initialization import seeded_initialization


def weights(seed: int, *path: int | str) -> torch.Tensor:
    with seeded_initialization(seed, *path):
        return torch.nn.Linear(3, 3).weight.detach()


def test_weights_depend_on_seed_and_path_alone() -> None:
    first = weights(0, "vae", "init")
    torch.rand(7)
    assert torch.equal(first, weights(0, "vae", "init"))
    assert not torch.equal(first, weights(1, "vae", "init"))
    assert not torch.equal(first, weights(0, "mdnrnn", "init"))


def test_the_global_generator_is_left_as_it_was() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    weights(0, "vae")
    assert torch.equal(torch.rand(3), expected)
