"""Training V, M and the Dreamer on a GPU, steps per second: as we do it, replayed as a CUDA graph, against the same
step without one. Batches and networks are those of the presets, frames and latents random."""

import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import rates, report
from benchmarks.reference import LATENT
from benchmarks.train_mdnrnn import ROLLOUTS, random_latents
from wm.actions import ActionSpace
from wm.dreamer.cuda_graph import PLAIN_UPDATES, GraphedUpdate
from wm.dreamer.updates import dreamer_config, new_dreamer, new_trainer
from wm.models.dreamer.world_model import Batch
from wm.settings import DreamerSettings, MdnRnnSettings, VaeSettings
from wm.settings.sources import Sources, find_preset
from wm.training.fit import make_trainer
from wm.training.mdnrnn import (
    accelerated_mdnrnn_loss,
    fit_normalization,
    loss_arguments,
    mdnrnn_config,
    new_mdnrnn,
    training_windows,
)
from wm.training.precision import pick
from wm.training.vae import accelerated_vae_loss, new_vae, new_vae_loss

# On an H200 it was 2.9 to 6.4 times (2026-11-26 and 27).
GOAL = 2.0


def steps(
    model: nn.Module,
    loss: Callable[..., Any],
    arguments: Callable[[int], Sequence[Tensor]],
    settings: Any,
    device: torch.device,
) -> Callable[[], None]:
    """A step of training by a loss of whole batches."""

    def of_batch(number: int) -> tuple[Tensor, dict[str, Tensor]]:
        return loss(*(part.to(device) for part in arguments(number))).total, {}

    trainer, numbers = make_trainer(model, of_batch, pick("auto", device), settings), itertools.count()

    def take() -> None:
        trainer.step(next(numbers))
        if device.type == "cuda":
            torch.cuda.synchronize()

    return take


def mdnrnn_steps(settings: MdnRnnSettings, stack: ExitStack | None, device: torch.device) -> Callable[[], None]:
    """Of M, on windows of latents; accelerated until the stack is closed, or plain."""
    latents = random_latents()
    model = new_mdnrnn(mdnrnn_config(settings, LATENT, latents.space), 0)
    fit_normalization(model, latents)
    windows = training_windows(settings, [latents], [settings.batch], 0)

    def arguments(number: int) -> list[Tensor]:
        # A fixed share of noise, and a generator a step, as in training.
        return loss_arguments(windows.at(number), settings.context, 0.5, torch.Generator().manual_seed(number))

    model = model.to(device)
    fast = accelerated_mdnrnn_loss(model, model.loss, settings, pick("auto", device))
    return steps(model, stack.enter_context(fast) if stack else model.loss, arguments, settings, device)


def vae_steps(settings: VaeSettings, stack: ExitStack | None, device: torch.device) -> Callable[[], None]:
    """Of V, on frames; accelerated until the stack is closed, or plain."""
    random = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (16, settings.batch, 64, 64, 3), dtype=torch.uint8, generator=random)
    model = new_vae(settings.network, settings.latent, (64, 64, 3), 0).to(device)
    objective = new_vae_loss(settings, model, frames[0].to(device), 0)

    def arguments(number: int) -> list[Tensor]:
        return [frames[number % len(frames)], torch.randn(settings.batch, settings.latent, generator=random)]

    fast = accelerated_vae_loss(objective, objective, settings, pick("auto", device))
    return steps(objective, stack.enter_context(fast) if stack else objective, arguments, settings, device)


def dreamer_steps(settings: DreamerSettings, stack: ExitStack | None, device: torch.device) -> Callable[[], None]:
    """Updates of a Dreamer, actor and critic included; with a stack, as CUDA graphs."""
    config = dreamer_config(settings, ActionSpace(count=6))
    trainer = new_trainer(new_dreamer(config, 0).to(device), settings, pick("auto", device))
    update, noise = GraphedUpdate(trainer) if stack else trainer.update, torch.Generator(device)
    random, shape = torch.Generator().manual_seed(0), (settings.batch, settings.seq_len)
    frames = torch.randint(0, 256, (*shape, 64, 64, config.channels), dtype=torch.uint8, generator=random)
    actions = torch.eye(config.action)[torch.randint(config.action, shape, generator=random)]
    batch = Batch(frames, actions, torch.randn(shape, generator=random), torch.zeros(shape), torch.zeros(shape))
    on_device, numbers = Batch(*(part.to(device) for part in batch)), itertools.count()

    def take() -> None:
        update(on_device, noise.manual_seed(next(numbers)), True)
        torch.cuda.synchronize()

    for _ in range(PLAIN_UPDATES + 1):
        take()
    return take


def dreamer_settings(preset: str) -> DreamerSettings:
    """Those of a preset."""
    return Sources(preset=find_preset(preset)).resolve("train-dreamer", DreamerSettings, "Pong")[0]


def main() -> None:
    if not torch.cuda.is_available():
        print("no GPU here; the rows of CUDA graphs stay as they are", file=sys.stderr)
        return
    cuda = torch.device("cuda")
    rollout = MdnRnnSettings(network="rollout", hidden=0, batch=ROLLOUTS)
    for name, build in (
        ("cuda_graph_rollout", partial(mdnrnn_steps, rollout)),
        ("cuda_graph_mdnrnn", partial(mdnrnn_steps, MdnRnnSettings())),
        ("cuda_graph_vae", partial(vae_steps, VaeSettings())),
        ("cuda_graph_vae_paper", partial(vae_steps, VaeSettings(network="paper"))),
        ("cuda_graph_dreamer_small", partial(dreamer_steps, dreamer_settings("small"))),
        ("cuda_graph_dreamer_base", partial(dreamer_steps, dreamer_settings("base"))),
    ):
        with ExitStack() as stack:
            ours, reference, ratio = rates(build(stack, cuda), build(None, cuda), seconds=1.0, windows=3)
        report(name, ours, reference, GOAL, "steps/s", ratio, gpu=torch.cuda.get_device_name())


if __name__ == "__main__":
    main()
