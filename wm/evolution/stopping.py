"""Stopping criteria of a search, and how one with other limits resumes from the generations of an earlier one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wm.artifacts import durable, json_reader
from wm.artifacts.json_reader import COUNT, NUMBER, TEXT, list_of, one_of, table
from wm.artifacts.related import differing_only_in
from wm.artifacts.runs import Run
from wm.errors import BadData
from wm.evolution.history import History
from wm.settings import ControllerSettings

LIMITS = ("max_generations", "max_hours", "max_env_steps", "target_return")
LOG = "generations.jsonl"
OTHER_FILES = ("metrics.jsonl", "temperature.json", "whitener-*.npy")  # that a resumed search reads besides its log

Line = dict[str, Any]
LINE = table(
    {
        "generation": COUNT,
        "in": one_of("real", "dream", "none"),
        "returns": list_of(NUMBER),
        "env_steps": COUNT,
        "seconds": NUMBER,
    },
    {"candidates": TEXT, "validation": list_of(NUMBER)},
)


def stop_reason(
    settings: ControllerSettings, history: History, extra_seconds: float = 0.0, extra_steps: int = 0
) -> str:
    """The stopping criterion that is met: generations, hours, steps or target; empty if none is. The extra seconds and
    steps are those of the current generation."""
    if history.generation >= settings.max_generations:
        return "generations"
    if settings.max_hours and history.seconds + extra_seconds >= settings.max_hours * 3600:
        return "hours"
    if settings.max_env_steps and history.env_steps + extra_steps >= settings.max_env_steps:
        return "steps"
    target = settings.target_return
    return "target" if target is not None and history.best_score >= target else ""


def validation_due(settings: ControllerSettings, generation: int) -> bool:
    """Whether the mean is validated after this generation, even if no time or step limit is reached."""
    regular = generation % settings.validate_every == 0 or generation in settings.restart_ends
    return regular or generation == settings.max_generations


def read_log(path: Path) -> tuple[list[Line], bytes]:
    """The complete lines of a log, none if it does not exist, and their bytes without an incomplete last line. Raises
    BadData with the number of a damaged line."""
    if not path.exists():
        return [], b""
    data = durable.read_bytes(path)
    complete = data[: data.rfind(b"\n") + 1]
    way_out = f"restore it, or remove {path.parent} to search again"
    lines = json_reader.parse_lines(complete, str(path), LINE, way_out)
    for number, line in enumerate(lines, 1):
        lacking = "candidates" if line["generation"] and "candidates" not in line else ""
        lacking = lacking or ("returns" if line["generation"] and not line["returns"] else "")
        lacking = lacking or ("validation" if line.get("validation") == [] else "")
        if lacking:
            raise BadData(f"{path}, line {number}: {lacking} is missing or empty; expected a value, so {way_out}.")
    return lines, complete


def resume_from_other_limits(run: Run, settings: ControllerSettings, folder: Path) -> tuple[int, Path | None]:
    """Copy into `folder`, unless it has a log, the longest prefix of generations that a search with other limits has
    played as this one would; that search may be finished or not. Returns the number of generations and the folder of
    that search; (0, None) if there is none."""
    if (folder / LOG).exists():
        return 0, None
    longest, log, source = 0, b"", None
    for other, other_settings in differing_only_in(LIMITS, run):
        try:
            lines, complete = read_log(other / LOG)
        except BadData:
            continue  # an unfinished search has no checksums
        limits = {name: other_settings[name] for name in LIMITS if name in other_settings}
        if (count := _common_prefix(lines, settings, replace(settings, **limits))) > longest:
            longest, log, source = count, b"".join(complete.splitlines(keepends=True)[:count]), other
    if source is not None:
        for path in sorted(path for pattern in OTHER_FILES for path in source.glob(pattern)):
            durable.write_bytes(folder / path.name, durable.read_bytes(path))
        durable.write_bytes(folder / LOG, log)  # last: a kill before it leaves no log
    return longest, source


def _common_prefix(lines: list[Line], settings: ControllerSettings, earlier: ControllerSettings) -> int:
    """How many of the first lines, logged with the settings `earlier`, `settings` would produce too."""
    final_phase = settings.final_phase_episodes > 1 or settings.final_phase_steps > 1
    last = min(settings.early, earlier.early) if final_phase and settings.early != earlier.early else np.inf
    history, no_mean = History(), np.zeros(1, np.float32)
    for count, line in enumerate(lines):
        validated, generation = "validation" in line, line["generation"]
        if generation > last or validated != validation_due(settings, generation) or stop_reason(settings, history):
            return count
        history.add(line, no_mean)
        if not validated and stop_reason(settings, history):
            return count
    return len(lines)
