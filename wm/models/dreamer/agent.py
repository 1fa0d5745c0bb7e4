"""A Dreamer that acts, and an update of it: the world model on replayed steps, actor and critic in imagination."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from wm.models.dreamer.actor_critic import ActorCritic
from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import ReconstructionWeights
from wm.models.dreamer.rssm import State
from wm.models.dreamer.world_model import Batch, WorldModel

WORLD_CLIP, ACTOR_CRITIC_CLIP = 1000.0, 100.0  # largest gradient norms; DreamerV3's
WORLD_EPS, ACTOR_CRITIC_EPS = 1e-8, 1e-5  # of Adam; DreamerV3's


class Dreamer(nn.Module):
    """World model, actor and critic."""

    def __init__(self, config: DreamerConfig) -> None:
        super().__init__()
        self.config = config
        self.world_model = WorldModel(config)
        self.actor_critic = ActorCritic(config)

    def initial(self, count: int) -> tuple[State, Tensor]:
        """Recurrent state and previous action for the first frames of `count` episodes."""
        with torch.inference_mode():
            state = self.world_model.rssm.initial(count)
            return state, torch.zeros(count, self.config.action, device=state.deter.device)

    @torch.inference_mode()
    def act(
        self, frames: Tensor, state: State, action: Tensor, first: Tensor, noise: torch.Generator | None
    ) -> tuple[Tensor, State]:
        """Encoded actions (N, A) for (N, H, W, C) frames, and the state, both of which the next call takes. Without
        `noise` the modes of latents and actions are taken."""
        embed = self.world_model.encode(frames[:, None])[:, 0]
        state = self.world_model.rssm.observe_step(state, action, first, embed, noise)
        actor = self.actor_critic.actor
        distribution = actor(state.features)
        return (actor.mode(distribution) if noise is None else actor.sample(distribution, noise)), state


class DreamerTrainer:
    """Optimises a Dreamer. Each of the two losses moves its own parameters, with exactly one backward pass.

    Not compiled: an update of 0.56 s on a CPU took 0.62 s with `torch.compile`, after three minutes of compiling. The
    graph breaks wherever noise comes from a generator argument.
    """

    def __init__(
        self,
        model: Dreamer,
        autocast: Callable[[], AbstractContextManager[object]],
        *,
        horizon: int,
        entropy: float,
        reconstruction: ReconstructionWeights,
        imagine_last: int,
        world_learning_rate: float,
        actor_learning_rate: float,
    ) -> None:
        """`autocast()` is the context of the number format. Imagination starts from the `imagine_last` last states of
        each window (0: from all)."""
        self.model, self._autocast = model, autocast
        self._horizon, self._entropy = horizon, entropy
        self._reconstruction, self._imagine_last = reconstruction, imagine_last
        self._actor_critic = [*model.actor_critic.actor.parameters(), *model.actor_critic.critic.parameters()]
        # A step moves only the group with gradients; the other group's are None.
        self.optimizer = torch.optim.Adam(
            [
                {"params": list(model.world_model.parameters()), "lr": world_learning_rate, "eps": WORLD_EPS},
                {"params": self._actor_critic, "lr": actor_learning_rate, "eps": ACTOR_CRITIC_EPS},
            ],
            fused=True,
            capturable=next(model.parameters()).is_cuda,  # by a CUDA graph
        )

    def update(self, batch: Batch, noise: torch.Generator, train_actor_critic: bool) -> dict[str, Tensor]:
        """Train on one batch; returns metrics without a graph."""
        world, actor_critic = self.model.world_model, self.model.actor_critic
        with self._autocast():
            total, metrics, states = world.loss(batch, noise, self._reconstruction)
        metrics["world_norm"] = self._step(total, world.parameters(), WORLD_CLIP)
        if train_actor_critic:
            last = slice(-self._imagine_last, None) if self._imagine_last else slice(None)
            start = State(*(part[:, last].flatten(0, 1) for part in states))
            terminal = batch.terminal[:, last].flatten()
            with self._autocast():
                total, more = actor_critic.loss(world, start, terminal, self._horizon, self._entropy, noise)
            metrics |= more
            metrics["actor_critic_norm"] = self._step(total, self._actor_critic, ACTOR_CRITIC_CLIP)
            actor_critic.update_slow_critic()
        return metrics

    def _step(self, total: Tensor, parameters: Iterable[nn.Parameter], clip: float) -> Tensor:
        optimizer = self.optimizer
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        norm = nn.utils.clip_grad_norm_(parameters, clip)
        # A step whose loss or gradient is not finite is skipped, without waiting for the device.
        optimizer.grad_scale, optimizer.found_inf = None, (~torch.isfinite(total.detach() + norm)).float()  # type: ignore[attr-defined]
        optimizer.step()
        return norm.detach()
