"""Initial states of dreams: real encoded frames, with M warmed up on the steps before each."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.artifacts import manifest, runs
from wm.artifacts.workspace import Workspace
from wm.dreams.env import InitialStates, warm_up
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents, join, read_latents
from wm.errors import MissingInput, RecipeMismatch
from wm.pretrained import TrainedMdnRnn, TrainedVae
from wm.runtime import Runtime
from wm.seeding import generator

LATENTS = "latents"
CONTEXT = 8  # real steps before a dream
# Percentiles of V's latents that bound those of a dream. What is rare has latents near them: before a point that is won
# in Pong, 62 % of the frames are beyond the 0.5th or the 99.5th.
BOUNDS = (0.1, 99.9)


def load_latents(workspace: Workspace, mdnrnn: TrainedMdnRnn) -> Latents:
    """The latents M was trained on. Raises MissingInput if they are missing, RecipeMismatch if they have changed."""
    return join(_parts(workspace, mdnrnn))


def load_latent_parts(workspace: Workspace, mdnrnn: TrainedMdnRnn) -> list[Latents]:
    """The same, apart: a part for every dataset, V's own first."""
    return _parts(workspace, mdnrnn)


def load_newest_latents(workspace: Workspace, mdnrnn: TrainedMdnRnn) -> Latents:
    """Those of the newest round: of the dataset whose name comes last, where round 10 follows round 9."""
    names = _names(mdnrnn)
    return _parts(workspace, mdnrnn)[names.index(max(names, key=lambda name: (len(name), name)))]


def load_shared_latents(
    workspaces: tuple[Workspace, Workspace], mdnrnns: tuple[TrainedMdnRnn, TrainedMdnRnn]
) -> tuple[Latents, Latents]:
    """The latents of the same episodes by the Vs of two Ms, row by row: of the datasets that both were trained on.
    Raises what `load_latents` raises, and RecipeMismatch if there are none."""
    parts = [
        dict(zip(_names(mdnrnn), _parts(workspace, mdnrnn), strict=True))
        for workspace, mdnrnn in zip(workspaces, mdnrnns, strict=True)
    ]
    shared = [name for name in parts[0] if name in parts[1] and _same_episodes(parts[0][name], parts[1][name])]
    if not shared:
        raise RecipeMismatch(
            f"{workspaces[0].run} and {workspaces[1].run} have no recorded episodes in common to imitate a policy in; "
            "train both Ms with the same --data, or leave --set imitate=true out."
        )
    first, second = (join([of_run[name] for name in shared]) for of_run in parts)
    return first, second


def _same_episodes(one: Latents, other: Latents) -> bool:
    """Equal seeds, ends and actions: the same episodes, whatever V says of their frames."""
    columns = [(latents.seeds, latents.ends, latents.actions) for latents in (one, other)]
    return all(np.array_equal(first, second) for first, second in zip(*columns, strict=True))


def latents_of(
    workspace: Workspace,
    vae: TrainedVae,
    mdnrnn: TrainedMdnRnn,
    dataset: Dataset,
    runtime: Runtime,
    device: str = "auto",
) -> Latents:
    """The latents M was trained on. They begin with those of V's dataset: a dream is pictured next to the frames of the
    same rows. The dataset may have the first of V's episodes alone; those are encoded if the latents stayed behind.
    Raises RecipeMismatch where it has other episodes."""
    command, label = workspace.command("train-mdnrnn"), f"encode {workspace.env}"
    if latents_stayed_behind(workspace, vae, dataset):
        if vae.artifact.inputs["episodes"] != dataset.fingerprint_of_first(vae.episodes):
            raise RecipeMismatch(
                f"{dataset.path} has other episodes than those {vae.artifact.folder} was trained on; give these with "
                "--data."
            )
        runtime.log(f"{label}: dreams start in the {dataset.episodes} episodes that came along")
        return vae.encode(dataset, runtime, label, device)
    first = runs.load(workspace.run / LATENTS, "latents", command)
    same = first.inputs["episodes"] == dataset.fingerprint_of_first(vae.episodes)
    if same:
        latents = load_latents(workspace, mdnrnn)
        same = np.array_equal(latents.ends[: dataset.episodes], dataset.ends)
    if not same:
        raise RecipeMismatch(
            f"{dataset.path} has other episodes than those {mdnrnn.artifact.folder} was trained on; give these with "
            f"--data, or run `{command}`."
        )
    return latents


