"""Learning while playing: steps of a few environments, updates between them, a checkpoint with every part written."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stages.session import Session
from wm.actions import ActionSpace
from wm.envs.registry import EnvConfig
from wm.episodes.replay import ReplayWriter, Ring, Steps
from wm.errors import WmError
from wm.models.dreamer.agent import Dreamer, DreamerTrainer
from wm.models.dreamer.rssm import State
from wm.models.dreamer.world_model import Batch
from wm.rollouts.agents import DreamerAgent, auto_fire_for
from wm.rollouts.loop import EpisodeJob, play
from wm.seeding import episode_seed, generator, integer
from wm.settings import DreamerSettings
from wm.training.checkpoint import Checkpoints
from wm.training.pinned_buffers import PinnedBuffers

REMEMBERED = 100  # episodes whose returns are averaged
AGAIN = 25  # episodes after a validation that fell short, until the next


class ActingState(NamedTuple):
    """What the next step needs: the frames that are seen, the state before them and the actions that led to them."""

    frames: NDArray[np.uint8]
    state: State
    actions: Tensor
    first: Tensor


@dataclass
class Counts:
    """How far it is; plain values that a checkpoint holds. `began` is the step at which updates began (-1: not yet),
    `settled` how many of them were taken before, `validated` the episode after which a validation was played."""

    steps: int = 0
    updates: int = 0
    pretrained: int = 0
    began: int = -1
    settled: int = 0
    episodes: int = 0
    begun: int = 0
    validated: int = 0


class Updates:
    """Batches from a ring and what is learned from them. Batch and noise follow from the seed and the number of the
    update, so nothing of chance has to be saved."""

    def __init__(
        self, session: Session, settings: DreamerSettings, learner: DreamerTrainer, device: torch.device
    ) -> None:
        self.learner, self._seed, self._settings, self._device = learner, session.seed, settings, device
        form = learner.model.form
        self._shape = (settings.batch, settings.seq_len, form.size, form.size, form.planes)
        self._staging = PinnedBuffers(self._shape, device)
        self._source = torch.Generator(device)

    def __call__(self, ring: Ring, number: int, behave: bool) -> dict[str, Tensor]:
        """Update number `number`; its figures are still on the device."""
        s = self._settings
        random = generator(self._seed, "dreamer", "batch", number)
        steps = ring.sample(s.batch, s.seq_len, random, s.stack, self._staging.empty())
        self._source.manual_seed(integer(self._seed, "dreamer", "update", number))
        batch = to_batch(steps, self._staging.send(s.batch), self._device)
        return self.learner.update(batch, self._source, behave)


def to_batch(steps: Steps, frames: Tensor, device: torch.device) -> Batch:
    """Tensors on the device; a window's first step counts as an episode's first."""
    first = steps.first.astype(np.float32)
    first[:, 0] = 1
    rest = (steps.actions, steps.rewards, first, steps.terminal.astype(np.float32))
    return Batch(frames, *(torch.from_numpy(column).to(device) for column in rest))


class Online:
    """A Dreamer that plays `num_envs` environments and learns from its replay. It is what a checkpoint continues:
    weights, optimizer, counts, and which pieces of the replay on disk are whose."""

    def __init__(
        self,
        session: Session,
        settings: DreamerSettings,
        learner: DreamerTrainer,
        env: EnvConfig,
        journal: ReplayWriter,
        checkpoints: Path,
        device: torch.device,
    ) -> None:
        self.model: nn.Module = learner.model
        self.optimizer = learner.optimizer
        self.counts = Counts()
        self.returns: deque[float] = deque(maxlen=REMEMBERED)
        self.validation: float | None = None
        self._session, self._settings, self._device = session, settings, device
        self._dreamer: Dreamer = learner.model
        self._recipe, self._journal, self._ring = env, journal, journal.ring
        self._envs = [env.make() for _ in range(settings.num_envs)]
        self.space = ActionSpace.of(self._envs[0].action_space)
        self._totals = np.zeros(settings.num_envs)
        self._server = auto_fire_for(env.spec().fire_action, settings.num_envs)
        self._infos: list[dict[str, Any]] = [{} for _ in self._envs]
        self._learn = Updates(session, settings, learner, device)
        self._source = torch.Generator(device)
        self._checkpoints = Checkpoints(checkpoints, self, keep_best=False)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides weights and optimizer."""
        return {
            "counts": vars(self.counts),
            "returns": list(self.returns),
            "validation": self.validation,
            "replay": {"upto": self._journal.next, "lanes": {str(k): lane for k, lane in self._journal.lanes.items()}},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue: the ring is read from disk once; episodes that were open are over."""
        self.counts = Counts(**state["counts"])
        self.returns = deque(state["returns"], REMEMBERED)
        self.validation = state["validation"]
        lanes = {int(index): lane for index, lane in state["replay"]["lanes"].items()}
        self._journal.restore(state["replay"]["upto"], lanes)

    def resume(self) -> bool:
        """Load the last checkpoint, if there is one."""
        found = bool(self._checkpoints.resume())
        if not found:
            self._journal.restore(0, {})
        return found

    def checkpoint(self) -> None:
        """Everything so far survives from here on."""
        self._journal.commit()
        place = self.counts.steps + self.counts.pretrained
        self._checkpoints.save(place, {"validation_loss": 0.0})
        self._journal.evict()

    def pretrain(self, ring: Ring, until: int) -> Iterator[dict[str, Tensor]]:
        """Updates of the world model on collected episodes."""
        while self.counts.pretrained < until:
            figures = self._learn(ring, self.counts.updates, behave=False)
            self.counts.updates += 1
            self.counts.pretrained += 1
            yield figures

    @property
    def ended(self) -> str:
        """Why the play is over: all steps are played, or a validation returned what was aimed at; empty before."""
        target = self._settings.target_return
        if target is not None and self.validation is not None and self.validation >= target:
            return "target"
        return "steps" if self.counts.steps >= self._settings.steps else ""

    def play(self) -> Iterator[dict[str, Tensor]]:
        """Steps and updates until the play has `ended`; yields the figures of the last update after every step."""
        if self.ended:
            return
        moment, figures = self._begin(), dict[str, Tensor]()
        while not self.ended:
            moment = self._step(moment)
            for _ in range(self._due()):
                behave = self.counts.steps >= self._settings.warmup
                figures = self._learn(self._ring, self.counts.updates, behave)
                self.counts.updates += 1
            self._validate()
            yield figures

    def _validate(self) -> None:
        """When the last training episodes return what was aimed at: a hundred may be lucky, and what returned it were
        a hundred policies, each a little older than this one."""
        counts, settings = self.counts, self._settings
        if (
            settings.target_return is None
            or len(self.returns) < REMEMBERED
            or np.mean(self.returns) < settings.target_return
            or (self.validation is not None and counts.episodes < counts.validated + AGAIN)
        ):
            return
        self.checkpoint()  # a validation of long episodes may be stopped
        jobs = [
            EpisodeJob(number, episode_seed("validation", self._session.seed, "dreamer", number))
            for number in range(settings.validation_episodes)
        ]
        with ExitStack() as opened:
            envs = [opened.enter_context(closing(self._recipe.make())) for _ in self._envs]
            agent = DreamerAgent(self._dreamer, self.space, len(envs), self._recipe.spec().fire_action)
            played = self._guarded(lambda: list(play(agent, envs, jobs, heartbeat=self._session.stop.raise_if_stopped)))
        self.validation, counts.validated = (
            float(np.mean([outcome.episode_return for outcome in played])),
            counts.episodes,
        )

    def _due(self) -> int:
        """Updates that the steps so far have paid for."""
        counts, settings = self.counts, self._settings
        if counts.steps < settings.prefill or not self._ring.starts(settings.seq_len).any():
            counts.began = -1
            return 0
        if counts.began < 0:  # what was not learned meanwhile is not made up for
            counts.began, counts.settled = counts.steps, counts.updates
        paid = (counts.steps - counts.began) * settings.train_ratio / (settings.batch * settings.seq_len)
        return int(paid) - (counts.updates - counts.settled)

    def _begin(self) -> ActingState:
        size, stack = self._ring.columns["frames"].shape[2:], self._settings.stack
        frames = np.zeros((len(self._envs), *size[:2], size[2] * stack), np.uint8)
        for lane in range(len(self._envs)):
            self._reset(lane, frames)
        state, actions = self._dreamer.begin(len(self._envs))
        return ActingState(frames, state, actions, torch.ones(len(self._envs), device=self._device))

    def _reset(self, lane: int, frames: NDArray[np.uint8]) -> None:
        seed = episode_seed("train", self._session.seed, "dreamer", self.counts.begun)
        self.counts.begun += 1
        frame, self._infos[lane] = self._guarded(lambda: self._envs[lane].reset(seed=seed))
        if self._server is not None:
            self._server.begin(lane)
        frames[lane] = np.concatenate([frame] * self._settings.stack, -1)
        self._totals[lane] = 0
        self._ring.begin(lane, frame, seed)
        self._journal.noted(lane)

    def _step(self, moment: ActingState) -> ActingState:
        """One step of every environment."""
        self._source.manual_seed(integer(self._session.seed, "dreamer", "act", self.counts.steps))
        seen = torch.from_numpy(moment.frames).to(self._device)
        actions, state = self._dreamer.act(seen, moment.state, moment.actions, moment.first, self._source)
        chosen = self.space.decode(actions.cpu().numpy())
        if self._server is not None:
            self._server.serve(chosen, self._infos)
            actions = torch.from_numpy(self.space.encode(chosen)).to(self._device)
        frames, first = moment.frames.copy(), np.zeros(len(self._envs), np.float32)
        for lane, env in enumerate(self._envs):
            action = chosen[lane].item() if self.space.discrete else chosen[lane]
            frame, reward, terminated, truncated, self._infos[lane] = self._guarded(partial(env.step, action))
            self._ring.add(lane, frame, action, float(reward), bool(terminated))
            self._journal.noted(lane)
            self._totals[lane] += float(reward)
            self.counts.steps += 1
            frames[lane] = np.concatenate([frames[lane][..., frame.shape[-1] :], frame], -1)
            if terminated or truncated:
                self.returns.append(float(self._totals[lane]))
                self.counts.episodes += 1
                self._reset(lane, frames)
                first[lane] = 1
        return ActingState(frames, state, actions, torch.from_numpy(first).to(self._device))

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except WmError:
            raise
        except Exception as error:  # whatever an environment of somebody's raises
            told = f"{self._recipe.name} broke while it was played ({error!r}); mend the environment."
            raise WmError(told) from error

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
