"""Where dreams begin: real encoded frames, with M warmed up on what came before each."""

import numpy as np
import torch
from numpy.typing import NDArray

from stages.session import Session
from wm.artifacts import runs
from wm.dreams.env import InitialStates, warm_starts
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents, join, read_latents
from wm.errors import RecipeMismatch
from wm.pretrained import TrainedMdnRnn
from wm.seeding import generator

CONTEXT = 8  # real steps before a dream
COMMON = (0.5, 99.5)  # percentiles of V's latents between which dreams stay


def load_latents(session: Session, mdnrnn: TrainedMdnRnn) -> Latents:
    """The latents M was trained on. Raises MissingInput if they are gone or others."""
    return join(_parts(session, mdnrnn))


def load_newest_latents(session: Session, mdnrnn: TrainedMdnRnn) -> Latents:
    """Those of the dataset whose name comes last, which is the newest round's."""
    return _parts(session, mdnrnn)[-1]


def newest_frames(session: Session, mdnrnn: TrainedMdnRnn) -> FrameReader | None:
    """The frames that the newest round's latents were made of; None if no --data has them."""
    folder = session.run_path / _names(mdnrnn)[-1]
    made_of = runs.load(folder, "latents", session.command("train-mdnrnn")).inputs["episodes"]
    datasets = (Dataset.open(path) for path in session.data_paths if path.exists())
    return next((FrameReader(dataset) for dataset in datasets if dataset.fingerprint == made_of), None)


def _names(mdnrnn: TrainedMdnRnn) -> list[str]:
    return [name for name in mdnrnn.artifact.inputs if name.startswith("latents")]


def _parts(session: Session, mdnrnn: TrainedMdnRnn) -> list[Latents]:
    parts = []
    for name in _names(mdnrnn):
        folder = session.run_path / name
        made = runs.load(folder, "latents", session.command("train-mdnrnn"))
        if made.fingerprint != mdnrnn.artifact.inputs[name]:
            again = session.command("train-mdnrnn")
            raise RecipeMismatch(f"{folder} are not the latents M was trained on; run `{again}`.")
        parts.append(read_latents(folder))
    return parts


def sample_initial_states(session: Session, mdnrnn: TrainedMdnRnn, count: int = 1024) -> InitialStates:
    """Real encoded frames from anywhere in the episodes, M warmed up on the steps before each."""
    latents = load_latents(session, mdnrnn)
    lengths = latents.ends - latents.starts
    random = generator(session.seed, "starts")
    episodes = random.choice(len(lengths), count, p=lengths / lengths.sum())
    context = min(CONTEXT, int(lengths.min()) - 2)
    first = latents.starts[episodes] + random.integers(0, lengths[episodes] - context - 1)
    return initial_states_at(latents, mdnrnn, first + context, context)


def early_initial_states(latents: Latents, mdnrnn: TrainedMdnRnn) -> InitialStates:
    """The frames a few steps into every episode. Not the very first: Pong's is drawn in other colours, and M has seen
    it but once in each episode."""
    context = min(CONTEXT, int((latents.ends - latents.starts).min()) - 2)
    return initial_states_at(latents, mdnrnn, latents.starts + context, context)


def initial_states_at(latents: Latents, mdnrnn: TrainedMdnRnn, rows: NDArray[np.int64], context: int) -> InitialStates:
    """The frames at these rows, M warmed up on the `context` steps before each."""
    before = rows[:, None] + np.arange(-context, 1)
    actions = latents.space.encode(latents.actions[before[:, :-1]])
    low, high = (torch.from_numpy(np.percentile(latents.means, share, axis=0).astype(np.float32)) for share in COMMON)
    return warm_starts(mdnrnn.model, torch.from_numpy(latents.means[before]), torch.from_numpy(actions), low, high)
