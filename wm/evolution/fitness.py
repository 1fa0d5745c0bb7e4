"""Fitness of candidates: their mean return, in the real environment or in the dream."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from wm.dreams.env import InitialStates
from wm.dreams.rollout import rollout_dreams
from wm.episodes.latents import Latents
from wm.evolution.whitening import Matrix, whitener_of
from wm.models.controller import controller_inputs
from wm.pretrained import TrainedMdnRnn, build_controller, controller_memory
from wm.rollouts.loop import EpisodeJob
from wm.rollouts.players import PolicySpec, encode_rollouts, map_playing, play_jobs, play_tasks
from wm.rollouts.workers import Workers
from wm.seeding import episode_seed, generator
from wm.settings import ControllerSettings
from wm.training.precision import pick

MAX_DREAM_STEPS = 1000  # where training episodes have no limit of their own
WHITENING_EPISODES = 256  # of a dataset, equally spaced, whose latents whiten a search from its start
DREAMS_PER_CANDIDATE = 32  # in a generation: fewer rank candidates by their initial states
VALIDATION_DREAMS = 256  # in a validation without real episodes


class Fitness:
    """Returns of candidates, in real episodes and in dreams, with the same seeds for all candidates of a generation.
    Dreams start from `initial_states`; without them candidates play in the real environment alone."""

    def __init__(
        self,
        settings: ControllerSettings,
        seed: int,
        policy: PolicySpec,
        mdnrnn: TrainedMdnRnn,
        workers: Workers,
        initial_states: InitialStates | None = None,
    ) -> None:
        self.settings, self._seed, self._policy, self._workers = settings, seed, policy, workers
        env = replace(policy.env, render="fast") if settings.render == "fast" else policy.env
        self._candidate_policy = replace(policy, env=env)
        self._mdnrnn, self._memory = mdnrnn.model, controller_memory(mdnrnn, policy.controller)
        self._controller = build_controller(mdnrnn, policy.controller, policy.env)
        self._initial_states = initial_states

    def episodes(self, generation: int) -> int:
        """Episodes per candidate in a generation."""
        final_phase = generation >= self.settings.early
        return self.settings.episodes_per_eval * (self.settings.final_phase_episodes if final_phase else 1)

    def max_steps(self, generation: int) -> int:
        """Steps after which a generation's episodes are truncated; 0: the environment's own limit."""
        final_phase = generation >= self.settings.early
        return self.settings.max_steps * (self.settings.final_phase_steps if final_phase else 1)

    def real_returns(self, candidates: NDArray[np.float32], generation: int) -> tuple[NDArray[np.float64], int]:
        """Mean return of every candidate in real episodes, and their environment steps."""
        # No candidate in the path: all of a generation play the same episodes, so their returns compare.
        seeds = [
            episode_seed("train", self._seed, "controller", generation, episode)
            for episode in range(self.episodes(generation))
        ]
        jobs = [
            EpisodeJob(candidate * len(seeds) + episode, seed, candidate)
            for candidate in range(len(candidates))
            for episode, seed in enumerate(seeds)
        ]
        max_steps, max_idle = self.max_steps(generation), self._policy.env.max_idle
        returns, steps = self._play(self._candidate_policy, candidates, jobs, max_steps, max_idle)
        return returns.reshape(len(candidates), -1).mean(axis=1), steps

    def dream_returns(
        self,
        candidates: NDArray[np.float32],
        generation: int,
        temperature: float,
        dreams: int = DREAMS_PER_CANDIDATE,
    ) -> NDArray[np.float64]:
        """Mean return of every candidate in `dreams` dreams, from the same initial states for all."""
        assert self._initial_states is not None
        random = generator(self._seed, "dream starts", generation)
        rows = random.integers(0, len(self._initial_states), dreams)
        initial = self._initial_states.take(np.tile(rows, len(candidates)))
        returns = self._dream(np.repeat(candidates, dreams, axis=0), initial, generation, temperature)
        return returns.reshape(len(candidates), dreams).mean(axis=1)

    def validation_returns(self, mean: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        # Without the generation: validations of all generations are on the same episodes.
        """Returns of the mean in full real episodes on the validation seeds, the same in every validation; and their
        environment steps."""
        jobs = [
            EpisodeJob(number, episode_seed("validation", self._seed, "controller", number))
            for number in range(self.settings.validation_episodes)
        ]
        return self._play(self._policy, mean[None], jobs)

    def dream_validation_returns(self, mean: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
        """Returns of the mean in dreams, the same in every validation."""
        assert self._initial_states is not None
        random = generator(self._seed, "validation dreams")
        rows = random.integers(0, len(self._initial_states), VALIDATION_DREAMS)
        return self._dream(np.repeat(mean[None], len(rows), axis=0), self._initial_states.take(rows), -1, temperature)

    def whitener(self, mean: NDArray[np.float32]) -> tuple[Matrix, int]:
        """The whitener of C's inputs in episodes of the mean, and their environment steps."""
        inputs, steps = self.inputs_of(mean)
        return whitener_of(inputs), steps

    def initial_whitener(self, latents: Latents) -> Matrix:
        """The whitener of C's inputs in the episodes of a dataset."""
        episodes = np.unique(np.linspace(0, len(latents.ends) - 1, WHITENING_EPISODES).astype(np.int64))
        inputs = []
        for first, end in zip(latents.starts[episodes], latents.ends[episodes], strict=True):
            inputs.append(self._inputs(latents.means[first:end], latents.actions[first:end]))
        return whitener_of(inputs)

    def inputs_of(self, mean: NDArray[np.float32]) -> tuple[list[NDArray[np.float32]], int]:
        """C's inputs (T, N) in each episode of the mean, and the episodes' environment steps. As many episodes as in a
        validation are played, on training seeds."""
        policy = replace(self._policy, parameters=tuple(mean.tolist()))
        jobs = [
            EpisodeJob(number, episode_seed("train", self._seed, "given", number))
            for number in range(self.settings.validation_episodes)
        ]
        tasks = [(policy, [job], self.settings.max_steps) for job in jobs]
        inputs, steps = [], 0
        # By number, whatever worker was first: sums depend on their order.
        for _, (episode,) in sorted(map_playing(self._workers, encode_rollouts, tasks), key=lambda result: result[0]):
            inputs.append(self._inputs(episode.means, episode.actions))
            steps += episode.env_steps
        return inputs, steps

    def _inputs(self, means: NDArray[np.float32], actions: NDArray[np.generic]) -> NDArray[np.float32]:
        """C's inputs in an episode of T + 1 rows."""
        encoded = torch.from_numpy(self._controller.space.encode(actions[:-1]))
        return controller_inputs(self._memory, means[:-1], encoded).astype(np.float32)

    def _play(
        self,
        policy: PolicySpec,
        candidates: NDArray[np.float32],
        jobs: list[EpisodeJob],
        max_steps: int = 0,
        max_idle: int = 0,
    ) -> tuple[NDArray[np.float64], int]:
        tasks = play_tasks(self._workers, policy, candidates, jobs, 1, max_steps, max_idle)
        returns, steps = np.zeros(len(jobs)), 0
        for _, results in map_playing(self._workers, play_jobs, tasks):
            for result in results:
                returns[result.key] = result.episode_return
                steps += result.env_steps
        return returns, steps

    def _dream(
        self, policies: NDArray[np.float32], initial: InitialStates, generation: int, temperature: float
    ) -> NDArray[np.float64]:
        dreams = rollout_dreams(
            self._mdnrnn,
            self._controller,
            torch.from_numpy(policies),
            initial,
            temperature,
            self._policy.env.shorter(self.max_steps(max(generation, 0))) or MAX_DREAM_STEPS,
            self._seed, "dream", generation + 1,
            dtype=pick("auto", torch.device("cpu")).dtype,
        )  # fmt: skip
        return dreams.returns
