"""What a Dreamer imagines, as pictures: a film strip of an open-loop prediction beside what happened."""

import numpy as np
import torch

from stages.online import to_batch
from wm.episodes.replay import Ring
from wm.models.dreamer.learner import Dreamer
from wm.models.dreamer.rssm import State
from wm.report.pictures import error_map, film_strip
from wm.seeding import generator

CONTEXT, AHEAD, COLUMNS = 8, 15, 8


@torch.inference_mode()
def open_loop_strip(model: Dreamer, ring: Ring, stack: int) -> bytes | None:
    """A PNG of 15 steps that follow the real actions without looking, after 8 steps that were seen: what happened, what
    was imagined, and the error. None if the replay has no window that long without an episode's end."""
    random = generator(0, "open loop")
    if not ring.starts(CONTEXT + AHEAD).sum():
        return None
    whole = None
    for _ in range(64):
        steps = ring.sample(1, CONTEXT + AHEAD, random, stack)
        if not steps.first[0, 1:].any():
            whole = steps
            break
    if whole is None:
        return None
    batch = to_batch(whole, torch.from_numpy(whole.frames), torch.device("cpu"))
    source = torch.Generator().manual_seed(0)
    world = model.world
    embeds = world.encoder(batch.frames[0, :CONTEXT])[None]
    states, _, _ = world.rssm.observe(embeds, batch.actions[:, :CONTEXT], batch.first[:, :CONTEXT], source)
    state = State(states.deter[:, -1], states.stoch[:, -1])
    imagined = []
    for step in range(CONTEXT, CONTEXT + AHEAD):
        state = world.rssm.imagine(state, batch.actions[:, step], source)
        imagined.append(world.picture(state.features)[0].numpy())
    chosen = np.unique(np.linspace(0, AHEAD - 1, COLUMNS).round().astype(int))
    real = whole.frames[0, CONTEXT:, ..., -model.form.channels :][chosen]
    drawn = np.stack(imagined)[chosen]
    captions = [f"{step + 1} ahead" for step in chosen]
    rows = [("what\nhappened", real), ("imagined", drawn), ("error x4", error_map(real, drawn))]
    return film_strip(rows, captions, "Following the real actions without looking, after 8 steps that were seen")
