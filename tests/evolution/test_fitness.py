import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages.session import Session
from tests.conftest import SLUG, TINY
from wm.dreams.env import DreamReturns, imagine
from wm.dreams.initial_states import CONTEXT
from wm.envs.registry import EnvConfig, find_env
from wm.episodes.latents import Latents
from wm.evolution.fitness import Fitness, most_steps
from wm.models.controller import Controller
from wm.pretrained import ControllerConfig, load_pair
from wm.rollouts.loop import EpisodeResult
from wm.rollouts.players import PolicySpec
from wm.rollouts.workers import Workers
from wm.settings import ControllerSettings


def make(chain: Path, **settings: object) -> tuple[Fitness, int]:
    session = Session(TINY, run=chain / "runs" / SLUG)
    vae, mdnrnn = load_pair(session.workspace)
    player = PolicySpec(vae.env, vae.artifact.folder, mdnrnn.artifact.folder, ControllerConfig("argmax"), "")
    evaluation = Fitness(
        session,
        ControllerSettings(**settings),
        player,
        Workers(0, session.stop.raise_if_stopped, time.monotonic),
        mdnrnn,  # type: ignore[arg-type]
    )
    return evaluation, 3 * (vae.model.latent + mdnrnn.model.hidden + 1)


def test_candidates_of_a_generation_share_their_episodes(chain: Path) -> None:
    evaluation, parameters = make(chain, episodes_per_eval=2)
    same = np.repeat(np.random.default_rng(0).normal(size=(1, parameters)), 4, axis=0).astype(np.float32)
    returns, steps = evaluation.real(same, 0)
    assert len(set(returns)) == 1
    assert steps > 0
    later = {evaluation.real(same, generation)[0][0] for generation in range(1, 5)}
    assert later != {returns[0]}  # other generations, other episodes


def test_steps_are_counted_as_the_environment_takes_them(chain: Path) -> None:
    evaluation, parameters = make(chain, max_steps=1)
    candidates = np.zeros((2, parameters), np.float32)
    assert evaluation.real(candidates, 0)[1] == 2
    env = evaluation._candidate.env
    evaluation._candidate = replace(evaluation._candidate, env=replace(env, action_repeat=2))
    assert evaluation.real(candidates, 0)[1] == 2 * 2


def test_validation_plays_the_same_episodes_every_time(chain: Path) -> None:
    evaluation, parameters = make(chain, validation_episodes=3)
    mean = np.zeros(parameters, np.float32)
    one, two = evaluation.validation(mean)[0], evaluation.validation(mean)[0]
    assert one.tolist() == two.tolist()
    assert len(one) == 3


def test_a_dreamed_generation_plays_every_candidate(chain: Path) -> None:
    evaluation, parameters = make(chain, in_="dream", max_steps=10)
    returns = evaluation.dreamt(np.zeros((4, parameters), np.float32), 0, 1.0)
    assert returns.shape == (4,)
    assert np.isfinite(returns).all()


