"""A new policy that acts as an earlier one did: where V is trained anew, C's inputs mean something else.

Policy distillation (Rusu et al. 2016) on recorded episodes: the earlier actor and critic see the latents of their own
V, the new ones those of the new V.
"""

import numpy as np
import torch
from torch import Tensor, nn

from wm.artifacts.workspace import Workspace
from wm.errors import RecipeMismatch
from wm.evolution.transfer import TransferSource
from wm.models.controller import Controller, ControllerConfig
from wm.policy_gradient.network import VALUED_ROWS, ActorCritic, inputs_along
from wm.policy_gradient.ppo import GRADIENT_NORM, VALUE_WEIGHT, make_optimizer
from wm.pretrained import TrainedMdnRnn
from wm.seeding import generator
from wm.training.weights import load_into

# Twenty passes over 78,000 rows of CarRacing, 24 seconds on one core, left 0.19 nats a row between the two policies,
# four passes 0.41 (docs/research/LOG.md, 2026-11-29). More than 150,000 rows have fewer passes, so that no imitation
# takes more than twice that time.
PASSES, MOST_STEPS = 20, 6000
# Rows of a gradient step, that of PPO in reality.
MINIBATCH = 512
LEARNING_RATE = 1e-3  # falls to zero


def imitated_policy(
    source: TransferSource,
    workspace: Workspace,
    mdnrnn: TrainedMdnRnn,
    config: ControllerConfig,
    controller: Controller,
    seed: int,
) -> ActorCritic:
    """Actor and critic for this config on this M and its V, trained to choose as the source's actor does and to value
    as its critic does. Raises RecipeMismatch for an evolved C, other actions and episodes of which none is shared."""
    earlier = source.controller
    distribution = controller.distribution
    actions = [(model.head, model.outputs) for model in (earlier.model, controller)]
    if not earlier.networks or distribution is None or actions[0] != actions[1]:
        raise RecipeMismatch(
            f"{earlier.artifact.folder} is no policy by gradient with these actions, which --set imitate=true takes; "
            "leave it out."
        )
    both = source.memories_and_latents(workspace, mdnrnn, config)
    before, features = (
        inputs_along(model, memory, latents, zip(latents.starts, latents.ends, strict=True))
        for model, (memory, latents) in zip((earlier.model, controller), both, strict=True)
    )
    teacher, pupil = ActorCritic(earlier.model, seed), ActorCritic(controller, seed)
    load_into(teacher, earlier.networks, str(earlier.artifact.folder))
    pupil.standardise(features)
    outputs, values = _judged(teacher, before)
    random, optimizer = generator(seed, "imitation"), make_optimizer(pupil, LEARNING_RATE)
    steps = min(PASSES * -(-len(features) // MINIBATCH), MOST_STEPS)
    order = np.empty(0, np.int64)
    for step in range(steps):
        if len(order) < min(MINIBATCH, len(features)):
            order = random.permutation(len(features))
        rows, order = torch.from_numpy(order[:MINIBATCH]), order[MINIBATCH:]
        # Sampled anew in each pass, so that the pupil learns the distribution and not one choice.
        choices = controller.choose(outputs[rows], random)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - step / steps)
        chosen, valued = pupil(features[rows])
        # The likelihood of what the teacher samples is largest where the two distributions are equal.
        loss = VALUE_WEIGHT * (valued - values[rows]).square().mean() - distribution.log_prob(chosen, choices).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(pupil.parameters(), GRADIENT_NORM)
        optimizer.step()
    return pupil


def _judged(network: ActorCritic, features: Tensor) -> tuple[Tensor, Tensor]:
    """The actor's outputs (N, O) and the values (N,) of inputs (N, F), without a graph."""
    with torch.no_grad():
        outputs, values = zip(*(network(block) for block in features.split(VALUED_ROWS)), strict=True)
    return torch.cat(outputs), torch.cat(values)
