"""V, M and C of a run from Python: shapes, memory, and agreement with what the commands do."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wm
from wm.errors import UsageProblem
from wm.rollouts.players import evaluation_jobs

Z, H = 4, 16


def test_frames_become_latents_and_latents_frames(world: wm.World) -> None:
    frames = world.episode(0).frames
    z = world.encode(frames)
    assert (z.shape, z.dtype) == ((len(frames), Z), np.float32)
    assert np.allclose(world.encode(frames[3]), z[3], atol=1e-5)
    assert world.encode(frames[:0]).shape == (0, Z)
    assert world.encode(frames[None, :6].reshape(2, 3, 32, 32, 3)).shape == (2, 3, Z)
    assert np.allclose(z, world.latents.means[: len(z)], atol=0.05)  # those were computed in bf16 and stored in half
    shown = world.decode(z)
    assert (shown.shape, shown.dtype) == (frames.shape, np.uint8)
    assert (world.decode(z[3]) == shown[3]).all()
    expected = world.vae.model.decode(torch.from_numpy(z)).permute(0, 2, 3, 1).numpy() * 255
    assert np.abs(shown - expected).max() <= 0.51


def test_a_dream_and_a_memory_print_in_a_line(world: wm.World) -> None:
    episode = world.episode(0)
    assert str(world.dream(episode.actions[:5], start=(0, 0))) == "Dream(steps=5, start=(0, 0))"
    assert str(world.act(episode.frames[0])[1]) == "Memory()"


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda world: world.encode(np.zeros((32, 32, 3))), r"float64 of shape \(32, 32, 3\); expected uint8 of shape"),
        (lambda world: world.encode([[1], [1, 2]]), r"frames: a list that NumPy cannot take \(.*\); expected an array"),
        (lambda world: world.encode(np.zeros((64, 64, 3), np.uint8)), r"expected uint8 of shape \(..., 32, 32, 3\)"),
        (lambda world: world.decode(np.zeros(5)), r"of shape \(5,\); expected numbers of \(..., 4\)"),
        (lambda world: world.decode(1.0), "expected numbers"),
        (lambda world: world.decode([["1"] * Z]), "latents are <U1 of shape"),
        (lambda world: world.decode(np.zeros(Z, complex)), "latents are complex128 of shape"),
        (lambda world: world.decode(torch.zeros(Z, requires_grad=True)), r"a Tensor that NumPy cannot take .*detach"),
        (lambda world: world.dream([[0], [0, 1]]), "actions: a list that NumPy cannot take"),
        (lambda world: world.dream([0, 3]), "an action is 3; expected integers from 0 to 2"),
        (lambda world: world.dream([-1]), "an action is -1"),
        (lambda world: world.dream([0.5]), r"actions are float64 of shape \(1,\)"),
        (lambda world: world.dream(1), r"of shape \(\); expected integers"),
        (lambda world: world.dream([0], start=(24, 0)), "start is episode 24; M was trained on the episodes 0 to 23"),
        (lambda world: world.dream([0], start=(0, 1000)), "start is step 1000 of episode 0, which has the steps 0 to"),
        (lambda world: world.decode([0.0, np.nan, 0.0, 0.0]), "latents have values that are NaN or infinite"),
        (lambda world: world.decode([1e300, 0, 0, 0]), "NaN or infinite in 32 bits"),
        (lambda world: world.act([1e300, 0, 0, 0]), "NaN or infinite in 32 bits"),
        (
            lambda world: world.dream([0], start=5),
            r"start is 5; expected an episode and a step of it, such as \(0, 3\)",
        ),
        (lambda world: world.dream([0], start=(0, 1.5)), r"start is \(0, 1.5\); expected an episode and a step"),
        (lambda world: world.dream([0], seed=-1), "seed is -1; expected a whole number of at least 0"),
        (lambda world: world.dream([0], temperature=0.0), "temperature is 0.0; expected a number above 0"),
        (lambda world: world.dream([0], temperature="1"), "temperature is '1'; expected a number above 0"),
        (lambda world: world.dream([0], temperature=10**400), "temperature is 10+; expected a number above 0"),
        (lambda world: world.act([0.0] * Z, {"lives": 3}), "memory is a dict; expected what the last act returned"),
        (lambda world: world.act([0.0] * Z, wm.Memory("x", {}, None)), "memory is another C's; expected"),
        (lambda world: world.act([0.0] * Z, info=[{}]), "info is a list; expected the environment's dict, or None"),
        (
            lambda world: world.evaluate(episodes=2, runtime=print),
            "runtime is a builtin_function_or_method; expected a",
        ),
        (lambda world: world.act(world.episode(0).frames[:2]), "expected that of one environment"),
        (
            lambda world: world.act(np.zeros((32, 32, 3))),
            r"frames are float64 of shape \(32, 32, 3\); expected uint8",
        ),
        (lambda world: world.act(np.full(Z, np.nan, np.float32)), "latents have values that are NaN or infinite"),
        (lambda world: world.act(np.zeros((2, Z), np.float32)), "expected that of one environment"),
        (lambda world: world.act(np.zeros(Z + 1, np.float32)), r"expected numbers of \(..., 4\) or \(..., 20\)"),
        (lambda world: world.env(obs="h"), "obs is 'h'; expected one of z, zh, pixels"),
        (lambda world: world.env(render_mode="human"), "render_mode is 'human'; expected 'rgb_array' or None"),
        (lambda world: world.real_env(render_mode="human"), "render_mode is 'human'"),
        (lambda world: world.env(max_steps=0), "max_steps is 0; expected a whole number of at least 1, or None for"),
        (lambda world: world.env(max_steps=np.nan), "max_steps is nan; expected a whole number"),
        (lambda world: world.vector_env(0), "num_envs is 0; expected a whole number of at least 1"),
        (lambda world: world.vector_env(1.5), "num_envs is 1.5; expected a whole number"),
        (lambda world: world.evaluate(episodes=1), "episodes is 1; expected a whole number of at least 2, for"),
        (lambda world: world.evaluate(3), "policy is a int; expected a function of an observation"),
        (lambda world: world.evaluate(obs="pixels"), "obs is 'pixels', but C observes by itself; leave it out"),
        (lambda world: world.evaluate("random", obs="zh"), "obs is 'zh', but random observes by itself; leave it out"),
        (lambda world: world.episode(24), "episode is 24; .* has the episodes 0 to 23"),
        (lambda world: world.episode(0.5), "episode is 0.5; expected a whole number"),
    ],
)
def test_wrong_values_are_one_sentence(world: wm.World, use: Any, message: str) -> None:
    with pytest.raises(UsageProblem, match=message) as caught:
        use(world)
    assert "\n" not in str(caught.value)


def test_a_dream_begins_at_the_real_step_and_depends_on_seed_and_actions(world: wm.World) -> None:
    actions = np.array([2] * 12)
    dream = world.dream(actions, start=(1, 4), seed=3)
    assert len(dream) == 12
    assert (dream.frames.shape, dream.frames.dtype) == ((13, 32, 32, 3), np.uint8)
    assert (dream.latents.shape, dream.hidden.shape) == ((13, Z), (13, H))
    assert dream.rewards.shape == dream.ends.shape == (12,)
    assert ((dream.ends >= 0) & (dream.ends <= 1)).all()
    assert np.abs(dream.hidden[0]).max() > 0  # M has seen the steps before
    latents = world.latents
    assert (dream.latents[0] == latents.means[latents.starts[1] + 4]).all()
    assert (dream.frames == world.decode(dream.latents)).all()
    assert (world.dream(actions, (1, 4), seed=3).latents == dream.latents).all()
    assert not (world.dream(actions, (1, 4), seed=4).latents == dream.latents).all()
    assert not (world.dream(0 * actions, (1, 4), seed=3).latents == dream.latents).all()
    assert np.abs(world.dream(actions[:0], (1, 0)).hidden).max() == 0


def test_a_start_that_is_not_given_is_a_step_of_an_episode_drawn_from_the_seed(world: wm.World) -> None:
    starts = [world.dream([0], seed=seed).start for seed in range(30)]
    assert len(set(starts)) > 20
    lengths = world.latents.ends - world.latents.starts
    assert all(0 <= step < lengths[episode] - 1 for episode, step in starts)
    assert world.dream([0], seed=7).start == starts[7]


def test_a_lower_temperature_makes_dreams_vary_less(world: wm.World) -> None:
    def spread(temperature: float) -> float:
        dreams = [world.dream([1] * 5, (0, 3), seed, temperature).latents[-1] for seed in range(20)]
        return float(np.std(dreams, axis=0).mean())

    assert spread(0.1) < spread(1.0) < spread(4.0)


def test_c_plays_the_test_episodes_as_the_command_does(world: wm.World, run: Path) -> None:
    """Its memory is carried: the returns are those of `wm evaluate`."""
    recorded = json.loads((run / "evaluation" / "controller" / "score.json").read_text())["returns"]
    env, returns = world.real_env(obs="pixels"), []
    for job in evaluation_jobs(len(recorded)):
        frame, info = env.reset(seed=job.seed)
        total, over, memory = 0.0, False, None
        while not over:
            action, memory = world.act(frame, memory, info, seed=job.seed)
            frame, reward, terminated, truncated, info = env.step(action)
            total, over = total + reward, terminated or truncated
        returns.append(total)
    assert returns == pytest.approx(recorded)
    assert world.evaluate(episodes=len(recorded)).returns == pytest.approx(recorded)


def test_memory_is_a_value(world: wm.World) -> None:
    """The same memory gives the same actions again; latents are as good as frames, and h is not taken from outside."""
    assert world.controller is not None
    assert world.controller.config.memory == "trained"
    frames, memories, outputs = world.episode(2).frames[:8], [None], []
    for frame in frames:
        _, memory = world.act(frame, memories[-1])
        outputs.append(world._actor._agent.outputs.clone())
        memories.append(memory)
    _, memory = world.act(frames[5], memories[5])
    assert memory == memories[6]
    assert torch.equal(world._actor._agent.outputs, outputs[5])
    world.act(world.encode(frames[5]), memories[5])
    assert torch.allclose(world._actor._agent.outputs, outputs[5], atol=1e-4)
    world.act(np.append(world.encode(frames[5]), np.full(H, 9, np.float32)), memories[5])
    assert torch.allclose(world._actor._agent.outputs, outputs[5], atol=1e-4)
    world.act(frames[5])
    assert not torch.allclose(world._actor._agent.outputs, outputs[5], atol=1e-4)  # without a memory h is 0


def test_threads_do_not_disturb_each_other(world: wm.World) -> None:
    """They share what C acts with, and the environments that a process keeps for episodes."""
    frames = world.episode(2).frames[:20]

    def actions(_: int) -> list[int]:
        chosen, memory = [], None
        for frame in frames:
            action, memory = world.act(frame, memory)
            chosen.append(action)
        return chosen

    def returns(_: int) -> list[float]:
        return list(world.evaluate(episodes=3).returns)

    for use in (actions, returns):
        alone = use(0)
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(use, range(8))) == [alone] * 8
