from dataclasses import replace
from pathlib import Path

import pytest

from stages.session import Session
from tests.conftest import SLUG, TINY
from tests.odd_envs import STEPS
from wm.envs.code import EnvCode
from wm.envs.registry import EnvConfig
from wm.errors import MissingInput
from wm.evaluation import score
from wm.evaluation.score import EvaluatedAgent, open_agent, protocol_of, random_agent, score_agent
from wm.rollouts.loop import EpisodeResult
from wm.rollouts.players import RandomSpec
from wm.runtime import Runtime


def test_a_controller_is_scored_in_the_unmodified_environment(chain: Path) -> None:
    agent = open_agent(Session(TINY, run=chain / "runs" / SLUG).workspace, "controller")
    assert agent.kind == "vmc"
    assert agent.env.render == "exact"
    assert agent.spec.env == replace(agent.env, render="gymnasium")
    assert agent.facts["env_steps"] > 100


def test_the_protocol_says_that_the_environment_was_edited_after_the_training(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Session(TINY, run=chain / "runs" / SLUG).workspace
    told = "our agent was trained before tests.tiny was edited"
    assert told not in open_agent(workspace, "controller").facts["protocol"]
    monkeypatch.setattr(EnvConfig, "code", EnvCode(sources={"source of tests.tiny": "0" * 16, "source of more": "1"}))
    assert open_agent(workspace, "controller").facts["protocol"].endswith(told)


def test_the_random_policy_plays_whatever_the_observations_are() -> None:
    """Collecting sees the pictures alone, where a vector's length changes; so does the baseline."""
    agent = random_agent(EnvConfig("tests.odd_envs:Ragged-v0", 32))
    assert score_agent(Runtime(lambda: 0.0), agent, "Ragged", 3, "")["returns"] == [STEPS] * 3


def test_an_agent_is_opened_by_its_name(tmp_path: Path) -> None:
    workspace = Session("Pong", run=tmp_path).workspace
    assert open_agent(workspace, "random").spec == RandomSpec(EnvConfig("Pong"))
    with pytest.raises(MissingInput, match="run `wm train-dreamer --env Pong --run "):
        open_agent(workspace, "dreamer")
    with pytest.raises(MissingInput, match="run `wm train-vae --env Pong --run "):
        open_agent(workspace, "controller")


def test_the_protocol_names_the_agents_observation_and_actions() -> None:
    assert protocol_of(EnvConfig("LunarLander")) == "gymnasium LunarLander-v3 unmodified, 1000-step limit"
    assert "our agent sees grey-level differences" in protocol_of(EnvConfig("LunarLander", observation="motion"))
    assert "our agent sees the difference to a slowly" in protocol_of(EnvConfig("Breakout", observation="foreground"))
    assert "repeats each action for 3 steps" in protocol_of(EnvConfig("CarRacing", action_repeat=3))
    assert "our agent presses FIRE" in protocol_of(EnvConfig("Breakout"))
    assert "frame skip 4, sticky actions 0.25" in protocol_of(EnvConfig("Breakout"))
    assert "no sticky actions, 1 to 30 no-ops" in protocol_of(EnvConfig("Breakout", sticky=False))


def test_the_protocol_says_where_all_episodes_are_the_same_game(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(agent: EvaluatedAgent, lengths: list[int]) -> str:
        results = [EpisodeResult(key, 5.0, length, length, True, False) for key, length in enumerate(lengths)]
        monkeypatch.setattr(score, "_play", lambda *_: results)
        return str(score.score_agent(Runtime(), agent, "Breakout", len(lengths), "")["protocol"])

    without, usual = (random_agent(EnvConfig("Breakout", sticky=sticky)) for sticky in (False, True))
    assert play(without, [9, 9]).endswith("all episodes are the same game")
    assert "the same game" not in play(without, [9, 8]) + play(usual, [9, 9])
