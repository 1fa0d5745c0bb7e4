from typing import Any

import numpy as np
import pytest

from wm.evolution.controller_search import search_figures
from wm.evolution.history import History


class RealFitness:
    """A validation returns the mean's first parameter less 4, and takes 20 steps."""

    def validation_returns(self, mean: Any) -> Any:
        return np.array([-1.0, 1.0]) + float(mean[0]) - 4, 20


@pytest.mark.parametrize("place", ["real", "dream", "mixed"])
def test_only_a_search_in_the_dream_alone_plays_a_real_validation_at_its_end(place: str) -> None:
    history = History()
    for generation, score in ((1, 5.0), (2, 9.0), (3, 7.0)):
        line = {"generation": generation, "in": place, "returns": [0.0], "env_steps": 100, "seconds": 2.0}
        history.add(line | {"validation": [score]}, np.array([score], np.float32))
    figures = search_figures(history, RealFitness(), place, 20)  # type: ignore[arg-type]
    assert (figures["best_generation"], figures["generations"], figures["seconds"]) == (2, 3, 6.0)
    in_dream = place == "dream"
    assert figures["validation_return"] == (5.0 if in_dream else 9.0)
    assert figures["env_steps"] == (320 if in_dream else 300)
    assert figures.get("dream_return") == (9.0 if in_dream else None)
