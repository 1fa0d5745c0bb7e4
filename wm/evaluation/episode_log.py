"""The episodes that an unfinished artifact has played so far: a killed command goes on with the others."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from wm.artifacts import chained_log, durable
from wm.artifacts.json_reader import COUNT, FLAG, NUMBER, table
from wm.rollouts.loop import EpisodeJob, EpisodeResult

LOG = "episodes.jsonl"
_LINE = table(
    {
        "key": COUNT,
        "episode_return": NUMBER,
        "length": COUNT,
        "env_steps": COUNT,
        "terminated": FLAG,
        "truncated": FLAG,
    }
)


class EpisodeLog:
    """Results of episodes by their keys, in a log of the artifact's `folder`; without one, in memory alone. The
    artifact's recipe has to tell what was played. Raises BadData for a log that was changed."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._digest = folder, ""
        self._results: dict[int, EpisodeResult] = {}
        if folder is not None:
            lines = chained_log.resume(folder, LOG, _LINE, f"restore it, or remove {folder} to play again")
            self._digest = lines[-1].digest if lines else chained_log.start(folder)
            self._results = {line.value["key"]: EpisodeResult(**line.value) for line in lines}

    def missing(self, jobs: Iterable[EpisodeJob]) -> list[EpisodeJob]:
        """The jobs that are still to be played."""
        return [job for job in jobs if job.key not in self._results]

    def results(self, jobs: Iterable[EpisodeJob]) -> list[EpisodeResult]:
        """The results of jobs that were played, in their order."""
        return [self._results[job.key] for job in jobs]

    def add(self, results: Iterable[EpisodeResult]) -> None:
        """Record finished episodes."""
        data = b""
        for result in results:
            self._results[result.key] = result
            line = chained_log.chain(self._digest, asdict(result))
            self._digest, data = line.digest, data + line.data
        if self._folder is not None and data:
            durable.append(self._folder / LOG, data)

    def remove(self) -> None:
        """Remove the file: the artifact has what matters of it."""
        if self._folder is not None:
            durable.remove(self._folder / LOG)
