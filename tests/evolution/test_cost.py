import time
from dataclasses import replace
from pathlib import Path

import pytest

from stages.session import Session
from tests.conftest import SLUG, TINY
from wm.evolution.cost import most_dream_steps, most_steps, search_seconds
from wm.evolution.fitness import DREAMS_PER_CANDIDATE, VALIDATION_DREAMS
from wm.models.controller import ControllerConfig
from wm.pretrained import build_controller
from wm.rollouts.speed import SHORTEST, measure_env
from wm.run_models import load_pair
from wm.settings import ControllerSettings

SETTINGS = ControllerSettings(
    popsize=10, max_generations=9, max_steps=100, final_phase_episodes=2, final_phase_steps=3, validation_episodes=5
)
VALIDATIONS = 2 * 5  # every five generations, and the last
CANDIDATES = 10 * (6 * 100 + 3 * 2 * 300)


def test_the_estimate_includes_the_final_phase_and_validations() -> None:
    assert most_steps(SETTINGS, 1000) == VALIDATIONS * 1000 + CANDIDATES
    assert most_steps(SETTINGS, 200) == VALIDATIONS * 200 + 10 * (6 * 100 + 3 * 2 * 200)
    later = replace(SETTINGS, final_phase_after=8, max_steps=0)
    assert most_steps(later, 200) == VALIDATIONS * 200 + 10 * (8 * 200 + 1 * 2 * 200)


def test_the_estimate_includes_the_episodes_that_whiten_the_search() -> None:
    whitened = replace(SETTINGS, whiten_at="0,2,4")
    assert most_steps(whitened, 1000) == most_steps(SETTINGS, 1000) + 2 * 5 * 1000


def test_a_mixed_search_may_go_on_in_the_real_environment_and_one_in_the_dream_validates_once() -> None:
    assert most_steps(replace(SETTINGS, in_="mixed", temperature="1"), 1000) == VALIDATIONS * 1000 + CANDIDATES
    assert most_steps(replace(SETTINGS, in_="dream", temperature="1"), 1000) == 5 * 1000
    assert most_steps(replace(SETTINGS, in_="dream", temperature="auto"), 1000) == 5 * 1000 + 3 * 10 * 100


def test_the_estimate_of_dreams_includes_their_validations_and_the_choice_of_a_temperature() -> None:
    mixed = replace(SETTINGS, in_="mixed", temperature="1")
    assert most_dream_steps(mixed, 1000) == 10 * DREAMS_PER_CANDIDATE * (6 * 100 + 3 * 300)
    dream = replace(SETTINGS, in_="dream", temperature="1")
    assert most_dream_steps(dream, 1000) == most_dream_steps(mixed, 1000) + 2 * VALIDATION_DREAMS * 100
    auto = replace(dream, temperature="auto")
    assert most_dream_steps(auto, 1000) == most_dream_steps(dream, 1000) + 5 * 3 * 10 * 16 * 100


def test_a_search_in_dreams_takes_the_time_of_its_dreams(chain: Path) -> None:
    vae, mdnrnn = load_pair(Session(TINY, run=chain / "runs" / SLUG).workspace)
    config, speed = ControllerConfig("argmax"), measure_env(vae.env, time.monotonic)
    controller = build_controller(mdnrnn, config, vae.env)
    dream = replace(SETTINGS, in_="dream", temperature="1")
    ticks = iter(range(100))
    least, most = search_seconds(lambda: float(next(ticks)), dream, controller, mdnrnn.model, speed, 1)
    real = speed.duration(most_steps(dream, speed.longest), 1)
    assert least - real[0] == pytest.approx(SHORTEST * (most - real[1]))
    fewest = 10 * DREAMS_PER_CANDIDATE * 5  # dreams that do not end in the five steps that are timed
    assert most - real[1] >= 0.999 * most_dream_steps(dream, speed.longest) / fewest
