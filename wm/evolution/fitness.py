"""What candidates return, in the real environment or in the dream."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from stages.session import Session
from wm.dreams.env import InitialStates, imagine
from wm.dreams.initial_states import early_initial_states, load_newest_latents
from wm.episodes.latents import Latents
from wm.evolution.transfer import controller_inputs
from wm.evolution.whitening import Matrix, whitener_of
from wm.pretrained import TrainedMdnRnn, build_controller, controller_memory
from wm.rollouts.loop import EpisodeJob
from wm.rollouts.players import PolicySpec, encode_rollouts, play_jobs, split_jobs
from wm.rollouts.workers import Workers
from wm.seeding import episode_seed, generator
from wm.settings import ControllerSettings
from wm.training.precision import pick

LONGEST_DREAM = 1000  # steps, where training episodes have no limit of their own
LOOKED_AT = 256  # episodes, equally spaced, whose latents even out a search from its start
DREAMS_PER_CANDIDATE = 32  # in a generation: fewer rank candidates by their initial states
DREAMT_VALIDATION = 256  # dreams, where a validation may not touch reality


def most_steps(settings: ControllerSettings, longest: int) -> int:
    """The most real steps of a search whose episodes have at most `longest`: of its validations and its candidates."""
    validations = (settings.max_generations // settings.validate_every + 1 + len(settings.restart_ends)) * longest
    validations *= settings.validation_episodes
    if settings.in_ != "real":
        return validations
    episode = settings.max_steps or longest
    late = settings.final_phase_episodes * min(settings.final_phase_steps * episode, longest)
    generations = settings.early * min(episode, longest) + (settings.max_generations - settings.early) * late
    return validations + generations * settings.popsize * settings.episodes_per_eval


class Fitness:
    """Returns of candidates, real or dreamed, on seeds that all candidates of a generation share."""

    def __init__(
        self,
        session: Session,
        settings: ControllerSettings,
        player: PolicySpec,
        workers: Workers,
        mdnrnn: TrainedMdnRnn,
    ) -> None:
        self.session, self.settings, self._player, self._workers = session, settings, player, workers
        env = replace(player.env, render="fast") if settings.render == "fast" else player.env
        self._candidate = replace(player, env=env)
        self._mdnrnn, self._memory = mdnrnn.model, controller_memory(mdnrnn, player.form)
        self._controller = build_controller(mdnrnn, player.form, player.env)
        self._starts: InitialStates | None = None
        if settings.in_ != "real":
            self._starts = early_initial_states(load_newest_latents(session, mdnrnn), mdnrnn)

    def episodes(self, number: int) -> int:
        """How many episodes a candidate plays in a generation."""
        late = number >= self.settings.early
        return self.settings.episodes_per_eval * (self.settings.final_phase_episodes if late else 1)

    def longest(self, number: int) -> int:
        """After how many steps a generation's episodes are cut; 0: the environment's own limit."""
        return self.settings.max_steps * (self.settings.final_phase_steps if number >= self.settings.early else 1)

    def real(self, candidates: NDArray[np.float32], number: int) -> tuple[NDArray[np.float64], int]:
        """Mean return of every candidate in reality, and the steps it cost."""
        seeds = [
            episode_seed("train", self.session.seed, "controller", number, episode)
            for episode in range(self.episodes(number))
        ]
        jobs = [
            EpisodeJob(candidate * len(seeds) + episode, seed, candidate)
            for candidate in range(len(candidates))
            for episode, seed in enumerate(seeds)
        ]
        max_idle = self._player.env.max_idle
        returns, steps = self._play(self._candidate, candidates, jobs, self.longest(number), max_idle)
        return returns.reshape(len(candidates), -1).mean(axis=1), steps

    def dreamt(
        self, candidates: NDArray[np.float32], number: int, temperature: float, episodes: int = 0
    ) -> NDArray[np.float64]:
        """Mean return of every candidate in the dream; all begin at the same places."""
        assert self._starts is not None
        count = episodes or DREAMS_PER_CANDIDATE
        drawn = generator(self.session.seed, "dream starts", number).integers(0, len(self._starts.z), count)
        starts = self._starts.take(np.tile(drawn, len(candidates)))
        returns = self._imagine(np.repeat(candidates, count, axis=0), starts, number, temperature)
        return returns.reshape(len(candidates), count).mean(axis=1)

    def validation(self, mean: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """Returns of the mean in full real episodes on the validation seeds, the same ones every time."""
        jobs = [
            EpisodeJob(number, episode_seed("validation", self.session.seed, "controller", number))
            for number in range(self.settings.validation_episodes)
        ]
        return self._play(self._player, mean[None], jobs)

    def basis(self, mean: NDArray[np.float32]) -> tuple[Matrix, int]:
        """What evens out the search, by what C is given when the mean plays; and the steps it cost."""
        given, steps = self.given(mean)
        return whitener_of(given, self._controller.inputs), steps

    def basis_at_the_start(self, latents: Latents) -> Matrix:
        """What evens out the search from its start, by what C is given in these episodes."""
        chosen = np.unique(np.linspace(0, len(latents.ends) - 1, LOOKED_AT).astype(np.int64))
        given = []
        for first, end in zip(latents.starts[chosen], latents.ends[chosen], strict=True):
            actions = torch.from_numpy(latents.space.encode(latents.actions[first : end - 1]))
            given.append(self._given(latents.means[first : end - 1], actions))
        return whitener_of(given, self._controller.inputs)

    def _given(self, z: NDArray[np.float32], actions: torch.Tensor) -> NDArray[np.float32]:
        """What C is given along an episode, z (T, Z) and encoded actions (T, A)."""
        return controller_inputs(self._memory, z, actions).astype(np.float32)

    def given(self, mean: NDArray[np.float32]) -> tuple[list[NDArray[np.float32]], int]:
        """What C is given, (T, numbers) in each episode; and the steps it
        cost. The mean plays as many episodes as in a validation, on training seeds."""
        player = replace(self._player, parameters=tuple(mean.tolist()))
        jobs = [
            EpisodeJob(number, episode_seed("train", self.session.seed, "given", number))
            for number in range(self.settings.validation_episodes)
        ]
        tasks = [(player, [job], self.settings.max_steps) for job in jobs]
        found, steps = [], 0
        for _, (seen,) in sorted(self._workers.map(encode_rollouts, tasks), key=lambda result: result[0]):
            actions = torch.from_numpy(self._controller.space.encode(seen.actions[:-1]))
            found.append(self._given(seen.means[:-1], actions))
            steps += len(found[-1])
        return found, steps * self._player.env.action_repeat

    def dreamt_validation(self, mean: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
        """Returns of the mean in dreams, the same ones every time."""
        assert self._starts is not None
        rows = generator(self.session.seed, "validation dreams").integers(0, len(self._starts.z), DREAMT_VALIDATION)
        return self._imagine(np.repeat(mean[None], len(rows), axis=0), self._starts.take(rows), -1, temperature)

    def _play(
        self,
        player: PolicySpec,
        candidates: NDArray[np.float32],
        jobs: list[EpisodeJob],
        max_steps: int = 0,
        max_idle: int = 0,
    ) -> tuple[NDArray[np.float64], int]:
        shares = split_jobs(jobs, self._workers.count)
        tasks = [(player, candidates, share, max_steps, max_idle) for share in shares]
        returns, steps = np.zeros(len(jobs)), 0
        for _, outcomes in self._workers.map(play_jobs, tasks):
            for outcome in outcomes:
                returns[outcome.key] = outcome.episode_return
                steps += outcome.length
        return returns, steps * player.env.action_repeat

    def _imagine(
        self, policies: NDArray[np.float32], starts: InitialStates, number: int, temperature: float
    ) -> NDArray[np.float64]:
        imagined = imagine(
            self._mdnrnn,
            self._controller,
            torch.from_numpy(policies),
            starts,
            temperature,
            self.longest(max(number, 0)) or LONGEST_DREAM,
            self.session.seed, "dream", number + 1,
            dtype=pick("auto", torch.device("cpu")).dtype,
        )  # fmt: skip
        return imagined.returns
