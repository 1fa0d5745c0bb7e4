from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.models.action_distributions import Categorical
from wm.models.controller import Controller
from wm.policy_gradient.dream_rollouts import DreamSource
from wm.policy_gradient.network import ActorCritic
from wm.policy_gradient.ppo import LAMBDA, Passes, RewardScale, Rollout, advantages, losses, make_optimizer, update
from wm.policy_gradient.real_rollouts import RealSource
from wm.settings import ControllerSettings

T, N, F = 12, 3, 4
CONTROLLER = Controller(F, ActionSpace(count=3), "categorical", layers=(8, 8))


def make_rollout() -> Rollout:
    random = np.random.default_rng(5)

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(random.standard_normal(shape, np.float32))

    cut = torch.zeros(T, N, dtype=torch.bool)
    cut[-1], cut[4, 1] = True, True
    discounts = torch.ones(T, N)
    discounts[6, 0] = discounts[8, 2] = discounts[-1, 1] = 0
    choices = torch.from_numpy(random.integers(0, 3, (T, N)))
    return Rollout(normal(T, N, F), choices, -normal(T, N).abs(), normal(T, N), discounts, normal(T, N) > -1, cut,
                   normal(4, F))  # fmt: skip


def test_advantages_are_discounted_sums_of_errors_up_to_a_cut_or_an_end() -> None:
    rollout, values, following = make_rollout(), torch.randn(T, N), torch.randn(4)
    found = advantages(rollout, rollout.rewards, values, following, 0.9)
    successor = {(4, 1): following[0], **{(T - 1, n): following[1 + n] for n in range(N)}}
    for n in range(N):
        for t in range(T):
            expected, weight = 0.0, 1.0
            for k in range(t, T):
                after = successor[k, n] if (k, n) in successor else values[k + 1, n]
                going = float(rollout.discounts[k, n])
                expected += weight * float(rollout.rewards[k, n] + 0.9 * going * after - values[k, n])
                weight *= 0.9 * LAMBDA * going
                if (k, n) in successor or not going:
                    break
            assert found[t, n] == pytest.approx(expected, abs=1e-4)


def written_out(
    outputs: NDArray[np.float64], values: NDArray[np.float64], batch: dict[str, NDArray[np.float64]]
) -> float:
    """The loss of Schulman et al. (2017), equation 9, on the rows whose choice was played."""
    shifted = outputs - outputs.max(1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    own = batch["own"] > 0
    chosen = probabilities[np.arange(len(outputs)), batch["choices"].astype(int)]
    ratio = chosen / np.exp(batch["log_probs"])
    advantage = batch["advantages"]
    advantage = (advantage - advantage[own].mean()) / (advantage[own].std(ddof=1) + 1e-4)
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)[own].mean()
    entropy = -(probabilities * np.log(probabilities)).sum(1)[own].mean()
    squared = np.square(values - batch["targets"]).mean()
    return float(-surrogate - 0.03 * entropy + 0.5 * squared)


def test_the_loss_and_its_gradient_are_those_of_the_written_out_formula() -> None:
    random = np.random.default_rng(2)
    outputs, values = random.standard_normal((20, 3)), random.standard_normal(20)
    batch = {
        "choices": random.integers(0, 3, 20).astype(float),
        "log_probs": np.log(random.uniform(0.2, 0.6, 20)),
        "advantages": random.standard_normal(20),
        "targets": random.standard_normal(20),
        "own": (np.arange(20) % 5 > 0).astype(float),
    }
    tensors = {name: torch.from_numpy(column) for name, column in batch.items()}
    tensors["choices"] = tensors["choices"].long()
    at, value = torch.from_numpy(outputs).requires_grad_(), torch.from_numpy(values).requires_grad_()
    loss, _ = losses(Categorical(3), at, value, tensors, 0.03)
    assert float(loss.detach()) == pytest.approx(written_out(outputs, values, batch), abs=1e-6)
    loss.backward()
    assert at.grad is not None
    assert value.grad is not None
    step = 1e-6
    for row in range(20):
        for column in range(3):
            moved = outputs.copy()
            moved[row, column] += step
            slope = (written_out(moved, values, batch) - written_out(outputs, values, batch)) / step
            assert float(at.grad[row, column]) == pytest.approx(slope, abs=1e-4)
    assert not at.grad[0].any()  # a serve was played there
    assert value.grad[0] != 0