def latents_stayed_behind(workspace: Workspace, vae: TrainedVae, dataset: Dataset) -> bool:
    """Whether the run was shared without its latents, and with few of V's episodes."""
    return dataset.episodes < vae.episodes and not (workspace.run / LATENTS / manifest.NAME).is_file()


def _names(mdnrnn: TrainedMdnRnn) -> list[str]:
    return [name for name in mdnrnn.artifact.inputs if name.startswith("latents")]


def _parts(workspace: Workspace, mdnrnn: TrainedMdnRnn) -> list[Latents]:
    parts, command = [], workspace.command("train-mdnrnn")
    for name in _names(mdnrnn):
        folder = workspace.run / name
        if not (folder / manifest.NAME).is_file():
            raise MissingInput(
                f"{folder} does not exist or is not finished; run `{command}` first, or if the run was pulled, pull "
                "one that was pushed with its latents."
            )
        if runs.load(folder, "latents", command).fingerprint != mdnrnn.artifact.inputs[name]:
            raise RecipeMismatch(f"{folder} are not the latents M was trained on; run `{command}`.")
        parts.append(read_latents(folder))
    return parts


# 1,024 states: with 32 dreams a candidate, hardly any is drawn twice in a generation.
def sample_initial_states(latents: Latents, mdnrnn: TrainedMdnRnn, seed: int, count: int = 1024) -> InitialStates:
    """Random rows of the episodes."""
    lengths = latents.ends - latents.starts
    random = generator(seed, "starts")
    episodes = random.choice(len(lengths), count, p=lengths / lengths.sum())
    context = longest_context(latents)
    first = latents.starts[episodes] + random.integers(0, lengths[episodes] - context - 1)
    return initial_states_at(latents, mdnrnn, first + context, context)


def early_initial_states(latents: Latents, mdnrnn: TrainedMdnRnn) -> InitialStates:
    """The rows a few steps into every episode. Not the first one: Pong's first frame has other colours, and M was
    trained on it once per episode."""
    context = longest_context(latents)
    return initial_states_at(latents, mdnrnn, latents.starts + context, context)


def longest_context(latents: Latents) -> int:
    """Steps before a dream that every episode has: `CONTEXT`, or fewer where one is short. A step after them is real
    too."""
    # Two rows less: the state itself, and one step after it.
    return min(CONTEXT, int((latents.ends - latents.starts).min()) - 2)


def initial_states_anywhere(
    parts: Sequence[Latents], mdnrnn: TrainedMdnRnn, seed: int, count: int, later_weight: float = 1.0
) -> InitialStates:
    """Random rows of the episodes, their first ones included, M warmed up on as many steps before each as there are.
    Rows of the parts after the first count `later_weight` times."""
    latents = join(parts)
    lengths = latents.ends - latents.starts - 1  # the last row has no action
    random = generator(seed, "starts anywhere")
    weights = np.repeat([later_weight if number else 1.0 for number in range(len(parts))], [len(p.ends) for p in parts])
    episodes = random.choice(len(lengths), count, p=lengths * weights / (lengths * weights).sum())
    steps = random.integers(0, lengths[episodes])
    # As many as there are, where an episode has fewer before the state.
    rows, contexts = latents.starts[episodes] + steps, np.minimum(steps, CONTEXT)
    bounds, sizes = latent_bounds(latents), np.unique(contexts).tolist()
    return InitialStates.joined([_states_at(latents, mdnrnn, rows[contexts == size], size, bounds) for size in sizes])


def initial_states_at(
    latents: Latents,
    mdnrnn: TrainedMdnRnn,
    rows: NDArray[np.int64],
    context: int,
    bounds: tuple[Tensor, Tensor] | None = None,
) -> InitialStates:
    """These rows, M warmed up on the `context` steps before each. `bounds` are those of the latents, if known."""
    return _states_at(latents, mdnrnn, rows, context, bounds or latent_bounds(latents))


def latent_bounds(latents: Latents) -> tuple[Tensor, Tensor]:
    """The bounds (Z,) of a dream's latents, for episodes like these."""
    low, high = np.percentile(latents.means, BOUNDS, axis=0).astype(np.float32)
    return torch.from_numpy(low), torch.from_numpy(high)


def _states_at(
    latents: Latents, mdnrnn: TrainedMdnRnn, rows: NDArray[np.int64], context: int, bounds: tuple[Tensor, Tensor]
) -> InitialStates:
    window = rows[:, None] + np.arange(-context, 1)
    actions = latents.space.encode(latents.actions[window[:, :-1]])
    return warm_up(mdnrnn.model, torch.from_numpy(latents.means[window]), torch.from_numpy(actions), *bounds)
