"""The evolution of C, generation by generation, with a log from which it resumes after a kill."""

import io
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from wm.artifacts import chained_log, durable
from wm.artifacts.chained_log import chain
from wm.errors import BadData, MemoryProblem
from wm.evolution.cma_es import Search, digest, replay
from wm.evolution.fitness import Fitness
from wm.evolution.history import History, Vector
from wm.evolution.search_log import LINE, LOG, WHITENER, Line, check_lines, way_out
from wm.evolution.stopping import files_of, stop_reason, validation_due
from wm.evolution.whitening import Matrix
from wm.runtime import Runtime
from wm.settings import ControllerSettings
from wm.telemetry.memory_guard import MemoryGuard
from wm.telemetry.metrics_log import MetricsLog


class Evolution:
    """Evolves C until a stopping criterion of the settings is met. `label` names it in messages. `history` holds its
    generations, `means` the distribution's mean after each; `trusts_dream` says whether candidates play in the dream,
    and `earlier_seconds` what the sessions before this one took."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ControllerSettings,
        fitness: Fitness,
        temperature: float,
        folder: Path,
        label: str = "train-controller",
    ) -> None:
        self.settings, self.folder = settings, folder
        self.history, self.trusts_dream = History(), settings.in_ != "real"
        self.means: list[Vector] = []
        self.earlier_seconds = 0.0
        self._runtime, self._fitness, self._temperature, self._label = runtime, fitness, temperature, label

    def spaced_means(self, count: int) -> tuple[list[int], NDArray[np.float32]]:
        """Equally spaced generations, at most `count`, and the means after them, (N, parameters)."""
        rows = np.unique(np.linspace(0, len(self.means) - 1, count).round().astype(int))
        return [self.history.lines[row]["generation"] for row in rows], np.stack([self.means[row] for row in rows])

    def stop_reason(self, extra_seconds: float = 0.0, extra_steps: int = 0) -> str:
        """The stopping criterion that is met; empty if none is."""
        return stop_reason(self.settings, self.history, extra_seconds, extra_steps)

    def log_fits(self, search: Search) -> bool:
        """Whether `search` asks for the candidates in the log; another version of cma or numpy may not. Uses up the
        search."""
        try:
            self._replay(search)
        except BadData:
            # An answer and no error: another search is begun instead.
            return False
        return True

    def _replay(self, search: Search) -> None:
        lines = logged(self.folder)
        self._digest = lines[-1].digest if lines else chained_log.start(self.folder)
        for chained in lines:
            line = chained.value
            if line["generation"]:
                replay(search, line["candidates"], line["returns"])
            self._update(line, search)

    def run(self, search: Search, validate_start: bool, began: float | None = None) -> None:
        """Replay the log and continue from there. With `validate_start` the first mean is validated as generation 0.
        `began` is when this session began, by the Runtime's clock; without, it does now."""
        self._replay(search)
        runtime, step = self._runtime, self.history.generation
        self._metrics = MetricsLog(
            self.folder, step, log=runtime.log, track=runtime.track, clock=runtime.clock, began=began
        )
        self.earlier_seconds = self._metrics.earlier_seconds
        with closing(self._metrics):
            self._continue(search, validate_start)

    def _continue(self, search: Search, validate_start: bool) -> None:
        total = self.settings.max_generations
        self._guard = MemoryGuard(self._runtime, self.folder, total)
        if self.history.lines:
            self._runtime.log(f"{self._label}: resumes at generation {search.generation}")
        elif validate_start:
            self._finish(search, {"generation": 0, "in": "none", "returns": [], "env_steps": 0}, self._runtime.clock())
        with self._runtime.progress(self._label, total, "generations", search.generation) as progress:
            while not self.stop_reason():
                self._runtime.raise_if_stopped()
                self._evolve_generation(search)
                mean = float(np.mean(self.history.lines[-1]["returns"]))
                best = "none yet" if self.history.best is None else f"{self.history.best_score:.1f}"
                progress.update(search.generation, best_validation=best, mean=f"{mean:.1f}")

    def _evolve_generation(self, search: Search) -> None:
        began, generation, candidates = self._runtime.clock(), search.generation, search.ask()
        if self.trusts_dream:
            returns, steps = self._fitness.dream_returns(candidates, generation, self._temperature), 0
        else:
            returns, steps = self._fitness.real_returns(candidates, generation)
        search.tell(returns)
        line = {
            "generation": search.generation,
            "in": "dream" if self.trusts_dream else "real",
            "candidates": digest(candidates),
            "returns": [float(value) for value in returns],
            "env_steps": steps,
        }
        self._finish(search, line, began)

    def _finish(self, search: Search, line: Line, began: float) -> None:
        """Validate and whiten if they are due, write the log's line, and update the history and the search with it."""
        generation = line["generation"]
        if generation in self.settings.whitened_later:
            whitener, steps = self._fitness.whitener(search.mean)
            line["env_steps"] += steps
            save_whitener(self.folder, generation, whitener)  # before its line: a resumed search reads it
        seconds = round(self._runtime.clock() - began, 3)  # as recorded: a search that they end has to be validated
        reason = self.stop_reason(seconds, line["env_steps"])
        if self._validation_due(generation) or reason in ("hours", "steps"):
            self._validate(search, line)
            seconds = round(self._runtime.clock() - began, 3)
        line["seconds"] = seconds
        line |= files_of(self.folder, self.settings.whitened, generation, first=not self.history.lines)
        chained = chain(self._digest, line)
        durable.append(self.folder / LOG, chained.data)
        self._digest = chained.digest
        trusted = self.trusts_dream
        self._update(line, search)
        if trusted and not self.trusts_dream:
            self._runtime.log(
                "warning: the search exploits the dream: returns there have risen since generation "
                f"{self.history.best_generation}, but the mean's real returns have fallen. The remaining generations "
                "are evolved in the real environment."
            )
        self._write_metrics(line)

    def _validation_due(self, generation: int) -> bool:
        settings = self.settings
        return validation_due(
            generation,
            every=settings.validate_every,
            restart_ends=settings.restart_ends,
            last=settings.max_generations,
        )

    def _validate(self, search: Search, line: Line) -> None:
        if self.settings.in_ == "dream":
            returns, steps = self._fitness.dream_validation_returns(search.mean, self._temperature), 0
        else:
            returns, steps = self._fitness.validation_returns(search.mean)
        line["validation"] = [float(value) for value in returns]
        line["env_steps"] += steps

    def _update(self, line: Line, search: Search) -> None:
        """Everything here follows from the log's lines, so a resumed search decides as the interrupted one."""
        self.history.add(line, search.mean)
        self.means.append(search.mean)
        if line["generation"] in self.settings.whitened_later:
            search.restart_whitened(load_whitener(self.folder, line["generation"], line, len(search.mean)))
        ends = self.settings.restart_ends
        if line["generation"] in ends:
            if line["generation"] == ends[-1]:
                search.continue_candidate_search(self.history.best_candidate_search(ends))
            else:
                search.restart()
        if self.settings.in_ == "mixed" and self.trusts_dream and self.history.exploited(max(ends, default=0)):
            self.trusts_dream = False

    def _write_metrics(self, line: Line) -> None:
        figures = {"env_steps": float(self.history.env_steps)}
        for name in ("returns", "validation"):
            if line.get(name):
                figures |= {f"{name}_mean": float(np.mean(line[name])), f"{name}_best": float(np.max(line[name]))}
        if alarm := self._guard.check(self._metrics.write(line["generation"], figures)):
            raise MemoryProblem(f"{self._label}: {alarm}")


