"""The training of C by PPO: iterations of rollouts and an update, validations, and checkpoints to resume from.

Steps are played in the real environment or in the dream; validations always are real episodes.
"""

from contextlib import closing
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wm.artifacts import chained_log, durable
from wm.artifacts.json_reader import NUMBER, TEXT, Schema, list_of, table
from wm.dreams.env import InitialStates
from wm.errors import BadData, MemoryProblem, Stopped
from wm.evolution.cma_es import digest
from wm.evolution.evolve import logged
from wm.evolution.fitness import Fitness
from wm.evolution.history import History
from wm.evolution.search_log import LOG, Line, way_out
from wm.evolution.stopping import stop_reason
from wm.models.controller import Controller
from wm.policy_gradient.dream_rollouts import DreamSource
from wm.policy_gradient.earlier import Earlier
from wm.policy_gradient.network import ActorCritic
from wm.policy_gradient.ppo import RewardScale, make_optimizer, update
from wm.policy_gradient.real_rollouts import RealSource
from wm.policy_gradient.snapshots import MOST, Snapshots
from wm.policy_gradient.sources import Experience, Source
from wm.pretrained import TrainedMdnRnn, build_controller
from wm.rollouts.players import PolicySpec
from wm.rollouts.workers import Workers, open_workers
from wm.runtime import Runtime
from wm.seeding import generator
from wm.settings import ControllerSettings
from wm.telemetry.memory_guard import MemoryGuard
from wm.telemetry.metrics_log import MetricsLog
from wm.telemetry.usage import optimizer_bytes
from wm.training.checkpoint import Checkpoints
from wm.training.cpu_threads import one_thread

CHECKPOINT_EVERY = 10  # iterations, all that a kill loses: ten seconds of Pong


class _Weights(nn.Module):
    """What a checkpoint saves as tensors: actor and critic, those of the best policy by validation, and policies on the
    way."""

    snapshots: Tensor

    def __init__(self, network: ActorCritic, parameters: int) -> None:
        super().__init__()
        self.network, self.best = network, deepcopy(network)
        self.register_buffer("snapshots", torch.zeros(MOST, parameters))


@dataclass(frozen=True)
class TrainedPolicy:
    """The best policy by validation, whether it acts by samples, policies along the training with their iterations,
    actor and critic of the best one, the policy at the end, why the training ended, its history, and its figures."""

    parameters: NDArray[np.float32]
    sampled: bool
    snapshots: NDArray[np.float32]
    iterations: list[int]
    networks: dict[str, Tensor]
    latest: NDArray[np.float32]
    ended: str
    history: History
    figures: dict[str, Any]


def train_policy(
    runtime: Runtime,
    settings: ControllerSettings,
    seed: int,
    mdnrnn: TrainedMdnRnn,
    policy: PolicySpec,
    initial: InitialStates | None,
    inputs: Tensor,
    earlier: Earlier | None,
    folder: Path,
    label: str,
    began: float,
) -> TrainedPolicy:
    """Train C in dreams from the `initial` states, or without them in the real environment, from the start or an
    `earlier` training's best policy. C's inputs are standardised by its `inputs` (N, F) in recorded episodes. Log and
    checkpoints are in `folder`; after a kill it continues from there. `began` is when this session began, by the
    Runtime's clock."""
    # Two threads of torch took up to twice as long for the small steps of dreams (docs/research/LOG.md, 2026-11-27).
    with one_thread(), open_workers(runtime) as workers:
        source: Source
        if initial is None:
            env = replace(policy.env, render="fast") if settings.render == "fast" else policy.env
            source = RealSource(settings, seed, replace(policy, env=env), mdnrnn, workers)
        else:
            controller = build_controller(mdnrnn, policy.controller, policy.env)
            source = DreamSource(settings, seed, mdnrnn, controller, initial)
        training = PolicyTraining(
            runtime, settings, seed, mdnrnn, policy, source, workers, inputs, earlier, folder, label
        )
        training.run(began)
        return training.result()


