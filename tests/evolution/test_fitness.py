import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stages.session import Session
from tests.conftest import SLUG, TINY
from wm.dreams.initial_states import early_initial_states, load_newest_latents
from wm.dreams.rollout import DreamReturns, rollout_dreams
from wm.envs.registry import EnvConfig, find_env
from wm.episodes.latents import Latents
from wm.evolution.fitness import DREAMS_PER_CANDIDATE, Fitness
from wm.models.controller import Controller, ControllerConfig
from wm.pretrained import build_controller
from wm.rollouts.loop import EpisodeResult
from wm.rollouts.players import PolicySpec, policy_spec
from wm.rollouts.process_workers import ProcessWorkers
from wm.run_models import load_pair
from wm.settings import ControllerSettings


def make(chain: Path, **values: Any) -> tuple[Fitness, int]:
    session = Session(TINY, run=chain / "runs" / SLUG)
    settings = ControllerSettings(**values)
    vae, mdnrnn = load_pair(session.workspace)
    spec = policy_spec(vae, mdnrnn, ControllerConfig("argmax", memory=settings.memory_used))
    initial = None
    if settings.in_ != "real":
        initial = early_initial_states(load_newest_latents(session.workspace, mdnrnn), mdnrnn)
    fitness = Fitness(settings, 0, spec, mdnrnn, ProcessWorkers(0, lambda: None, time.monotonic), initial)
    return fitness, build_controller(mdnrnn, spec.controller, vae.env).parameters


def test_candidates_of_a_generation_share_their_episodes(chain: Path) -> None:
    fitness, parameters = make(chain, episodes_per_eval=2)
    same = np.repeat(np.random.default_rng(0).normal(size=(1, parameters)), 4, axis=0).astype(np.float32)
    returns, steps = fitness.real_returns(same, 0)
    assert len(set(returns)) == 1
    assert steps > 0
    later = {fitness.real_returns(same, generation)[0][0] for generation in range(1, 5)}
    assert later != {returns[0]}  # other generations, other episodes


def test_repeated_actions_count_as_environment_steps(chain: Path) -> None:
    fitness, parameters = make(chain, max_steps=1)
    candidates = np.zeros((2, parameters), np.float32)
    assert fitness.real_returns(candidates, 0)[1] == 2
    env = fitness._candidate_policy.env
    fitness._candidate_policy = replace(fitness._candidate_policy, env=replace(env, action_repeat=2))
    assert fitness.real_returns(candidates, 0)[1] == 2 * 2


def test_validation_plays_the_same_episodes_every_time(chain: Path) -> None:
    fitness, parameters = make(chain, validation_episodes=3)
    mean = np.zeros(parameters, np.float32)
    one, two = fitness.validation_returns(mean)[0], fitness.validation_returns(mean)[0]
    assert one.tolist() == two.tolist()
    assert len(one) == 3


def test_every_candidate_has_a_return_in_the_dream(chain: Path) -> None:
    fitness, parameters = make(chain, in_="dream", max_steps=10)
    returns = fitness.dream_returns(np.zeros((4, parameters), np.float32), 0, 1.0)
    assert returns.shape == (4,)
    assert np.isfinite(returns).all()


def test_candidates_share_the_initial_states_of_their_dreams(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    initial_z: list[torch.Tensor] = []

    def spy(mdnrnn: Any, controller: Any, weights: Any, initial: Any, *rest: Any, **more: Any) -> DreamReturns:
        initial_z.append(initial.z)
        return rollout_dreams(mdnrnn, controller, weights, initial, *rest, **more)

    monkeypatch.setattr("wm.evolution.fitness.rollout_dreams", spy)
    fitness, parameters = make(chain, in_="dream", max_steps=5)
    candidates = np.zeros((4, parameters), np.float32)
    fitness.dream_returns(candidates, 0, 1.0)
    fitness.dream_returns(candidates, 0, 1.0, dreams=5)
    assert list(map(len, initial_z)) == [4 * DREAMS_PER_CANDIDATE, 4 * 5]
    assert torch.equal(
        initial_z[0][:DREAMS_PER_CANDIDATE], initial_z[0][DREAMS_PER_CANDIDATE : 2 * DREAMS_PER_CANDIDATE]
    )


def test_a_search_can_be_whitened_from_the_latents_of_a_dataset(chain: Path) -> None:
    latents = Latents.load(chain / "runs" / SLUG / "latents")
    for memory in ("trained", "none"):
        fitness, parameters = make(chain, memory=memory)
        assert fitness.initial_whitener(latents).shape == (parameters // 3, parameters // 3)


def test_a_validation_in_dreams_plays_the_same_dreams_every_time(chain: Path) -> None:
    fitness, parameters = make(chain, in_="dream", max_steps=10)
    one, two = (fitness.dream_validation_returns(np.ones(parameters, np.float32), 1.0) for _ in range(2))
    assert np.array_equal(one, two)


def test_the_final_phase_is_the_last_third_and_has_more_and_longer_episodes(chain: Path) -> None:
    phase = {"final_phase_episodes": 3, "final_phase_steps": 2}
    fitness, _ = make(chain, max_generations=9, episodes_per_eval=2, max_steps=10, **phase)
    assert [fitness.episodes(number) for number in (0, 5, 6, 8)] == [2, 2, 6, 6]
    assert [fitness.max_steps(number) for number in (0, 5, 6, 8)] == [10, 10, 20, 20]


def test_the_final_phase_may_start_earlier(chain: Path) -> None:
    fitness, _ = make(chain, max_generations=9, final_phase_after=2, final_phase_episodes=3)
    assert [fitness.episodes(number) for number in (1, 2, 8)] == [1, 3, 3]


def test_candidates_may_use_the_fast_renderer_and_truncation_and_validations_never_do(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = []

    def play(spec: PolicySpec, candidates: Any, jobs: Any, max_steps: int, max_idle: int) -> list[EpisodeResult]:
        played.append((spec.env.render, max_steps, max_idle))
        return [EpisodeResult(job.key, 1.0, 1, 1, True, False) for job in jobs]

    monkeypatch.setattr("wm.evolution.fitness.play_jobs", play)
    monkeypatch.setattr(EnvConfig, "spec", lambda config: replace(find_env(config.name), max_idle=7))
    fitness, parameters = make(chain, render="fast", max_steps=9, validation_episodes=2)
    fitness.real_returns(np.zeros((4, parameters), np.float32), 0)
    fitness.validation_returns(np.zeros(parameters, np.float32))
    assert played == [("fast", 9, 7), ("exact", 0, 0)]


def test_the_inputs_of_a_mean_are_those_the_agent_acted_on(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitness, parameters = make(chain, validation_episodes=2)
    mean = np.random.default_rng(0).normal(size=parameters).astype(np.float32)
    features_seen: list[np.ndarray] = []
    evaluate = Controller.evaluate

    def spy(self: Controller, weights: Any, features: Any) -> Any:
        features_seen.append(features.numpy().copy())
        return evaluate(self, weights, features)

    monkeypatch.setattr(Controller, "evaluate", spy)
    inputs, steps = fitness.inputs_of(mean)
    assert len(inputs) == 2
    assert steps == sum(map(len, inputs)) == len(features_seen)
    assert np.allclose(np.concatenate(inputs), np.concatenate(features_seen), atol=1e-5)
