"""The evolution of C, generation by generation, with a log from which it goes on after a kill."""

import io
import json
import time
from pathlib import Path

import numpy as np

from stages import console
from stages.session import Session
from wm.artifacts import durable
from wm.errors import BadData, MemoryProblem
from wm.evolution.cma_es import Search, digest, replay
from wm.evolution.fitness import Fitness
from wm.evolution.history import History
from wm.evolution.stopping import LOG, Line, due, read_log, why_ended
from wm.evolution.whitening import Matrix
from wm.settings import ControllerSettings
from wm.telemetry.memory_guard import MemoryGuard
from wm.telemetry.metrics_log import MetricsLog

BASIS = "basis-{}.npy"  # after this generation


class Evolution:
    """Evolves C until a limit of the settings is reached. `history` is what came of it, `trusted` whether candidates
    play in the dream."""

    def __init__(
        self, session: Session, settings: ControllerSettings, evaluation: Fitness, temperature: float, folder: Path
    ) -> None:
        self.session, self.settings, self.folder = session, settings, folder
        self.history, self.trusted = History(), settings.in_ != "real"
        self._evaluation, self._temperature = evaluation, temperature

    def ended(self, more_seconds: float = 0.0, more_steps: int = 0) -> str:
        """Why there is no further generation; empty if there is one."""
        return why_ended(self.settings, self.history, more_seconds, more_steps)

    def agrees(self, search: Search) -> bool:
        """Whether `search`, which is of no use afterwards, asks for the candidates that are logged. Others are asked
        for by another version of cma or numpy."""
        try:
            self._replay(search)
        except BadData:
            return False
        return True

    def _replay(self, search: Search) -> None:
        for line in logged(self.folder):
            if line["generation"]:
                replay(search, line["candidates"], line["returns"])
            self._take(line, search)

    def run(self, search: Search, warm: bool) -> None:
        """Replay what is logged and go on from there. A `warm` start is validated before it moves."""
        self._replay(search)
        label = f"train-controller {self.session.env}"
        self._metrics = MetricsLog(self.folder, self.history.generation)
        self._guard = MemoryGuard(self.session.runtime, self.folder, self.settings.max_generations)
        if self.history.lines:
            console.say(f"{label}: goes on at generation {search.generation}")
        elif warm:
            self._log(search, {"generation": 0, "in": "none", "returns": [], "env_steps": 0})
        with console.progress(label, self.settings.max_generations, "generations", search.generation) as progress:
            while not self.ended():
                self.session.stop.raise_if_stopped()
                self._generation(search)
                mean = float(np.mean(self.history.lines[-1]["returns"]))
                best = "none yet" if self.history.best is None else f"{self.history.best_score:.1f}"
                progress.update(search.generation, mean=f"{mean:.1f}", validated=best)
        self._metrics.close()

    def _generation(self, search: Search) -> None:
        began, number, candidates = time.monotonic(), search.generation, search.ask()
        if self.trusted:
            returns, steps = self._evaluation.dreamt(candidates, number, self._temperature), 0
        else:
            returns, steps = self._evaluation.real(candidates, number)
        search.tell(returns)
        line = {
            "generation": search.generation,
            "in": "dream" if self.trusted else "real",
            "candidates": digest(candidates),
            "returns": [float(value) for value in returns],
            "env_steps": steps,
        }
        self._log(search, line, began)

    def _log(self, search: Search, line: Line, began: float | None = None) -> None:
        """Validate the mean if it is time to, write the line, and take it."""
        began = time.monotonic() if began is None else began
        ended = self.ended(time.monotonic() - began, line["env_steps"])
        if due(self.settings, line["generation"]) or ended in ("hours", "steps"):
            if self.settings.in_ == "dream":
                validated, steps = self._evaluation.dreamt_validation(search.mean, self._temperature), 0
            else:
                validated, steps = self._evaluation.validation(search.mean)
            line["validation"] = [float(value) for value in validated]
            line["env_steps"] += steps
        if line["generation"] in self.settings.whitened_later:
            basis, steps = self._evaluation.basis(search.mean)
            line["env_steps"] += steps
            keep_basis(self.folder, line["generation"], basis)
        line["seconds"] = round(time.monotonic() - began, 3)
        durable.append_line(self.folder / LOG, json.dumps(line))
        trusted = self.trusted
        self._take(line, search)
        if trusted and not self.trusted:
            console.say(
                f"warning: the dream is being exploited: what candidates return there has risen since generation "
                f"{self.history.best_generation}, but in reality the mean got worse; the rest is evolved in reality."
            )
        told = {"env_steps": float(self.history.env_steps)}
        for name in ("returns", "validation"):
            if line.get(name):
                told |= {f"{name}_mean": float(np.mean(line[name])), f"{name}_best": float(np.max(line[name]))}
        if alarm := self._guard.look(self._metrics.write(line["generation"], told)):
            self._metrics.close()
            raise MemoryProblem(f"train-controller {self.session.env}: {alarm}")

    def _take(self, line: Line, search: Search) -> None:
        self.history.add(line, search.mean)
        if line["generation"] in self.settings.whitened_later:
            search.whiten(load_basis(self.folder, line["generation"]))
        ends = self.settings.restart_ends
        if line["generation"] in ends:
            if line["generation"] == ends[-1]:
                search.continue_candidate_search(self.history.best_start(ends))
            else:
                search.restart()
        if self.settings.in_ == "mixed" and self.trusted and self.history.exploited(max(ends, default=0)):
            self.trusted = False


def keep_basis(folder: Path, generation: int, basis: Matrix) -> None:
    """Write what the search is evened out with after this generation: its bits are part of what it goes on from."""
    file = io.BytesIO()
    np.save(file, basis)
    durable.write_bytes(folder / BASIS.format(generation), file.getvalue())


def load_basis(folder: Path, generation: int) -> Matrix:
    """What `keep_basis` wrote."""
    found: Matrix = np.load(folder / BASIS.format(generation))
    return found


def logged(folder: Path) -> list[Line]:
    """The whole lines of the log, in a file that ends with a whole line."""
    path = folder / LOG
    lines, whole = read_log(path)
    if path.exists() and path.stat().st_size > len(whole):
        durable.write_bytes(path, whole)
    return lines