def test_candidates_dream_as_often_as_they_are_told_to(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dreamt: list[int] = []

    def watched(mdnrnn: Any, controller: Any, weights: Any, *rest: Any, **more: Any) -> DreamReturns:
        dreamt.append(len(weights))
        return imagine(mdnrnn, controller, weights, *rest, **more)

    monkeypatch.setattr("wm.evolution.fitness.imagine", watched)
    for dreams in (0, 5):
        evaluation, parameters = make(chain, in_="dream", max_steps=5, episodes_per_eval=2, dreams=dreams)
        evaluation.dreamt(np.zeros((4, parameters), np.float32), 0, 1.0)
    assert dreamt == [4 * 2, 4 * 5]


def test_dreams_can_begin_early_in_the_last_episodes(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[torch.Tensor] = []

    def watched(mdnrnn: Any, controller: Any, weights: Any, starts: Any, *rest: Any, **more: Any) -> DreamReturns:
        began.append(starts.z)
        return imagine(mdnrnn, controller, weights, starts, *rest, **more)

    monkeypatch.setattr("wm.evolution.fitness.imagine", watched)
    evaluation, parameters = make(chain, in_="dream", max_steps=5, dreams=16, dreams_from="early")
    evaluation.dreamt(np.zeros((4, parameters), np.float32), 0, 1.0)
    latents = Latents.load(chain / "runs" / SLUG / "latents")
    context = min(CONTEXT, int((latents.ends - latents.starts).min()) - 2)
    early = {latents.means[first + context].tobytes() for first in latents.starts}
    assert {z.numpy().tobytes() for z in began[0]} <= early


def test_a_search_can_be_evened_out_before_it_begins(chain: Path) -> None:
    evaluation, parameters = make(chain)
    latents = Latents.load(chain / "runs" / SLUG / "latents")
    basis = evaluation.basis_at_the_start(latents)
    assert basis.shape == (parameters // 3, parameters // 3)
    over_z = make(chain, even_over="z")[0].basis_at_the_start(latents)
    width = latents.means.shape[1]
    assert over_z.shape == (parameters // 3, width + 1)
    assert not over_z[width:-1].any()


def test_a_dreamt_validation_is_the_same_every_time(chain: Path) -> None:
    evaluation, parameters = make(chain, in_="dream", max_steps=10)
    one, two = (evaluation.dreamt_validation(np.ones(parameters, np.float32), 1.0) for _ in range(2))
    assert np.array_equal(one, two)


def test_the_last_third_plays_more_and_longer_episodes(chain: Path) -> None:
    phase = {"final_phase_episodes": 3, "final_phase_steps": 2}
    evaluation, _ = make(chain, max_generations=9, episodes_per_eval=2, max_steps=10, **phase)
    assert [evaluation.episodes(number) for number in (0, 5, 6, 8)] == [2, 2, 6, 6]
    assert [evaluation.longest(number) for number in (0, 5, 6, 8)] == [10, 10, 20, 20]


def test_the_late_generations_may_begin_earlier(chain: Path) -> None:
    evaluation, _ = make(chain, max_generations=9, final_phase_after=2, final_phase_episodes=3)
    assert [evaluation.episodes(number) for number in (1, 2, 8)] == [1, 3, 3]


def test_a_search_is_foreseen_with_its_late_generations_and_validations() -> None:
    settings = ControllerSettings(
        popsize=10, max_generations=9, max_steps=100, final_phase_episodes=2, final_phase_steps=3, validation_episodes=5
    )
    validated = 2 * 5  # every five generations, and the last
    assert most_steps(settings, 1000) == validated * 1000 + 10 * (6 * 100 + 3 * 2 * 300)
    assert most_steps(settings, 200) == validated * 200 + 10 * (6 * 100 + 3 * 2 * 200)
    later = replace(settings, final_phase_after=8, max_steps=0)
    assert most_steps(later, 200) == validated * 200 + 10 * (8 * 200 + 1 * 2 * 200)
    assert most_steps(replace(settings, in_="dream"), 1000) == validated * 1000


def test_candidates_may_be_drawn_fast_and_stopped_early_but_never_a_validation(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = []

    def play(player: PolicySpec, candidates: Any, jobs: Any, max_steps: int, max_idle: int) -> list[EpisodeResult]:
        played.append((player.env.render, max_steps, max_idle))
        return [EpisodeResult(job.key, 1.0, 1, True, False) for job in jobs]

    monkeypatch.setattr("wm.evolution.fitness.play_jobs", play)
    monkeypatch.setattr(EnvConfig, "spec", lambda recipe: replace(find_env(recipe.name), max_idle=7))
    evaluation, parameters = make(chain, render="fast", max_steps=9, validation_episodes=2)
    evaluation.real(np.zeros((4, parameters), np.float32), 0)
    evaluation.validation(np.zeros(parameters, np.float32))
    assert played == [("fast", 9, 7), ("exact", 0, 0)]


def test_what_c_is_given_is_what_the_agent_acted_on(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluation, parameters = make(chain, validation_episodes=2)
    mean = np.random.default_rng(0).normal(size=parameters).astype(np.float32)
    acted: list[np.ndarray] = []
    act = Controller.act

    def watched(self: Controller, weights: Any, features: Any) -> Any:
        acted.append(features.numpy().copy())
        return act(self, weights, features)

    monkeypatch.setattr(Controller, "act", watched)
    given, steps = evaluation.given(mean)
    assert len(given) == 2
    assert steps == sum(map(len, given)) == len(acted)
    assert np.allclose(np.concatenate(given), np.concatenate(acted), atol=1e-5)


def test_a_search_over_z_is_evened_out_by_z_alone(chain: Path) -> None:
    evaluation, parameters = make(chain, validation_episodes=2, even_over="z")
    mean = np.random.default_rng(0).normal(size=parameters).astype(np.float32)
    given, _ = evaluation.given(mean)
    latents, inputs = given[0].shape[1], parameters // 3 - 1
    basis, _ = evaluation.basis(mean)
    assert latents < inputs
    assert basis.shape == (inputs + 1, latents + 1)
    assert not basis[latents:inputs].any()