class PolicyTraining:
    """One training. Its state is that of a whole number of iterations, or of what a checkpoint holds."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ControllerSettings,
        seed: int,
        mdnrnn: TrainedMdnRnn,
        policy: PolicySpec,
        source: Source,
        workers: Workers,
        inputs: Tensor,
        earlier: Earlier | None,
        folder: Path,
        label: str,
    ) -> None:
        self._runtime, self._settings, self._seed = runtime, settings, seed
        self._source, self._folder, self._label = source, folder, label
        self._fitness = {
            sampled: Fitness(
                settings, seed, replace(policy, controller=replace(policy.controller, sampled=sampled)), mdnrnn, workers
            )
            for sampled in (True, False)
        }
        self._controller: Controller = build_controller(mdnrnn, policy.controller, policy.env)
        self._network = ActorCritic(self._controller, seed)
        self._network.standardise(inputs)
        if earlier is not None:
            self._network.load_state_dict(earlier.network.state_dict())
        self._weights = _Weights(self._network, self._controller.parameters)
        self.model: nn.Module = self._weights
        self.optimizer = make_optimizer(self._network, settings.learning_rate)
        self.history = History()
        self._earlier = earlier
        if earlier is not None and earlier.validations is not None:
            self.history.best_score = earlier.validations[1]
        self._scale = RewardScale.of(settings.places)
        self._snapshots = Snapshots(self._weights.snapshots)
        self._digest = chained_log.start(folder)  # of the log's last line
        self._checkpoints = Checkpoints(folder, self, keep_best=False)
        self._earlier_seconds = 0.0

    @property
    def state_schema(self) -> Schema:
        """Of what `state` returns."""
        running = list_of(NUMBER, self._settings.places)
        scale = table(dict.fromkeys(("count", "mean", "squares"), NUMBER) | {"running": running})
        return table(self._source.state_schemas | Snapshots.state_schema | {"scale": scale, "log": TEXT})

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs besides weights and optimizer."""
        return self._source.state() | self._snapshots.state() | {"scale": asdict(self._scale), "log": self._digest}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._source.load_state(state)
        self._scale = RewardScale(**state["scale"])
        self._snapshots.load_state(state)
        self._digest = state["log"]

    @property
    def _iteration(self) -> int:
        return self.history.generation

    def _stop_reason(self, extra_seconds: float = 0.0, *current: Line) -> str:
        """The criterion that is met, of the settings or in the dream; `current` is an iteration that is not recorded
        yet."""
        reason = stop_reason(self._settings, self.history, extra_seconds, sum(line["env_steps"] for line in current))
        if reason == "target" and not (self.history.lines or current):
            return ""  # an earlier policy has reached it; this one still makes its first iteration
        if reason or self._source.place == "real":
            return reason
        if self.history.exploited():
            return "exploited"
        return "dream_steps" if self._source.played([*self.history.lines, *current]) >= self._source.steps else ""

    def run(self, began: float) -> None:
        """Continue from the last checkpoint, if there is one, to the end. This session `began` then."""
        self._resume()
        limit = self._source.steps
        buffers, runtime = (lambda: optimizer_bytes(self.optimizer)), self._runtime
        log = MetricsLog(self._folder, self._iteration, buffers, runtime.log, runtime.track, runtime.clock, began)
        self._earlier_seconds = log.earlier_seconds
        guard = MemoryGuard(self._runtime, self._folder, self._source.iterations)
        begin = self._played()
        with closing(log), runtime.progress(self._label, limit, self._source.unit, begin) as progress:
            while not self._stop_reason():
                try:
                    self._runtime.raise_if_stopped()
                    played, began = self._play()
                except Stopped:
                    self._save()
                    raise
                figures = self._learn(played)
                line = self._finish(played, began)
                alarm = guard.check(log.write(self._iteration, self._metrics(line, figures)))
                if "validation" in line or self._iteration % CHECKPOINT_EVERY == 0 or alarm:
                    self._save()
                if alarm:
                    raise MemoryProblem(f"{self._label}: {alarm}")
                progress.update(min(self._played(), limit), **self._progress_figures())
        if self._stop_reason() == "exploited":
            best = self.history.best_generation
            since, source = (f"iteration {best}", "that iteration") if best else ("its start", "the earlier run")
            self._runtime.log(
                f"warning: C exploits the dream: returns there have risen since {since}, but real returns have fallen. "
                f"The training ends, and keeps the policy of {source}."
            )

    def _played(self) -> int:
        return self._source.played(self.history.lines)

    def _resume(self) -> None:
        """Load the checkpoint, and cut off the log what was played after it."""
        lines, earlier = logged(self._folder), list[chained_log.Line]()
        if self._checkpoints.all():
            step = self._checkpoints.resume()
            earlier = [line for line in lines if line.value["generation"] <= step]
            if not earlier or earlier[-1].digest != self._digest:
                path = self._folder / LOG
                raise BadData(f"{path} lacks lines that were there at iteration {step}; {way_out(self._folder)}.")
            self._runtime.log(f"{self._label}: resumes at iteration {step}")
        if len(earlier) < len(lines):
            durable.write_bytes(self._folder / LOG, b"".join(line.data for line in earlier))
        for line in earlier:
            self._record(line.value)

    def _save(self) -> None:
        if self.history.lines:
            self._checkpoints.save(self._iteration, {"validation_loss": 0.0})

    def _play(self) -> tuple[Experience, float]:
        began = self._runtime.clock()
        return self._source.play(self._network.parameter_vector(), len(self.history.lines)), began

    def _learn(self, played: Experience) -> dict[str, float]:
        """One update. The step size falls to zero: where it stays, the policy wavers by ten points of Pong."""
        rollout, settings = played.rollout, self._settings
        scale = self._scale.update(rollout.rewards, played.ends, settings.gamma)
        # It follows from the log's steps, so that a resumed training has the same step size.
        remaining = 1 - self._played() / self._source.steps
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * remaining
        distribution = self._controller.distribution
        assert distribution is not None
        random = generator(self._seed, "ppo minibatches", len(self.history.lines))
        return update(
            self._network, self.optimizer, distribution, rollout, rollout.rewards / scale, settings.gamma,
            settings.entropy_weight, self._source.passes, random,
        )  # fmt: skip

    def _finish(self, played: Experience, began: float) -> Line:
        """Validate if it is due, and write the log's line."""
        parameters = self._network.parameter_vector()
        line: Line = {
            "generation": len(self.history.lines) + 1,
            "in": self._source.place,
            "returns": played.returns,
            "env_steps": played.env_steps,
            "policy": digest(parameters[None]),
        }
        seconds = round(self._runtime.clock() - began, 3)  # as recorded: a training that they end has to be validated
        reason = self._stop_reason(seconds, line)
        if reason or self._source.played([*self._unvalidated(), line]) >= self._settings.validate_steps:
            returns, steps = self._fitness[False].validation_returns(parameters)
            line["validation"] = returns.tolist()
            line["env_steps"] += steps
            if np.mean(returns) > self.history.best_score:
                self._weights.best.load_state_dict(self._network.state_dict())
            seconds = round(self._runtime.clock() - began, 3)
        line["seconds"] = seconds
        self._snapshots.keep(line["generation"], parameters)
        chained = chained_log.chain(self._digest, line)
        durable.append(self._folder / LOG, chained.data)
        self._digest = chained.digest
        self._record(line)
        return line

    def _record(self, line: Line) -> None:
        self.history.add(line, self._weights.best.parameter_vector())

    def _unvalidated(self) -> list[Line]:
        """The iterations since the last validation."""
        return list(takewhile(lambda line: "validation" not in line, reversed(self.history.lines)))

    def _metrics(self, line: Line, figures: dict[str, float]) -> dict[str, float]:
        values = {"env_steps": float(self.history.env_steps), **figures}
        for name in ("returns", "validation"):
            if line.get(name):
                values |= {f"{name}_mean": float(np.mean(line[name])), f"{name}_best": float(np.max(line[name]))}
        return values

    def _progress_figures(self) -> dict[str, str]:
        # The last twenty episodes, which are in the last fifty iterations unless episodes are long.
        returns = [value for line in self.history.lines[-50:] for value in line["returns"]][-20:]
        best = "none yet" if np.isinf(self.history.best_score) else f"{self.history.best_score:.1f}"
        return {"best_validation": best, "last_returns": f"{np.mean(returns):.1f}" if returns else "none yet"}

    def result(self) -> TrainedPolicy:
        """The best policy, as it acts better: likeliest, as in every validation, or by samples on the same episodes. An
        earlier one stays the best unless it is surpassed in that, too."""
        best, history, earlier = self._weights.best, self.history, self._earlier
        means, steps, earlier_means = (-np.inf, -np.inf), 0, None if earlier is None else earlier.validations
        if history.best is not None:
            returns, steps = self._fitness[True].validation_returns(best.parameter_vector())
            means = float(np.mean(returns)), history.best_score
        if earlier is not None and earlier_means is not None and max(earlier_means) >= max(means):
            best, means = earlier.network, earlier_means
        earlier_is_best, (by_samples, likeliest) = best is not self._weights.best, means
        figures = {
            "in": self._settings.in_,
            "generations": history.generation,
            "best_generation": 0 if earlier_is_best else history.best_generation,
            "earlier_is_best": earlier_is_best,
            "validation_return": max(means),
            "validation_return_sampled": by_samples,
            "validation_return_likeliest": likeliest,
            "validation_episodes": self._settings.validation_episodes,
            "env_steps": history.env_steps + steps,
            "seconds": history.seconds,
        }
        figures |= {"earlier_seconds": self._earlier_seconds} if self._earlier_seconds else {}
        if self._source.place == "dream":
            figures |= {"dream_steps": self._played(), "temperature": float(self._settings.temperature)}
        # Clones: the network goes on learning when another session resumes.
        networks = {name: value.clone() for name, value in best.state_dict().items()}
        ended = self._stop_reason()
        latest = self._network.parameter_vector()
        snapshots, iterations = self._snapshots.parameters(), self._snapshots.iterations
        parameters, sampled = best.parameter_vector(), by_samples > likeliest
        return TrainedPolicy(parameters, sampled, snapshots, iterations, networks, latest, ended, history, figures)
