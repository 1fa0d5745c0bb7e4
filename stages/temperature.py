"""`--temperature auto`: the temperature at which a few candidates rank in the dream as they do in reality."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages import console
from stages.candidates import Evaluation
from stages.session import Session
from wm.artifacts import durable
from wm.evolution.search import Search
from wm.settings import ControllerSettings
from wm.training.forecast import rank_correlation

CHOICES = (1.0, 0.75, 1.25, 0.5, 1.5)  # the first wins a tie
GENERATIONS, DREAMS = 3, 16
FOUND = "temperature.json"


def choose_temperature(
    session: Session,
    settings: ControllerSettings,
    evaluation: Evaluation,
    start: NDArray[np.float32],
    folder: Path,
) -> float:
    """The temperature of the dream. For `auto`, the candidates are those of a short search in reality, so that some are
    better than others; what is found is kept in `folder`, for a training that is resumed."""
    if settings.in_ == "real" or settings.temperature != "auto":
        return 1.0 if settings.temperature == "auto" else float(settings.temperature)
    place = folder / FOUND
    if not place.exists():
        console.say(f"train-controller {session.env}: choosing the temperature of the dream")
        search = Search(start, settings.popsize, settings.sigma, session.seed + 1, settings.algo)
        candidates, real = [], []
        for number in range(GENERATIONS):
            session.stop.raise_if_stopped()
            candidates.append(search.ask())
            real.append(evaluation.real(candidates[-1], number)[0])
            search.tell(real[-1])
        agreement = {}
        for temperature in CHOICES:
            dreamt = [evaluation.dreamt(some, 0, temperature, DREAMS) for some in candidates]
            agreement[temperature] = rank_correlation(np.concatenate(dreamt), np.concatenate(real)) or 0.0
        durable.write_json(place, {"rank_correlation": {str(key): value for key, value in agreement.items()}})
    agreement = {float(key): value for key, value in json.loads(place.read_text())["rank_correlation"].items()}
    best = max(CHOICES, key=lambda temperature: agreement[temperature])
    told = ", ".join(f"{key:g}: {agreement[key]:.2f}" for key in sorted(agreement))
    console.say(f"train-controller {session.env}: temperature {best:g} (rank correlation with reality {told})")
    return best
