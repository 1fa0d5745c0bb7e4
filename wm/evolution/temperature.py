"""`--temperature auto`: the temperature at which a few candidates rank in the dream as they do in reality."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages import console
from stages.session import Session
from wm.artifacts import durable
from wm.evaluation.baselines import rank_correlation
from wm.evolution.cma_es import Search
from wm.evolution.fitness import Fitness
from wm.settings import ControllerSettings

CHOICES = (1.0, 0.75, 1.25, 0.5, 1.5)  # the first wins a tie
GENERATIONS, DREAMS = 3, 16
FOUND = "temperature.json"


def choose_temperature(
    session: Session,
    settings: ControllerSettings,
    evaluation: Fitness,
    start: NDArray[np.float32],
    folder: Path,
) -> tuple[float, int]:
    """The temperature of the dream, and the real steps it cost to choose it. For `auto`, the candidates are those of a
    short search in reality, so that some are better than others; what is found is kept in `folder`, for a training that
    is resumed."""
    if settings.in_ == "real" or settings.temperature != "auto":
        return (1.0 if settings.temperature == "auto" else float(settings.temperature)), 0
    place = folder / FOUND
    if not place.exists():
        console.say(f"train-controller {session.env}: choosing the temperature of the dream")
        durable.write_json(place, _sweep(session, settings, evaluation, start))
    found = json.loads(place.read_text())
    agreement = {float(key): value for key, value in found["rank_correlation"].items()}
    best = max(CHOICES, key=lambda temperature: agreement[temperature])
    told = ", ".join(f"{key:g}: {agreement[key]:.2f}" for key in sorted(agreement))
    console.say(f"train-controller {session.env}: temperature {best:g} (rank correlation with reality {told})")
    return best, int(found["env_steps"])


def _sweep(
    session: Session, settings: ControllerSettings, evaluation: Fitness, start: NDArray[np.float32]
) -> dict[str, Any]:
    search = Search(start, settings.popsize, settings.sigma, session.seed + 1, settings.algo)
    candidates, real, steps = [], [], 0
    for number in range(GENERATIONS):
        session.stop.raise_if_stopped()
        candidates.append(search.ask())
        returns, taken = evaluation.real(candidates[-1], number)
        search.tell(returns)
        real.append(returns)
        steps += taken
    agreement = {}
    for temperature in CHOICES:
        dreamt = [evaluation.dreamt(some, 0, temperature, DREAMS) for some in candidates]
        agreement[str(temperature)] = rank_correlation(np.concatenate(dreamt), np.concatenate(real)) or 0.0
    return {"rank_correlation": agreement, "env_steps": steps}
