"""What candidates return, in the real environment or in the dream."""

import numpy as np
import torch
from numpy.typing import NDArray

from stages.players import Player, play_jobs, share_out
from stages.session import Session
from stages.starts import load_starts
from stages.trained import TrainedMdnRnn, controller_for
from wm.dreams import Starts, imagine
from wm.rollouts import Job
from wm.seeding import episode_seed, generator
from wm.settings import ControllerSettings
from wm.training.precision import pick
from wm.workers import Workers


class Evaluation:
    """Returns of candidates, real or dreamed, on seeds that all candidates of a generation share."""

    def __init__(
        self, session: Session, settings: ControllerSettings, player: Player, workers: Workers, mdnrnn: TrainedMdnRnn
    ) -> None:
        self.session, self.settings, self.player, self._workers = session, settings, player, workers
        self._mdnrnn = mdnrnn.model
        self._controller = controller_for(mdnrnn, player.head, player.env)
        self._starts = load_starts(session, mdnrnn) if settings.in_ == "dream" else None

    def generation(self, candidates: NDArray[np.float32], number: int) -> tuple[NDArray[np.float64], int]:
        """Mean return of every candidate and the real environment steps it cost."""
        settings = self.settings
        if self._starts is not None:
            return self._dreamed(candidates, number, self._starts), 0
        seeds = [
            episode_seed("train", self.session.seed, "controller", number, episode)
            for episode in range(settings.episodes_per_eval)
        ]
        jobs = [
            Job(candidate * len(seeds) + episode, seed, candidate)
            for candidate in range(len(candidates))
            for episode, seed in enumerate(seeds)
        ]
        returns, steps = self._real(candidates, jobs, settings.max_steps)
        return returns.reshape(len(candidates), -1).mean(axis=1), steps

    def validation(self, mean: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """Returns of the mean in full real episodes on the validation seeds, the same ones every time."""
        jobs = [
            Job(number, episode_seed("validation", self.session.seed, "controller", number))
            for number in range(self.settings.validation_episodes)
        ]
        return self._real(mean[None], jobs, 0)

    def _real(
        self, candidates: NDArray[np.float32], jobs: list[Job], max_steps: int
    ) -> tuple[NDArray[np.float64], int]:
        tasks = [(self.player, candidates, share, max_steps) for share in share_out(jobs, self._workers.count)]
        returns, steps = np.zeros(len(jobs)), 0
        for _, outcomes in self._workers.map(play_jobs, tasks):
            for outcome in outcomes:
                returns[outcome.key] = outcome.total
                steps += outcome.length
        return returns, steps

    def _dreamed(self, candidates: NDArray[np.float32], number: int, starts: Starts) -> NDArray[np.float64]:
        settings = self.settings
        count = settings.episodes_per_eval
        drawn = generator(self.session.seed, "dream starts", number).integers(0, len(starts.z), count)
        imagined = imagine(
            self._mdnrnn,
            self._controller,
            torch.from_numpy(np.repeat(candidates, count, axis=0)),
            starts.take(np.tile(drawn, len(candidates))),
            settings.temperature,
            settings.max_steps or 1000,
            self.session.seed, "dream", number,
            dtype=pick("auto", torch.device("cpu")).dtype,
        )  # fmt: skip
        return imagined.returns.reshape(len(candidates), count).mean(axis=1)
