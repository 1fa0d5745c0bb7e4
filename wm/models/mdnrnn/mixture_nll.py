"""How unlikely latents are under mixtures of Gaussians, with the gradient worked out beside it.

Left to autograd this is two dozen passes over arrays that no cache holds. Here a piece of the rows goes through all of
them at once, and what is kept for the backward pass is the gradient alone.
Shapes: N rows, Z latents, K components.
"""

import math
from typing import Any

import torch
from torch import Tensor

LOG_SIGMA = (-5.5, 3.0)
PIECE = 512  # rows that a CPU's cache holds


class MixtureNll(torch.autograd.Function):
    """The sum over rows of weight x negative log-likelihood, summed over the latents: a scalar in float32.

    `said` (3, K, Z, N): logits, means and log sigmas, which are clamped to `LOG_SIGMA`; `target` (Z, N);
    `weight` (N,).
    """

    @staticmethod
    def forward(ctx: Any, said: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        logits, mean, log_sigma = said.float().unbind(0)
        clamped = log_sigma.clamp(*LOG_SIGMA)
        inverse = clamped.neg().exp_()
        standard = (target - mean).mul_(inverse)
        square = standard.square()
        norm, prior = _normalise(logits.clone())
        likely, share = _normalise((logits - clamped).add_(square, alpha=-0.5))
        if ctx.needs_input_grad[0]:
            gradient = torch.empty_like(said)
            gradient[0] = prior.sub_(share).mul_(weight)
            share.mul_(weight)
            gradient[1] = standard.mul_(inverse).mul_(share).neg_()
            gradient[2] = share.addcmul_(share, square, value=-1).mul_(clamped == log_sigma)
            ctx.save_for_backward(gradient)
        return ((norm - likely).sum(0) * weight).sum() + 0.5 * math.log(2 * math.pi) * len(target) * weight.sum()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of `said`; target and weight have none."""
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[0], None, None


def _normalise(x: Tensor) -> tuple[Tensor, Tensor]:
    """logsumexp over the components, and the share that each has, in the place of x (K, Z, N)."""
    most = x.amax(0)
    total = x.sub_(most).exp_().sum(0)
    return most + total.log(), x.mul_(total.reciprocal())
