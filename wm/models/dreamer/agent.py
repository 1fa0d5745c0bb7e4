"""One update of everything: the world model on what happened, then the behaviour on what it imagines."""

from typing import Any

import torch
from torch import Tensor, nn

from wm.models.dreamer.actor_critic import ActorCritic
from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import ReconstructionWeights
from wm.models.dreamer.rssm import State
from wm.models.dreamer.world_model import Batch, WorldModel


class Dreamer(nn.Module):
    """World model and behaviour."""

    def __init__(self, form: DreamerConfig) -> None:
        super().__init__()
        self.form = form
        self.world = WorldModel(form)
        self.behaviour = ActorCritic(form)

    def begin(self, count: int) -> tuple[State, Tensor]:
        """What `act` wants to know before the first frame of `count` episodes: a state and the action before."""
        with torch.inference_mode():
            state = self.world.rssm.initial(count)
            return state, torch.zeros(count, self.form.action, device=state.deter.device)

    @torch.inference_mode()
    def act(
        self, frames: Tensor, state: State, action: Tensor, first: Tensor, source: torch.Generator | None
    ) -> tuple[Tensor, State]:
        """Encoded actions (N, A) for (N, H, W, P) frames, and the state to hand back with them. Without a source of
        chance the likeliest of everything is taken."""
        state = self.world.rssm.look(state, action, first, self.world.see(frames[:, None])[:, 0], source)
        actor = self.behaviour.actor
        stats = actor(state.features)
        return (actor.best(stats) if source is None else actor.draw(stats, source)), state


class DreamerTrainer:
    """Optimises a Dreamer. Each of the two losses moves its own parameters, with exactly one backward pass."""

    def __init__(
        self,
        model: Dreamer,
        cast: Any,
        *,
        horizon: int,
        entropy: float,
        drawing: ReconstructionWeights,
        starts: int,
        world_learning_rate: float,
        actor_learning_rate: float,
    ) -> None:
        """`cast()` is the number format's context, `starts` how many of a window's last states are imagined from (0:
        all)."""
        self.model, self._cast = model, cast
        self._horizon, self._entropy, self._drawing, self._starts = horizon, entropy, drawing, starts
        behaviour = model.behaviour
        self._behaving = [*behaviour.actor.parameters(), *behaviour.critic.parameters()]
        # A step moves the group whose gradients are there; the other's are None.
        self.optimizer = torch.optim.Adam(
            [
                {"params": list(model.world.parameters()), "lr": world_learning_rate, "eps": 1e-8},
                {"params": self._behaving, "lr": actor_learning_rate, "eps": 1e-5},
            ],
            fused=True,
        )

    def update(self, batch: Batch, source: torch.Generator, behave: bool) -> dict[str, Tensor]:
        """Learn from one batch; returns figures that carry no history. `behave`: actor and critic learn too."""
        world, behaviour = self.model.world, self.model.behaviour
        with self._cast():
            total, figures, states = world.loss(batch, source, self._drawing)
        figures["world_norm"] = self._step(total, world.parameters(), 1000.0)
        if behave:
            chosen = slice(-self._starts, None) if self._starts else slice(None)
            start = State(*(part[:, chosen].flatten(0, 1) for part in states))
            terminal = batch.terminal[:, chosen].flatten()
            with self._cast():
                total, found = behaviour.loss(world, start, terminal, self._horizon, self._entropy, source)
            figures |= found
            figures["behaviour_norm"] = self._step(total, self._behaving, 100.0)
            behaviour.follow()
        return figures

    def _step(self, total: Tensor, parameters: Any, clip: float) -> Tensor:
        optimizer = self.optimizer
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        norm = nn.utils.clip_grad_norm_(parameters, clip)
        # A step that is not finite changes nothing.
        optimizer.grad_scale, optimizer.found_inf = None, (~torch.isfinite(total.detach() + norm)).float()  # type: ignore[attr-defined]
        optimizer.step()
        return norm.detach()
