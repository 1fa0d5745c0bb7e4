"""What the environments of a world are made of: a dream's start, limit and view, and gymnasium's spec."""

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec

from wm.arguments import whole
from wm.dreams.env import DreamConfig
from wm.dreams.initial_states import sample_initial_states
from wm.dreams.view import View
from wm.envs.registry import EnvConfig
from wm.episodes.latents import Latents
from wm.pretrained import TrainedMdnRnn, TrainedVae
from wm.world.dreaming import checked_temperature

INITIAL_STATES = 4096  # real states in which dreams start, as many as for a policy gradient
DREAM_STEPS = 1000  # longest dream by default, as in a search: latents of CarRacing have drifted by then


def dream_config(mdnrnn: TrainedMdnRnn, latents: Latents, temperature: float, max_steps: int) -> DreamConfig:
    """Dreams from random steps of the episodes. Raises UsageProblem for a temperature or a limit that is none."""
    temperature = checked_temperature(temperature)
    max_steps = whole("max_steps", max_steps, 1, ", or None for the environment's limit")
    initial = sample_initial_states(latents, mdnrnn, 0, INITIAL_STATES)
    return DreamConfig(mdnrnn.model, initial, mdnrnn.space, temperature, max_steps)


def default_limit(env: EnvConfig) -> int:
    """Actions after which a dream is truncated: at the environment's limit, or at DREAM_STEPS."""
    return min(env.limit or DREAM_STEPS, DREAM_STEPS)


def view_of_latents(kind: str, vae: TrainedVae, mdnrnn: TrainedMdnRnn, latents: Latents) -> View:
    """The view `z` or `zh`, of latents in the range of those M was trained on."""
    low, high = (torch.from_numpy(side) for side in (latents.means.min(0), latents.means.max(0)))
    return View.of_latents(kind, mdnrnn.model, low, high, vae.model)


def spec_of(name: str, run: Path, data: tuple[Path, ...], options: dict[str, Any]) -> EnvSpec:
    """The spec from which gymnasium makes the same environment again, here or in another process."""
    registered = gym.spec(name)
    kwargs = {"run": os.fspath(run), "data": [os.fspath(path) for path in data], **options}
    return EnvSpec(
        name,
        registered.entry_point,
        disable_env_checker=True,
        order_enforce=False,
        kwargs=kwargs,
        vector_entry_point=registered.vector_entry_point,
    )
