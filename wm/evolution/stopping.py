"""When a search of C ends, and how one whose limits are moved goes on from what was played under others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wm.artifacts import durable
from wm.artifacts.related import differing_only_in
from wm.artifacts.runs import Run
from wm.evolution.history import History
from wm.settings import ControllerSettings

LIMITS = ("max_generations", "max_hours", "budget_steps", "target_return")
LOG = "generations.jsonl"
BESIDE = ("metrics.jsonl", "temperature.json", "basis-*.npy")  # what a search that goes on reads beside its log

Line = dict[str, Any]


def why_ended(settings: ControllerSettings, history: History, more_seconds: float = 0.0, more_steps: int = 0) -> str:
    """Why there is no further generation: generations, hours, steps or target; empty if there is one."""
    if history.generation >= settings.max_generations:
        return "generations"
    if settings.max_hours and history.seconds + more_seconds >= settings.max_hours * 3600:
        return "hours"
    if settings.max_env_steps and history.env_steps + more_steps >= settings.max_env_steps:
        return "steps"
    target = settings.target_return
    return "target" if target is not None and history.best_score >= target else ""


def due(settings: ControllerSettings, generation: int) -> bool:
    """Whether the mean is validated after this generation, whatever else ends with it."""
    regular = generation % settings.validate_every == 0 or generation in settings.restart_ends
    return regular or generation == settings.max_generations


def read_log(path: Path) -> tuple[list[Line], bytes]:
    """The whole lines of a log, none if there is no log, and the bytes they are in, without a torn last line."""
    if not path.exists():
        return [], b""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], whole


def resume_from_other_limits(run: Run, settings: ControllerSettings, folder: Path) -> tuple[int, Path | None]:
    """Copy into `folder`, unless it has a log, the generations that a search with other limits, finished or not, has
    played just as this one would, and what it goes on from. Returns how many, and whose; (0, None) without any."""
    if (folder / LOG).exists():
        return 0, None
    most, log, source = 0, b"", None
    for found, others in differing_only_in(LIMITS, run):
        try:
            lines, whole = read_log(found / LOG)
        except ValueError:
            continue  # what is unfinished has no checksum
        before = replace(settings, **{name: others[name] for name in LIMITS if name in others})
        if (count := _alike(lines, settings, before)) > most:
            most, log, source = count, b"".join(whole.splitlines(keepends=True)[:count]), found
    if source is not None:
        for path in sorted(path for pattern in BESIDE for path in source.glob(pattern)):
            durable.write_bytes(folder / path.name, path.read_bytes())
        durable.write_bytes(folder / LOG, log)  # the last: without it nothing was taken over
    return most, source


def _alike(lines: list[Line], settings: ControllerSettings, before: ControllerSettings) -> int:
    """How many of the first lines, logged with the settings of `before`, are what `settings` make too."""
    late = settings.final_phase_episodes > 1 or settings.final_phase_steps > 1
    agree = min(settings.early, before.early) if late and settings.early != before.early else np.inf
    history, nowhere = History(), np.zeros(1, np.float32)
    for count, line in enumerate(lines):
        validated, generation = "validation" in line, line["generation"]
        if generation > agree or validated != due(settings, generation) or why_ended(settings, history):
            return count
        history.add(line, nowhere)
        if not validated and why_ended(settings, history):
            return count
    return len(lines)
