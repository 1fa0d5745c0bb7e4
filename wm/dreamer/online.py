"""Online training: steps of a few environments, updates between them, a checkpoint with every part of the replay."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wm.artifacts.json_reader import (
    COUNT,
    LARGEST,
    NUMBER,
    TEXT,
    Schema,
    between,
    by_number,
    list_of,
    or_null,
    table,
    table_of,
)
from wm.dreamer.collector import Collector
from wm.dreamer.updates import ReplayUpdates
from wm.envs.registration import guarded
from wm.envs.registry import EnvConfig
from wm.episodes.replay import ReplayBuffer, ReplayWriter
from wm.models.dreamer.agent import Dreamer, DreamerTrainer
from wm.rollouts.agents import DreamerAgent
from wm.rollouts.loop import EpisodeJob, play
from wm.seeding import episode_seed
from wm.settings import DreamerSettings
from wm.telemetry.usage import optimizer_bytes
from wm.training.checkpoint import Checkpoints

AVERAGED_EPISODES = 100  # whose mean return is the training return
VALIDATION_INTERVAL = 25  # episodes from a validation below the target until the next


@dataclass
class Counts:
    """Plain values that a checkpoint holds. `updates_started` is the step at which updates began (-1: not yet),
    `updates_before` their number until then, `actor_updates` those of actor and critic, `validated` the number of
    episodes at the last validation, `validation_steps` the steps of all validations."""

    steps: int = 0
    updates: int = 0
    pretrained: int = 0
    # -1: no update is due yet.
    updates_started: int = -1
    updates_before: int = 0
    episodes: int = 0
    validated: int = 0
    actor_updates: int = 0
    validation_steps: int = 0


class OnlineTraining:
    """A Dreamer that acts in `num_envs` environments and trains on its replay. A checkpoint holds weights, optimizer,
    counts, and which environment played each piece of the replay on disk."""

    def __init__(
        self,
        trainer: DreamerTrainer,
        settings: DreamerSettings,
        env: EnvConfig,
        writer: ReplayWriter,
        folder: Path,
        seed: int,
        device: torch.device,
        heartbeat: Callable[[], None],
    ) -> None:
        """`folder` gets the checkpoints. `heartbeat` is called at every step of a validation and may raise Stopped."""
        self.model: nn.Module = trainer.model
        self.optimizer = trainer.optimizer
        self.writer = writer
        self.counts = Counts()
        self.returns: deque[float] = deque(maxlen=AVERAGED_EPISODES)
        self._collected: ReplayBuffer | None = None
        self.validation: float | None = None
        self._dreamer: Dreamer = trainer.model
        self._settings, self._env, self._seed, self._heartbeat = settings, env, seed, heartbeat
        self._collector = Collector(trainer.model, env, writer, settings.num_envs, seed, device)
        self._update = ReplayUpdates(trainer, settings.batch, settings.seq_len, seed, device)
        self._checkpoints = Checkpoints(folder, self, keep_best=False)

    @property
    def state_schema(self) -> Schema:
        """Of what `state` returns."""
        counts = {field.name: COUNT for field in fields(Counts)} | {"updates_started": between(-1, LARGEST)}
        player = between(0, self._settings.num_envs - 1)
        replay = table({"next_piece": COUNT, "envs": by_number(player), "parts": table_of(TEXT)})
        return table(
            {
                "counts": table(counts),
                "episodes_started": COUNT,
                "returns": list_of(NUMBER),
                "validation": or_null(NUMBER),
                "replay": replay,
            }
        )

    def state(self) -> dict[str, Any]:
        """The contents of a checkpoint besides weights and optimizer."""
        writer = self.writer
        return {
            "counts": vars(self.counts),
            "episodes_started": self._collector.episodes_started,
            "returns": list(self.returns),
            "validation": self.validation,
            "replay": {
                "next_piece": writer.next_piece,
                "envs": {str(k): env for k, env in writer.envs.items()},
                "parts": writer.kept_parts(),
            },
        }

    # Open episodes cannot be continued, for a simulator's state is not saved.
    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint: the replay is read from disk once; episodes that were open are cut there."""
        self.counts = Counts(**state["counts"])
        self._collector.episodes_started = state["episodes_started"]
        self.returns = deque(state["returns"], AVERAGED_EPISODES)
        self.validation = state["validation"]
        replay = state["replay"]
        envs = {int(index): env for index, env in replay["envs"].items()}
        self.writer.restore(replay["next_piece"], envs, replay["parts"])

    def resume(self) -> bool:
        """Load the last checkpoint, if there is one."""
        resumed = bool(self._checkpoints.resume())
        if not resumed:
            self.writer.restore(0, {})
        return resumed

    @property
    def position(self) -> int:
        """Steps and pretraining updates so far: the step of checkpoints and metrics."""
        return self.counts.steps + self.counts.pretrained

    def checkpoint(self) -> None:
        """Write pending steps and save a checkpoint; only then are parts evicted that an older one needed."""
        self.writer.commit()
        self._checkpoints.save(self.position, {"validation_loss": 0.0})
        self.writer.evict()

    def buffer_bytes(self) -> int:
        """Memory of the replay, the collected episodes and the optimizer."""
        collected = self._collected.nbytes if self._collected is not None else 0
        return self.writer.buffer.nbytes + collected + optimizer_bytes(self.optimizer)

    def pretrain(self, collected: ReplayBuffer) -> Iterator[dict[str, Tensor]]:
        """Updates of the world model on collected episodes; yields the metrics of each."""
        self._collected = collected
        while self.counts.pretrained < self._settings.pretrain:
            metrics = self._update(collected, self.counts.updates, train_actor_critic=False)
            self.counts.updates += 1
            self.counts.pretrained += 1
            yield metrics
        self._collected = None

    @property
    def end_reason(self) -> str:
        """Why training is over: "steps" (all are done) or "target" (a validation reached it); empty before."""
        target = self._settings.target_return
        if target is not None and self.validation is not None and self.validation >= target:
            return "target"
        return "steps" if self.counts.steps >= self._settings.steps else ""

    def train(self) -> Iterator[dict[str, Tensor]]:
        """Steps and updates until there is an `end_reason`; yields the metrics of the last update after every step."""
        if self.end_reason:
            return
        counts, acting, metrics = self.counts, self._collector.reset(), dict[str, Tensor]()
        while not self.end_reason:
            acting, returns = self._collector.step(acting, counts.steps)
            counts.steps += self._settings.num_envs
            counts.episodes += len(returns)
            self.returns.extend(returns)
            for _ in range(self._updates_due()):
                train_actor_critic = counts.steps >= self._settings.warmup
                metrics = self._update(self.writer.buffer, counts.updates, train_actor_critic)
                counts.updates += 1
                counts.actor_updates += train_actor_critic
            if self._validation_due():
                self._validate()
            yield metrics

    def _updates_due(self) -> int:
        """Updates that `train_ratio` allows for the steps so far. Steps without updates (a replay that is too small,
        also after it was lost) do not count."""
        counts, settings = self.counts, self._settings
        if counts.steps < settings.prefill or not self.writer.buffer.windows(settings.seq_len).any():
            counts.updates_started = -1
            return 0
        if counts.updates_started < 0:
            counts.updates_started, counts.updates_before = counts.steps, counts.updates
        steps = counts.steps - counts.updates_started
        # Whole updates: what is left over counts for the next step.
        updates = int(steps * settings.train_ratio / (settings.batch * settings.seq_len))
        return updates - (counts.updates - counts.updates_before)

    def _validation_due(self) -> bool:
        """Whether training episodes reach the target, and the last validation is long enough ago.

        Training episodes alone do not suffice: they were played by a hundred different policies. On Catch, seed 1, they
        returned 0.94, and the final weights 0.56 over 100 test episodes.
        """
        target, counts = self._settings.target_return, self.counts
        if target is None or len(self.returns) < AVERAGED_EPISODES or np.mean(self.returns) < target:
            return False
        if not counts.actor_updates:  # what random weights return is chance
            return False
        return self.validation is None or counts.episodes >= counts.validated + VALIDATION_INTERVAL

    def _validate(self) -> None:
        """Play validation episodes with the most probable actions."""
        self.checkpoint()  # long episodes: a stop must not lose the steps before them
        jobs = [
            EpisodeJob(number, episode_seed("validation", self._seed, "dreamer", number))
            for number in range(self._settings.validation_episodes)
        ]
        count, name = self._settings.num_envs, self._env.name
        with ExitStack() as stack:
            envs = [stack.enter_context(closing(self._env.make())) for _ in range(count)]
            agent = DreamerAgent(self._dreamer, self._collector.space, count, self._env.spec().fire_action)
            results = guarded(name, lambda: list(play(agent, envs, jobs, heartbeat=lambda _: self._heartbeat())))
        self.validation = float(np.mean([result.episode_return for result in results]))
        self.counts.validated = self.counts.episodes
        self.counts.validation_steps += sum(result.env_steps for result in results)

    def close(self) -> None:
        """Close the environments."""
        self._collector.close()
