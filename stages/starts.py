"""Where dreams begin: real encoded frames, with M warmed up on what came before each."""

import numpy as np
import torch

from stages.encode import read_latents
from stages.session import Session
from stages.trained import TrainedMdnRnn
from wm.artifacts import runs
from wm.dreams import Starts, warm_starts
from wm.episodes.latents import Latents
from wm.errors import RecipeMismatch
from wm.seeding import generator

CONTEXT = 8


def load_latents(session: Session, mdnrnn: TrainedMdnRnn) -> Latents:
    """The latents M was trained on. Raises MissingInput if they are gone or others."""
    folder = session.run_path / "latents"
    artifact = runs.load(folder, "latents", session.command("train-mdnrnn"))
    if artifact.fingerprint != mdnrnn.artifact.inputs["latents"]:
        raise RecipeMismatch(f"{folder} are not the latents M was trained on; run `{session.command('train-mdnrnn')}`.")
    return read_latents(folder)


def load_starts(session: Session, mdnrnn: TrainedMdnRnn, count: int = 1024) -> Starts:
    """Real encoded frames, M warmed up on the steps before each: places where dreams may begin."""
    latents = load_latents(session, mdnrnn)
    lengths = latents.ends - latents.starts
    random = generator(session.seed, "starts")
    episodes = random.choice(len(lengths), count, p=lengths / lengths.sum())
    context = min(CONTEXT, int(lengths.min()) - 2)
    first = latents.starts[episodes] + random.integers(0, lengths[episodes] - context - 1)
    rows = first[:, None] + np.arange(context + 1)
    actions = latents.space.encode(latents.actions[rows[:, :-1]])
    return warm_starts(mdnrnn.model, torch.from_numpy(latents.means[rows]), torch.from_numpy(actions))
