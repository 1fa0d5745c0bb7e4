"""`--temperature auto`: the temperature whose dream returns correlate best with real returns."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from wm.artifacts import chained_log, durable, manifest
from wm.artifacts.json_reader import COUNT, NUMBER, TEXT, table
from wm.errors import BadData
from wm.evolution.cma_es import Search
from wm.evolution.fitness import Fitness
from wm.runtime import Runtime
from wm.stats import rank_correlation

TEMPERATURES = (1.0, 0.75, 1.25, 0.5, 1.5)  # the first wins a tie
# Three generations of candidates differ enough in quality to be ranked; 16 dreams are half of a search's.
GENERATIONS, DREAMS = 3, 16
FILE = "temperature.json"
SCHEMA = table(
    {"rank_correlation": table({str(each): NUMBER for each in TEMPERATURES}), "env_steps": COUNT, "recipe": TEXT}
)


def choose_temperature(
    runtime: Runtime,
    temperature: str,
    new_search: Callable[[], Search],
    fitness: Fitness,
    folder: Path,
    label: str = "train-controller",
) -> tuple[float, int]:
    """The temperature of the dream, and the environment steps of choosing it. For `auto` the candidates are those of a
    new search, a short one in the real environment, so that they differ in quality; the result is written to `folder`
    for a search that is resumed."""
    if temperature != "auto":
        return float(temperature), 0
    path = folder / FILE
    if not path.exists():
        runtime.log(f"{label}: choosing the temperature of the dream")
        save_choice(folder, _compare_temperatures(runtime, new_search(), fitness))
    way_out = f"remove {path} to measure again"
    result = manifest.read_sealed(path, SCHEMA, way_out)
    if result["recipe"] != chained_log.start(folder):
        raise BadData(f"{path} is of another search; {way_out}.")
    correlation = {float(key): float(value) for key, value in result["rank_correlation"].items()}
    best = max(TEMPERATURES, key=lambda temperature: correlation[temperature])
    figures = ", ".join(f"{key:g}: {correlation[key]:.2f}" for key in sorted(correlation))
    runtime.log(f"{label}: temperature {best:g} (rank correlation of dream and real returns {figures})")
    return best, int(result["env_steps"])


def save_choice(folder: Path, result: dict[str, Any]) -> None:
    """Write the correlations of a sweep as those of the unfinished search in `folder`."""
    durable.write_bytes(folder / FILE, manifest.sealed(result | {"recipe": chained_log.start(folder)}))


def copy_choice(source: Path, folder: Path) -> None:
    """Copy the sweep of another search; one that was changed is left out."""
    with contextlib.suppress(BadData):
        save_choice(folder, manifest.read_sealed(source / FILE, SCHEMA))


def _compare_temperatures(runtime: Runtime, search: Search, fitness: Fitness) -> dict[str, Any]:
    candidates, real, steps = [], [], 0
    for generation in range(GENERATIONS):
        runtime.raise_if_stopped()
        candidates.append(search.ask())
        returns, played = fitness.real_returns(candidates[-1], generation)
        search.tell(returns)
        real.append(returns)
        steps += played
    correlation = {}
    for temperature in TEMPERATURES:
        dream = [fitness.dream_returns(population, 0, temperature, DREAMS) for population in candidates]
        # Where all returns are equal there is no correlation, and the temperature says nothing.
        correlation[str(temperature)] = rank_correlation(np.concatenate(dream), np.concatenate(real)) or 0.0
    return {"rank_correlation": correlation, "env_steps": steps}
