"""What every M has in common: it remembers latents and actions in a state, and predicts the step that follows.

Shapes: B batch or N dreams, L steps, Z latents, A encoded action width, H hidden.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]
"""The recurrent state: tensors of B rows, all zeros before the first step. The first one is h (B, H), which C sees."""
Bounds = tuple[Tensor, Tensor] | None
"""The lowest and the highest value of each latent, (Z,) each."""


class Sample(NamedTuple):
    """A sample of the next step: `z` (N, Z), `reward` (N,), `end` (N,) the probability that the episode ended."""

    z: Tensor
    reward: Tensor
    end: Tensor


class OneStep(NamedTuple):
    """One-step predictions along sequences: the expected next latent `z` (B, L, Z) and the `nll` per dimension of the
    real one, `reward` and probability of the `end` (B, L), and h after each step, `hidden` (B, L, H)."""

    z: Tensor
    nll: Tensor
    reward: Tensor
    end: Tensor
    hidden: Tensor


class Part(NamedTuple):
    """Where windows lie in a batch that they are a part of: the number of the `first` one, and in how many windows of
    the whole batch each step exists, `steps` (L,)."""

    first: int
    steps: Tensor


class Cell(Protocol):
    """An M whose weights are final, step by step, with weights packed for a number of rows."""

    def step(self, z: Tensor, action: Tensor, state: State) -> State:
        """Remember latents z (N, Z) and encoded actions (N, A)."""

    def advance(
        self, z: Tensor, action: Tensor, state: State, temperature: float, random: torch.Generator, bounds: Bounds
    ) -> tuple[Sample, State]:
        """The same, and a sample of the next step with latents within the bounds."""


class Predictor(nn.Module, ABC):
    """M: `latent` and `hidden` are the widths of z and h. `loss` returns a named tuple of scalars, the first of which,
    `total`, is minimised. Given the `part` that its windows are of a batch, it returns their share of the batch's loss:
    the shares of all parts add up to it."""

    latent: int
    hidden: int
    loss: Callable[..., Any]

    @abstractmethod
    def initial_state(self, batch: int, device: torch.device | str = "cpu") -> State:
        """The state before the first step."""

    @abstractmethod
    def hidden_states(self, z: Tensor, action: Tensor) -> Tensor:
        """h (B, L, H) after every step of sequences from their start: z (B, L, Z), action (B, L, A)."""

    @abstractmethod
    def one_step(self, z: Tensor, action: Tensor, following: Tensor) -> OneStep:
        """Predictions of the latents `following` z (B, L, Z) along sequences from their start."""

    @abstractmethod
    def hidden_bounds(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest and the highest value of each unit of h, (H,) each, for latents between `low` and `high` (Z,)."""

    def clipped_apart(self) -> Sequence[nn.Module]:
        """The parts of the network whose gradients are clipped by a norm of their own."""
        return [self]
