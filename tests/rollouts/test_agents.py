import json

import numpy as np
import pytest
import torch

from tests.models.test_dreamer import dreamer
from wm.actions import ActionSpace
from wm.errors import BadData
from wm.models.controller import SERVE_STEPS, Controller
from wm.models.mdnrnn.network import MdnRnn
from wm.models.vae.networks import build
from wm.rollouts.agents import DreamerAgent, VmcAgent
from wm.rollouts.loop import EpisodeJob

SPACE = ActionSpace(count=3)


def make(num_envs: int, serve: int | None = None) -> tuple[VmcAgent, np.ndarray]:
    torch.manual_seed(0)
    mdnrnn = MdnRnn(4, 3, 8, 2, 10.0)
    controller = Controller(12, SPACE, "argmax", serve=serve)
    candidates = np.random.default_rng(0).normal(size=(5, controller.parameters)).astype(np.float32)
    return VmcAgent(build("small", 32, 3, 4), mdnrnn, controller, candidates, num_envs), candidates


def test_an_environments_actions_do_not_depend_on_the_other_environments() -> None:
    frames = np.random.default_rng(1).integers(0, 256, (6, 4, 32, 32, 3), np.uint8)
    played = []
    for others in (0, 3):
        agent, _ = make(4)
        for index in range(4):
            agent.begin(index, EpisodeJob(index, 0, candidate=2 if index == 1 else others))
        acts = []
        for step in range(6):
            observations = frames[step].copy()
            if others:
                observations[[0, 2, 3]] = 255 - observations[[0, 2, 3]]
            acts.append(int(agent.act(observations, [{}] * 4)[1]))
        played.append(acts)
    assert played[0] == played[1]


def test_the_hidden_state_is_kept_between_steps_and_reset_with_the_episode() -> None:
    agent, _ = make(1)
    agent.begin(0, EpisodeJob(0, 0))
    agent.act(np.zeros((1, 32, 32, 3), np.uint8), [{}])
    assert agent._state[0].abs().sum() > 0
    agent.begin(0, EpisodeJob(1, 0))
    assert agent._state[0].abs().sum() == 0


def test_the_agent_serves_after_a_reset_and_after_a_lost_life() -> None:
    agent, _ = make(1, serve=1)
    agent.begin(0, EpisodeJob(0, 0, candidate=1))
    frames = np.zeros((1, 32, 32, 3), np.uint8)
    lives = [5] * 6 + [4] * 6
    acts = [int(agent.act(frames, [{"lives": n}])[0]) for n in lives]
    other = acts[SERVE_STEPS]
    assert acts[:SERVE_STEPS] == [1] * SERVE_STEPS
    assert acts[6 : 6 + SERVE_STEPS] == [1] * SERVE_STEPS
    assert other != 1 or acts[5] != 1, "the candidate happens to serve by itself; choose another"


def test_a_dreamer_serves_and_its_world_model_receives_the_serve() -> None:
    for serve in (0, 1, 2):  # at least two of them differ from its own action
        agent = DreamerAgent(dreamer(), SPACE, 2, serve)
        agent.begin(0, EpisodeJob(0, 0))
        frames = np.zeros((2, 32, 32, 1), np.uint8)
        lives = [5] * 4 + [4] * 4
        for step, left in enumerate(lives):
            acts = agent.act(frames, [{"lives": left}, {}])
            assert agent._actions.argmax(-1).tolist() == acts.tolist()
            if step % 4 < SERVE_STEPS:
                assert acts[0] == serve


def test_acting_builds_no_graph() -> None:
    agent, _ = make(1)
    agent.begin(0, EpisodeJob(0, 0))
    agent.act(np.zeros((1, 32, 32, 3), np.uint8), [{}])
    assert not agent._state[0].requires_grad
    assert agent._state[0].grad_fn is None


def test_an_agent_without_memory_acts_on_the_latent_alone() -> None:
    controller = Controller(4, SPACE, "argmax")
    candidates = np.random.default_rng(0).normal(size=(1, controller.parameters)).astype(np.float32)
    agent = VmcAgent(build("small", 32, 3, 4), None, controller, candidates, 2)
    agent.begin(0, EpisodeJob(0, 0))
    assert agent.act(np.zeros((2, 32, 32, 3), np.uint8), [{}] * 2).shape == (2,)


