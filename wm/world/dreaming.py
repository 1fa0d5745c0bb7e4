"""A dream along given actions, from a real start."""

import math
import operator
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from wm.arguments import as_array, whole
from wm.dreams.env import Dreams
from wm.dreams.initial_states import CONTEXT, initial_states_at
from wm.dreams.view import decode
from wm.episodes.latents import Latents
from wm.errors import UsageProblem, shown
from wm.pretrained import TrainedMdnRnn, TrainedVae
from wm.seeding import generator, integer


@dataclass(frozen=True)
class Dream:
    """T dreamt steps: `frames` (T + 1, S, S, C) uint8, `latents` (T + 1, Z) and `hidden` (T + 1, H). Their row 0 is the
    real start, as V shows it.

    `rewards` (T,) are those M expects. `ends` (T,) are the probabilities that an action ends the episode; the dream
    goes on, and what follows a likely end was never in M's data. `start` is (episode, step) of the real start.
    """

    frames: NDArray[np.uint8]
    latents: NDArray[np.float32]
    hidden: NDArray[np.float32]
    rewards: NDArray[np.float32]
    ends: NDArray[np.float32]
    start: tuple[int, int]

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        return f"Dream(steps={len(self)}, start={self.start})"


@torch.inference_mode()
def dream_along(
    vae: TrainedVae,
    mdnrnn: TrainedMdnRnn,
    latents: Latents,
    bounds: tuple[torch.Tensor, torch.Tensor],
    actions: ArrayLike,
    start: tuple[int, int] | None,
    seed: int,
    temperature: float,
) -> Dream:
    """What follows `actions` from `start`, a step of a real episode; None: drawn from `seed`, as M's samples are.
    Latents stay within `bounds`, (Z,) each."""
    temperature = checked_temperature(temperature)
    space, seed, chosen = mdnrnn.space, whole("seed", seed, 0), as_array("actions", actions)
    space.require(chosen)
    episode, step = _drawn_start(latents, seed) if start is None else _checked_start(latents, start)
    row = np.array([latents.starts[episode] + step])
    initial = initial_states_at(latents, mdnrnn, row, min(step, CONTEXT), bounds)
    dreams = Dreams(mdnrnn.model, initial, temperature, integer(seed, "dream along actions"))
    rows = [(dreams.z, dreams.hidden)]
    outcomes = [(torch.zeros(0), torch.zeros(0))]
    for encoded in torch.from_numpy(space.encode(chosen)):
        sample = dreams.advance(encoded[None])
        rows.append((sample.z, dreams.hidden))
        outcomes.append((sample.reward, sample.end))
    z, hidden = (torch.cat(column) for column in zip(*rows, strict=True))
    rewards, ends = (torch.cat(column).numpy() for column in zip(*outcomes, strict=True))
    return Dream(decode(vae.model, z), z.numpy(), hidden.numpy(), rewards, ends, (episode, step))


def checked_temperature(temperature: float) -> float:
    """The temperature as a float. Raises UsageProblem unless M can sample at it."""
    try:
        value = float(temperature) if isinstance(temperature, Real) and not isinstance(temperature, bool) else 0.0
    except OverflowError:
        value = math.inf
    if not 0 < value < math.inf:
        raise UsageProblem(f"temperature is {shown(temperature)}; expected a number above 0, such as 1.0.")
    return value


def _drawn_start(latents: Latents, seed: int) -> tuple[int, int]:
    """An episode, and a step of it that has an action."""
    lengths = latents.ends - latents.starts - 1
    # One draw over all steps, so that long episodes are chosen as often as their steps are.
    row = int(generator(seed, "start of a dream").integers(lengths.sum()))
    episode = int(np.searchsorted(np.cumsum(lengths), row, side="right"))
    return episode, row - int(lengths[:episode].sum())


def _checked_start(latents: Latents, start: tuple[int, int]) -> tuple[int, int]:
    """The start, if it is one. Raises UsageProblem otherwise."""
    try:
        episode, step = map(operator.index, start)
    except (TypeError, ValueError, RuntimeError):  # the last of a tensor
        raise UsageProblem(f"start is {shown(start)}; expected an episode and a step of it, such as (0, 3).") from None
    if not 0 <= episode < len(latents.ends):
        raise UsageProblem(f"start is episode {episode}; M was trained on the episodes 0 to {len(latents.ends) - 1}.")
    last = int(latents.ends[episode] - latents.starts[episode]) - 1
    if not 0 <= step <= last:
        raise UsageProblem(f"start is step {step} of episode {episode}, which has the steps 0 to {last}.")
    return episode, step
