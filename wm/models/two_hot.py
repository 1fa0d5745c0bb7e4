"""Scalars predicted as distributions over bins, as in DreamerV3: the Dreamer's rewards and values, and M's rewards."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def symlog(x: Tensor) -> Tensor:
    """sign(x) ln(|x| + 1)."""
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """The inverse of symlog."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """A scalar predicted as a distribution over symexp-spaced bins: `loss` trains it, `mean` is the prediction.

    The number of bins is odd and they are symmetric about 0, so that an untrained head predicts exactly 0.
    """

    bin_values: Tensor

    # 20 as in DreamerV3: symexp(20) is 5e8, more than any return.
    def __init__(self, layers: nn.Module, bins: int, limit: float = 20.0) -> None:
        """`layers` has an output for each bin; the outermost bins are symexp(-limit) and symexp(limit)."""
        super().__init__()
        self.layers = layers
        self.register_buffer("bin_values", symexp(torch.linspace(-limit, limit, bins)), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Log-probabilities of the bins, in float32."""
        return functional.log_softmax(self.layers(features).float(), -1)

    def mean(self, log_probs: Tensor) -> Tensor:
        """The mean. Probabilities of opposite bins are subtracted first: values up to 5e8 would cancel badly."""
        probs, half = log_probs.exp(), len(self.bin_values) // 2
        positive, negative = probs[..., half + 1 :], probs[..., :half].flip(-1)
        return ((positive - negative) * self.bin_values[half + 1 :]).sum(-1)

    def loss(self, log_probs: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy with the two bins that enclose the target, each weighted by its closeness."""
        target = target.clamp(self.bin_values[0], self.bin_values[-1])
        upper = torch.searchsorted(self.bin_values, target).clamp(1, len(self.bin_values) - 1)
        lower = upper - 1
        low, high = self.bin_values[lower], self.bin_values[upper]
        weight = (target - low) / (high - low)
        lower_log, upper_log = (log_probs.gather(-1, bin_.unsqueeze(-1)).squeeze(-1) for bin_ in (lower, upper))
        return -(lower_log * (1 - weight) + upper_log * weight)