def test_an_update_is_adam_on_that_loss_with_the_gradients_norm_limited() -> None:
    rollout, network, other = make_rollout(), ActorCritic(CONTROLLER, 0), ActorCritic(CONTROLLER, 0)
    update(network, make_optimizer(network, 1e-2), Categorical(3), rollout, rollout.rewards, 0.9, 0.01,
           Passes(1, T * N), np.random.default_rng(0))  # fmt: skip
    before = other.values(rollout.features.flatten(0, 1)).view(T, N)
    advantage = advantages(rollout, rollout.rewards, before, other.values(rollout.successors), 0.9)
    batch = {
        "choices": rollout.choices.flatten(), "log_probs": rollout.log_probs.flatten(),
        "own": rollout.own.flatten().float(), "advantages": advantage.flatten(),
        "targets": (advantage + before).flatten(),
    }  # fmt: skip
    outputs, values = other(rollout.features.flatten(0, 1))
    losses(Categorical(3), outputs, values, batch, 0.01)[0].backward()
    norm = torch.cat(
        [parameter.grad.flatten() for parameter in other.parameters() if parameter.grad is not None]
    ).norm()
    for mine, theirs in zip(network.parameters(), other.parameters(), strict=True):
        assert theirs.grad is not None
        gradient = theirs.grad * min(0.5 / (float(norm) + 1e-6), 1.0)
        expected = theirs - 1e-2 * gradient / (gradient.abs() + 1e-5)  # Adam's first step
        assert torch.allclose(mine, expected, atol=1e-4)


def test_rewards_are_scaled_by_the_deviation_of_discounted_returns_across_rollouts() -> None:
    random = np.random.default_rng(0)
    rewards, ends = random.standard_normal((60, 2)), random.random((60, 2)) < 0.1
    scale, returns, running = RewardScale.of(2), [], np.zeros(2)
    for reward, end in zip(rewards, ends, strict=True):
        running = running * 0.9 + reward
        returns.append(running)
        running = np.where(end, 0, running)
    for half in (slice(0, 25), slice(25, 60)):
        found = scale.update(torch.from_numpy(rewards[half]), torch.from_numpy(ends[half]), 0.9)
    assert found == pytest.approx(np.std(returns))


def test_the_flat_parameters_give_the_actors_outputs() -> None:
    network, features = ActorCritic(CONTROLLER, 0), torch.randn(50, F) * 3 + 1
    network.standardise(features)
    weights = torch.from_numpy(network.parameter_vector())
    assert len(weights) == CONTROLLER.parameters
    assert torch.allclose(CONTROLLER.evaluate(weights.expand(50, -1), features), network(features)[0], atol=1e-5)


def test_an_input_that_never_varies_is_not_blown_up() -> None:
    network = ActorCritic(CONTROLLER, 0)
    network.standardise(torch.zeros(10, F))
    assert torch.isfinite(torch.from_numpy(network.parameter_vector())).all()
    assert float(network(torch.full((1, F), 0.05))[0].detach().abs().max()) < 1


def test_inputs_that_were_seen_once_leave_the_network_finite() -> None:
    network = ActorCritic(CONTROLLER, 0)
    network.standardise(torch.ones(1, network.mean.numel()))
    assert np.isfinite(network.parameter_vector()).all()


def adam_steps(passes: Passes) -> int:
    network = ActorCritic(CONTROLLER, 0)
    optimizer, rollout = make_optimizer(network, 1e-3), make_rollout()
    random = np.random.default_rng(0)
    update(network, optimizer, Categorical(3), rollout, rollout.rewards, 0.9, 0.01, passes, random)
    return int(next(iter(optimizer.state.values()))["step"])


def test_the_minibatch_of_the_settings_decides_how_many_gradient_steps_an_update_takes() -> None:
    given, default = (ControllerSettings(algo="ppo", in_=place, minibatch=rows)
                      for place, rows in (("dream", 9), ("dream", None)))  # fmt: skip
    assert adam_steps(Passes(2, 2048).with_minibatch(default.minibatch)) == 2
    assert adam_steps(Passes(2, 2048).with_minibatch(given.minibatch)) == 2 * T * N // 9


def test_both_sources_of_experience_are_learned_from_in_such_steps() -> None:
    real = ControllerSettings(algo="ppo", minibatch=9)
    controller = SimpleNamespace(memory="none")
    policy: Any = SimpleNamespace(env=SimpleNamespace(action_repeat=1), controller=controller)
    mdnrnn: Any = SimpleNamespace(space=ActionSpace(count=3), model=SimpleNamespace(latent=2))
    workers, initial = cast(Any, None), cast(Any, None)
    assert RealSource(real, 0, policy, mdnrnn, workers).passes == Passes(4, 9)
    assert DreamSource(replace(real, in_="dream"), 0, mdnrnn, CONTROLLER, initial).passes == Passes(2, 9)