def save_whitener(folder: Path, generation: int, whitener: Matrix) -> None:
    """Write the whitener after this generation. A resumed search needs its every bit, so it is not computed again."""
    file = io.BytesIO()
    np.save(file, whitener)
    durable.write_bytes(folder / WHITENER.format(generation), file.getvalue())


def load_whitener(folder: Path, generation: int, line: Line | None, parameters: int) -> Matrix:
    """What `save_whitener` wrote. Raises BadData for anything else than a finite square matrix for a C of so many
    parameters, and unless the log's `line` names the file."""
    path = folder / WHITENER.format(generation)
    if line is not None and path.name not in line.get("files", {}):
        raise BadData(f"no line of {folder / LOG} names {path.name}; {way_out(folder)}.")
    try:
        # allow_pickle=False: an npy file may hold objects, and unpickling them runs code.
        whitener: Matrix = npy.read_array(io.BytesIO(durable.read_bytes(path)), allow_pickle=False)
    except (ValueError, MemoryError) as error:
        raise BadData(f"{path} is no npy file ({str(error)[:120]}); {way_out(folder)}.") from None
    side = len(whitener) if whitener.ndim else 0
    fits = whitener.shape == (side, side) and whitener.dtype == np.float64 and side and parameters % side == 0
    if not fits or not np.isfinite(whitener).all():
        kind = f"shape {whitener.shape} and type {whitener.dtype}"
        raise BadData(
            f"{path} has {kind}; expected a finite square matrix of float64 whose side divides {parameters} "
            f"parameters, so {way_out(folder)}."
        )
    return whitener


def logged(folder: Path) -> list[chained_log.Line]:
    """The complete lines of an unfinished search's log; an incomplete last line is cut off the file. Raises BadData
    naming the line or file that was changed."""
    lines = chained_log.resume(folder, LOG, LINE, way_out(folder))
    check_lines(folder, [line.value for line in lines])
    return lines
