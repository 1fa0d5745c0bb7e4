"""How often M's dreams pay and end, beside what really followed the same starts and actions.

A policy learns the game that it is shown: where rewards or ends are too rare or too frequent, it learns another one.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.dreams.initial_states import CONTEXT, latent_bounds
from wm.episodes.latents import Latents
from wm.episodes.windows import Windows
from wm.models.mdnrnn.cell import make_cell
from wm.models.mdnrnn.predictor import Predictor
from wm.stats import MIN_EVENTS
from wm.units import format_rate

# 25,600 dreamt steps: an event that happens once in a thousand is seen 25 times.
STARTS, STEPS = 512, 50  # dreams, and their steps
FACTOR = 2.0  # between the rates, above which dreams are another game
EVENTS = {"positive": "positive rewards", "negative": "negative rewards", "end": "ends"}


def judge_events(
    model: Predictor, latents: Latents, episodes: NDArray[np.bool_], temperature: float = 1.0, steps: int = STEPS
) -> dict[str, Any]:
    """The rates of events, `rates`, and a `warning` where they are another game's; empty where they are not."""
    rates = event_rates(model, latents, episodes, temperature, steps)
    return {"rates": rates, "warning": event_warning(rates, temperature)}


@torch.inference_mode()
def event_rates(
    model: Predictor, latents: Latents, episodes: NDArray[np.bool_], temperature: float = 1.0, steps: int = STEPS
) -> dict[str, dict[str, float]]:
    """By event its rate per 1,000 steps in the `dream` and in the `real` continuation, and the `events` that a rate is
    based on, the more of both. Dreams of so many steps start anywhere in the episodes of the mask, and are given their
    actions. Where those have fewer steps than all dreams, dreams pass the same ones, and an event counts once.

    A reward counts from half of the usual one, the median of those that are not 0.
    """
    starts = STARTS * STEPS // steps  # as many steps in all
    batch = Windows(latents, episodes, CONTEXT + steps, starts, 0, CONTEXT).at(0)
    z, actions, mask = (torch.from_numpy(part) for part in (batch.means, batch.actions, batch.mask))
    bounds = latent_bounds(latents)
    # A fixed seed: figures of two Ms differ by the Ms alone.
    cell, state, random = make_cell(model, len(z)), model.initial_state(len(z)), torch.Generator().manual_seed(0)
    for step in range(CONTEXT):
        state = tuple(part * mask[:, step, None] for part in cell.step(z[:, step], actions[:, step], state))
    current, rewards, ends = z[:, CONTEXT], [], []
    for step in range(CONTEXT, CONTEXT + steps):
        sample, state = cell.advance(current, actions[:, step], state, temperature, random, bounds)
        current = sample.z
        rewards.append(sample.reward)
        ends.append(sample.end)
    real = mask[:, CONTEXT:].double()
    end = torch.stack(ends, 1).double()
    dreamt = real * torch.cat([torch.ones(len(z), 1), torch.cumprod(1 - end, 1)[:, :-1]], 1)  # those not ended before
    paid = np.abs(latents.rewards[latents.rewards != 0])
    # Half of 1 where no reward was ever paid, so that M's small errors are none.
    usual = float(np.median(paid)) / 2 if len(paid) else 0.5
    dream_reward, real_reward = torch.stack(rewards, 1), torch.from_numpy(batch.rewards[:, CONTEXT:])
    counts = {
        "positive": ((dream_reward > usual) * dreamt, (real_reward > usual) * real),
        "negative": ((dream_reward < -usual) * dreamt, (real_reward < -usual) * real),
        "end": (end * dreamt, torch.from_numpy(batch.ends[:, CONTEXT:]) * real),
    }
    rows = int((latents.ends - latents.starts)[episodes].sum())
    once = min(1.0, rows / float(real.sum()))
    return {
        name: {
            "dream": 1000 * float(dream.sum() / dreamt.sum()),
            "real": 1000 * float(happened.sum() / real.sum()),
            "events": once * float(max(dream.sum(), happened.sum())),
        }
        for name, (dream, happened) in counts.items()
    }


def format_event_rates(rates: dict[str, dict[str, float]]) -> str:
    """The rates in one line; events that never happened and were hardly dreamt are left out."""
    parts = [
        f"{EVENTS[name]} {format_rate(rate['dream'])} (real {format_rate(rate['real'])})"
        for name, rate in rates.items()
        # 0.05 per 1,000 steps are about one event in all the dreams.
        if rate["real"] > 0 or rate["dream"] > 0.05
    ]
    return "per 1,000 steps of dreams: " + (", ".join(parts) or "neither rewards nor ends")


def event_warning(rates: dict[str, Any], temperature: float) -> str:
    """A sentence about the events whose rate in dreams of this temperature is not within a factor of two of the real
    one; empty without any. Fewer than ten events say nothing."""
    wrong = [
        f"{EVENTS[name]} {format_rate(rate['dream'])} instead of {format_rate(rate['real'])}"
        for name, rate in rates.items()
        # 1e-9: where nothing really happens any dreamt rate is beyond the factor.
        if rate["events"] >= MIN_EVENTS and not 1 / FACTOR <= rate["dream"] / max(rate["real"], 1e-9) <= FACTOR
    ]
    if not wrong:
        return ""
    return (
        f"Dreams at temperature {temperature:g} have {' and '.join(wrong)} per 1,000 steps; train M longer, or on more "
        "episodes, before a policy learns in them."
    )
