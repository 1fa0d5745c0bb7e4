"""What a Dreamer imagines, as pictures: a film strip of an open-loop prediction beside what happened."""

import numpy as np
import torch

from stages.online import to_batch
from wm.episodes.replay import Ring, Steps
from wm.models.dreamer.learner import Dreamer
from wm.models.dreamer.rssm import State
from wm.report.pictures import error_map, film_strip
from wm.seeding import generator

LENGTHS = ((8, 15), (2, 5))  # steps that are seen and steps ahead; fewer where episodes are short
COLUMNS, TRIES = 8, 256


def _window(ring: Ring, context: int, ahead: int, stack: int) -> tuple[Steps, int, int] | None:
    """Steps of one episode, and how many of them are seen and how many follow."""
    random = generator(0, "open loop")
    for _ in range(TRIES if ring.starts(context + ahead).sum() else 0):
        steps = ring.sample(1, context + ahead, random, stack)
        if not steps.first[0, 1:].any():
            return steps, context, ahead
    return None


@torch.inference_mode()
def open_loop_strip(model: Dreamer, ring: Ring, stack: int) -> bytes | None:
    """A PNG of 15 steps that follow the real actions without looking, after 8 steps that were seen: what happened, what
    was imagined, and the error. None if the replay has no window that long without an episode's end."""
    found = next((found for lengths in LENGTHS if (found := _window(ring, *lengths, stack)) is not None), None)
    if found is None:
        return None
    whole, context, ahead = found
    batch = to_batch(whole, torch.from_numpy(whole.frames), torch.device("cpu"))
    source = torch.Generator().manual_seed(0)
    world = model.world
    embeds = world.encoder(batch.frames[0, :context])[None]
    states, _, _ = world.rssm.observe(embeds, batch.actions[:, :context], batch.first[:, :context], source)
    state = State(states.deter[:, -1], states.stoch[:, -1])
    imagined = []
    for step in range(context, context + ahead):
        state = world.rssm.imagine(state, batch.actions[:, step], source)
        imagined.append(world.picture(state.features)[0].numpy())
    chosen = np.unique(np.linspace(0, ahead - 1, COLUMNS).round().astype(int))
    real = whole.frames[0, context:, ..., -model.form.channels :][chosen]
    drawn = np.stack(imagined)[chosen]
    captions = [f"{step + 1} ahead" for step in chosen]
    rows = [("what\nhappened", real), ("imagined", drawn), ("error x4", error_map(real, drawn))]
    return film_strip(rows, captions, f"Following the real actions without looking, after {context} steps")
