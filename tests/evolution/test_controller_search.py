import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import SLUG, arguments, run
from wm.evolution import controller_search
from wm.evolution.cma_es import Search
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


@pytest.mark.slow
def test_the_candidates_that_choose_the_temperature_are_of_no_search_s_seed(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(chain, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "runs" / SLUG / "controller")
    seeds: list[int] = []

    def recorded(*arguments: Any, seed: int, **settings: Any) -> Search:
        seeds.append(seed)
        return Search(*arguments, seed=seed, **settings)

    monkeypatch.setattr(controller_search, "Search", recorded)
    in_dream = ("--in", "mixed", "--temperature", "auto", "--max-generations", "1")
    run(tmp_path, *arguments("train-controller", *in_dream, "--seed", "3"))
    sweep, search = seeds
    assert search == 3
    assert sweep > 2**32  # of its label: seeds of searches are small numbers
