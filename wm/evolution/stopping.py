"""Stopping criteria of a search, and how one with other limits resumes from the generations of an earlier one."""

from collections.abc import Container, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from wm.artifacts import chained_log, durable
from wm.artifacts.manifest import sha256_file
from wm.artifacts.related import differing_only_in
from wm.artifacts.runs import Run
from wm.errors import BadData, UsageProblem
from wm.evolution.history import History
from wm.evolution.search_log import LOG, WHITENER, Line, read_log
from wm.evolution.temperature import copy_choice
from wm.settings import ControllerSettings
from wm.telemetry import metrics_log

LIMITS = ("max_generations", "max_hours", "max_env_steps", "target_return")


def stop_reason(
    settings: ControllerSettings, history: History, extra_seconds: float = 0.0, extra_steps: int = 0
) -> str:
    """The stopping criterion that is met: generations (but not by policy gradient), hours, steps or target; empty if
    none is. The extra seconds and steps are those of the current generation."""
    if not settings.policy_gradient and history.generation >= settings.max_generations:
        return "generations"
    if settings.max_hours and history.seconds + extra_seconds >= settings.max_hours * 3600:
        return "hours"
    if settings.step_limit and history.env_steps + extra_steps >= settings.step_limit:
        return "steps"
    target = settings.target_return
    return "target" if target is not None and history.best_score >= target else ""


def validation_due(generation: int, *, every: int, restart_ends: Container[int], last: int) -> bool:
    """Whether the mean is validated after this generation, even if no time or step limit is reached: regularly, where
    a candidate search ends, and after the last one."""
    return generation % every == 0 or generation in restart_ends or generation == last


def files_of(folder: Path, whitened: Iterable[int], generation: int, first: bool) -> dict[str, dict[str, str]]:
    """What a line says of the files that the search reads from this generation on: their digests, as `files`. It reads
    a whitener after each of the generations `whitened`; that of 0 belongs to the first line."""
    generations = [number for number in whitened if number == generation or (first and number == 0)]
    names = [WHITENER.format(number) for number in generations]
    return {"files": {name: sha256_file(folder / name) for name in names}} if names else {}


def resume_from_other_limits(run: Run, settings: ControllerSettings, folder: Path) -> tuple[int, Path | None]:
    """Copy into `folder`, unless it has a log, the longest prefix of generations that a search with other limits has
    played as this one would; that search may be finished or not. Returns the number of generations and the folder of
    that search; (0, None) if there is none. A search whose files were changed does not count."""
    if (folder / LOG).exists():
        return 0, None
    longest, lines, source = 0, list[Line](), None
    for other, other_settings in differing_only_in(LIMITS, run):
        limits = {name: other_settings[name] for name in LIMITS if name in other_settings}
        try:
            others, early = read_log(other), replace(settings, **limits).early
        except (BadData, UsageProblem):
            # What was changed is no search to go on from; this one begins anew.
            continue
        if (count := _common_prefix(others, settings, early)) > longest:
            longest, lines, source = count, others[:count], other
    if source is not None:
        _copy_search(source, lines, settings.whitened, folder)
    return longest, source


def _copy_search(source: Path, lines: list[Line], whitened: Iterable[int], folder: Path) -> None:
    """Copy the files of a search, and these lines of its log as those of the artifact in `folder`."""
    for path in sorted(source.glob(WHITENER.format("*"))):
        durable.write_bytes(folder / path.name, durable.read_bytes(path))
    metrics_log.copy(source, folder)
    copy_choice(source, folder)
    own = [
        line | files_of(folder, whitened, line["generation"], first=number == 0) for number, line in enumerate(lines)
    ]
    log = chained_log.chain_all(chained_log.start(folder), own)
    durable.write_bytes(folder / LOG, log)  # last: a kill before it leaves no log


def _common_prefix(lines: list[Line], settings: ControllerSettings, logged_early: int) -> int:
    """How many of the first lines these settings would produce too. The search that logged them had so many generations
    before its final phase."""
    final_phase = settings.final_phase_episodes > 1 or settings.final_phase_steps > 1
    last = min(settings.early, logged_early) if final_phase and settings.early != logged_early else np.inf
    every, ends, limit = settings.validate_every, settings.restart_ends, settings.max_generations
    history, no_mean = History(), np.zeros(1, np.float32)
    for count, line in enumerate(lines):
        validated, generation = "validation" in line, line["generation"]
        due = validation_due(generation, every=every, restart_ends=ends, last=limit)
        if generation > last or validated != due or stop_reason(settings, history):
            return count
        history.add(line, no_mean)
        if not validated and stop_reason(settings, history):
            return count
    return len(lines)