def test_an_episode_goes_on_in_another_agent_from_its_state() -> None:
    inputs = 4 + 4 + 3 + 8
    controller = Controller(inputs, SPACE, "argmax", serve=1, layers=(8,), difference=True, previous_action=True)
    parameters = np.random.default_rng(0).normal(size=(1, controller.parameters)).astype(np.float32)
    frames = np.random.default_rng(1).integers(0, 256, (6, 2, 32, 32, 3), np.uint8)
    vae, memory = build("small", 32, 3, 4), MdnRnn(4, 3, 8, 2, 10.0)

    def features(restarts: tuple[int, ...]) -> list[list[float]]:
        def new_agent() -> VmcAgent:
            agent = VmcAgent(vae, memory, controller, parameters, 2)
            for row in range(2):
                agent.begin(row, EpisodeJob(row, 0))
            return agent

        agent, seen = new_agent(), []
        for step in range(6):
            if step in restarts:
                states = [json.loads(json.dumps(agent.episode_state(row))) for row in range(2)]
                agent = new_agent()
                for row in range(2):
                    agent.restore_episode(row, states[row])
            observed = agent.observe(frames[step])
            seen.append(
                [*observed.flatten().tolist(), *agent.decide(observed, [{"lives": 3 - step // 3}] * 2).tolist()]
            )
        return seen

    assert features((1, 3, 4)) == features(())


def test_a_share_of_actions_is_random_and_held_and_the_agent_knows_what_was_played() -> None:
    controller = Controller(7, SPACE, "categorical", layers=(4,), previous_action=True, sampled=True)
    zeros = np.zeros((1, controller.parameters), np.float32)
    zeros[:, -3:] = [0, 50, 0]  # always the second action
    latents, played, seen = np.zeros((2, 4), np.float32), [], []
    agent = VmcAgent(None, None, controller, zeros, 2, random_share=0.2)
    agent.begin(0, EpisodeJob(0, 3))
    agent.begin(1, EpisodeJob(1, 4))
    for _ in range(2000):
        features = agent.observe(latents)
        seen.append(features[0, 4:].argmax().item())
        played.append(agent.decide(features, [{}] * 2).tolist())
    first, second = np.array(played).T
    assert 0.2 * 2 / 3 * 0.7 < (first != 1).mean() < 0.2 * 2 / 3 * 1.3  # a third of the random ones are the second too
    changes = np.flatnonzero(np.diff(first != 1)) + 1
    assert np.diff(changes)[::2].mean() > 2  # held
    assert seen[1:] == first[:-1].tolist()
    assert not np.array_equal(first, second)
    agent.begin(0, EpisodeJob(0, 3))
    again = [agent.decide(agent.observe(latents), [{}] * 2)[0] for _ in range(200)]
    assert again == first[:200].tolist()


@pytest.mark.parametrize("which", ["V", "C", "Dreamer"])
def test_weights_that_are_too_large_to_compute_with_are_one_sentence(which: str) -> None:
    vae, controller, network = build("small", 32, 3, 4), Controller(4, SPACE, "argmax"), dreamer()
    candidates = np.full((1, controller.parameters), 3e38 if which == "C" else 1.0, np.float32)
    for weight in [*(vae.parameters() if which == "V" else ()), *(network.parameters() if which == "Dreamer" else ())]:
        weight.data.fill_(1e17)
    acting: VmcAgent | DreamerAgent = VmcAgent(vae, None, controller, candidates, 1)
    if which == "Dreamer":
        acting = DreamerAgent(network, SPACE, 1)
    acting.begin(0, EpisodeJob(0, 0))
    frames = np.full((1, 32, 32, 1 if which == "Dreamer" else 3), 255, np.uint8)
    with pytest.raises(BadData, match="weights are too large: its networks compute values that are not finite"):
        acting.act(frames, [{}])
