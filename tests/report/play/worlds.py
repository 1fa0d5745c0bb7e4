"""Games of untrained models, of every kind a page can show, over a small dataset."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.conftest import write_dataset
from wm.actions import ActionSpace
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents
from wm.models.controller import Controller
from wm.models.mdnrnn.config import MdnRnnConfig
from wm.models.vae.networks import build
from wm.report.play.page import Game

LATENT, EPISODES, ROWS = 5, 12, 20
STEER = ActionSpace(low=(-1.0, 0.0, 0.0), high=(1.0, 1.0, 1.0))
PADDLE = ActionSpace(count=4)


@dataclass(frozen=True)
class Kind:
    """The networks of V and M, M's units, and C's form beside its inputs."""

    vae: str = "small"
    mdnrnn: str = "paper"
    hidden: int = 12
    space: ActionSpace = PADDLE
    size: int = 32
    channels: int = 3
    temperature: float = 1.0
    controller: dict[str, Any] = field(default_factory=lambda: {"head": "argmax"})


@torch.no_grad()
def _shaken(model: torch.nn.Module) -> torch.nn.Module:
    """No weight is zero, and no constant of the data is one."""
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape) * 0.3 / max(parameter[0].numel(), 1) ** 0.5)
    for name, buffer in model.named_buffers():
        if name.endswith(("std", "unit")):
            buffer.copy_(torch.rand(buffer.shape) + 0.5)
        elif name.endswith(("mean", "mean_image")):
            buffer.copy_(torch.rand(buffer.shape) * 0.6 + 0.2)
    return model.eval().requires_grad_(False)


def _none_held_out(latents: Latents) -> NDArray[np.bool_]:
    return np.zeros(len(latents.ends), bool)


def make_game(folder: Path, kind: Kind, env: str = "Breakout") -> Game:
    """A game of untrained models."""
    dataset = Dataset.open(write_dataset(folder / "d.zarr", EPISODES))
    random, rows = np.random.default_rng(0), EPISODES * ROWS
    actions = kind.space.column(rows)
    if not kind.space.discrete:
        actions = random.uniform(0, 1, actions.shape).astype(np.float32)
    means = random.normal(size=(rows, LATENT)).astype(np.float32)
    ends = np.arange(ROWS, rows + 1, ROWS)
    none, seeds = np.zeros(rows, np.float32), np.arange(EPISODES)
    latents = Latents(means, means, actions, none, ends, np.zeros(EPISODES, bool), seeds, kind.space)
    config = MdnRnnConfig(LATENT, kind.space.as_json(), kind.hidden, 3, 4.0, kind.mdnrnn, 16)
    mdnrnn: Any = SimpleNamespace(model=_shaken(config.build()), space=kind.space, held_out=_none_held_out)
    vae: Any = SimpleNamespace(model=_shaken(build(kind.vae, kind.size, kind.channels, LATENT)))
    form = {"memory": True, **kind.controller}
    inputs = LATENT * (2 if form.get("difference") else 1)
    inputs += kind.space.width if form.get("previous_action") else 0
    inputs += mdnrnn.model.hidden if form.pop("memory") else 0
    model = Controller(inputs, kind.space, **form)
    parameters = random.normal(size=model.parameters).astype(np.float32) / 3
    controller: Any = SimpleNamespace(model=model, parameters=parameters)
    return Game(env, vae, mdnrnn, controller, latents, dataset, 1.0, 20, 1000)
