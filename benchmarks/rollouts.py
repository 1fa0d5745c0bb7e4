"""Playing V + M + C, one core, environment steps per second. Pong: ours (eight environments in lockstep) against the
same models one environment at a time, and against the paper's V one at a time. CarRacing, drawn exactly and fast,
against gymnasium's environment as the best known public code plays it: one at a time, Pillow's resize, encoder and
decoder at every step."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from PIL import Image

from benchmarks.measure import one_core, rates, report
from benchmarks.reference import HIDDEN, LATENT, MIXTURES, PlainMdnRnn, PlainVae
from wm.actions import ActionSpace
from wm.envs.registry import EnvConfig
from wm.models.controller import Controller
from wm.models.mdnrnn.network import MdnRnn
from wm.models.vae.networks import build
from wm.rollouts.agents import VmcAgent
from wm.rollouts.loop import EpisodeJob, play

# Short episodes: no game ends within them.
CANDIDATES, STEPS = 8, 60


def lockstep(
    env: str, num_envs: int, render: str = "exact", vae: str = "small", steps: int = STEPS
) -> Callable[[], int]:
    """Plays episodes of 60 steps, or of `steps`, in `num_envs` environments; returns steps."""
    torch.manual_seed(0)
    recipe = EnvConfig(env, render=render)
    envs = [recipe.make() for _ in range(num_envs)]
    space, spec = ActionSpace.of(envs[0].action_space), recipe.spec()
    head = spec.head if spec.head != "auto" else "tanh"
    model = MdnRnn(LATENT, space.width, HIDDEN, MIXTURES, 10.0).requires_grad_(False)
    controller = Controller(LATENT + HIDDEN, space, head, spec.ordered_actions)
    candidates = 0.1 * np.random.default_rng(0).standard_normal((CANDIDATES, controller.parameters), np.float32)
    agent = VmcAgent(build(vae, 64, 3, LATENT).requires_grad_(False), model, controller, candidates, num_envs)
    seeds = itertools.count()

    def step() -> int:
        jobs = [EpisodeJob(number, next(seeds), number) for number in range(CANDIDATES)]
        return sum(result.length for result in play(agent, envs, jobs, steps))

    return step


def plain_car() -> Callable[[], int]:
    """Plays an episode of 60 steps of gymnasium's CarRacing; returns steps."""
    torch.manual_seed(0)
    env = gym.make("CarRacing-v3", disable_env_checker=True)
    vae, mdnrnn = PlainVae(), PlainMdnRnn(3)
    cell, policy = torch.nn.LSTMCell(LATENT + 3, HIDDEN), torch.nn.Linear(LATENT + HIDDEN, 3)
    seeds = itertools.count()

    @torch.no_grad()
    def step() -> int:
        frame, _ = env.reset(seed=next(seeds))
        state = torch.zeros(1, HIDDEN), torch.zeros(1, HIDDEN)
        for _ in range(STEPS):
            small = np.asarray(Image.fromarray(frame).resize((64, 64)))
            x = torch.from_numpy(small).permute(2, 0, 1)[None].float() / 255
            z, logvar = vae.encode(x)
            z = z + torch.randn_like(z) * torch.exp(0.5 * logvar)
            vae.decoder(vae.expand(z)[:, :, None, None])
            action = torch.tanh(policy(torch.cat([z, state[0]], 1)))
            state = cell(torch.cat([z, action], 1), state)
            mdnrnn.heads(state[0])
            scaled: Any = (action[0] * torch.tensor([1.0, 0.5, 0.5]) + torch.tensor([0.0, 0.5, 0.5])).numpy()
            frame = env.step(scaled)[0]
        return STEPS

    return step


def main() -> None:
    one_core()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ours = lockstep("Pong", 8)
    own, alone, ratio = rates(ours, lockstep("Pong", 1))
    report("rollouts_pong", own, alone, 1.7, "steps/s", ratio)
    own, alone, ratio = rates(ours, lockstep("Pong", 1, vae="paper"))
    report("rollouts_pong_paper", own, alone, 3.0, "steps/s", ratio)
    plain = plain_car()
    for render, goal in (("exact", 4.0), ("fast", 7.0)):
        own, alone, ratio = rates(lockstep("CarRacing", 8, render), plain, seconds=2.0)
        report(f"rollouts_carracing_{render}", own, alone, goal, "steps/s", ratio)


if __name__ == "__main__":
    main()
