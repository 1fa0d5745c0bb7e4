"""The invariants that keep a Dreamer from leaking (I1, I2, I5, I6, I7, I9, I10), and the arithmetic of its training."""

import gc
import pickle
import weakref
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from wm.models.dreamer.actor_critic import DISCOUNT, LAMBDA, ActorCritic, lambda_returns
from wm.models.dreamer.agent import Dreamer, DreamerTrainer
from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import ReconstructionWeights
from wm.models.dreamer.layers import Decoder, Encoder, mlp
from wm.models.dreamer.rssm import State
from wm.models.dreamer.world_model import Batch
from wm.models.two_hot import TwoHot, symexp, symlog

SMALL = DreamerConfig(32, 1, 3, True, deter=16, hidden=12, stoch=4, classes=4, depth=4, units=12, bins=31)
CONTINUOUS = replace(SMALL, action=2, discrete=False)


def dreamer(config: DreamerConfig = SMALL) -> Dreamer:
    torch.manual_seed(0)
    return Dreamer(config)


def trainer_of(model: Dreamer) -> DreamerTrainer:
    return DreamerTrainer(
        model,
        nullcontext,
        horizon=4,
        entropy=3e-4,
        reconstruction=ReconstructionWeights(0.5, 100, 0.5),
        imagine_last=2,
        world_learning_rate=1e-3,
        actor_learning_rate=1e-3,
    )


def batch(config: DreamerConfig = SMALL, count: int = 3, steps: int = 6) -> Batch:
    random = torch.Generator().manual_seed(1)
    frames = torch.randint(0, 256, (count, steps, config.size, config.size, config.channels), generator=random)
    actions = torch.eye(config.action)[torch.randint(0, config.action, (count, steps), generator=random)]
    first = torch.zeros(count, steps)
    first[:, 0] = first[0, 3] = 1
    terminal = torch.zeros(count, steps)
    terminal[0, 2] = 1
    return Batch(frames.to(torch.uint8), actions, torch.randn(count, steps, generator=random), first, terminal)


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def nodes(tensor: Tensor) -> int:
    """How many nodes of an autograd graph a tensor keeps alive."""
    visited, waiting = set[Any](), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in visited:
            visited.add(node)
            waiting += [following for following, _ in node.next_functions]
    return len(visited)


def tensors() -> int:
    gc.collect()
    return sum(type(thing) in (torch.Tensor, torch.nn.Parameter) for thing in gc.get_objects())


def test_acting_builds_no_graph() -> None:  # I1
    model = dreamer()
    state, action = model.initial(2)
    first = torch.ones(2)
    for step in range(100):
        frames = torch.randint(0, 256, (2, 32, 32, 1), dtype=torch.uint8)
        action, state = model.act(frames, state, action, first, noise(step))
        first = torch.zeros(2)
        for tensor in (action, *state):
            assert tensor.grad_fn is None
            assert not tensor.requires_grad
            assert nodes(tensor) == 0


def test_an_acted_state_cannot_be_trained_on_by_mistake() -> None:  # I1
    model = dreamer()
    state, action = model.initial(2)
    _, state = model.act(torch.zeros(2, 32, 32, 1, dtype=torch.uint8), state, action, torch.ones(2), noise())
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        model.world_model.rssm.prior(state.deter).sum().backward()


def test_the_world_model_takes_the_action_that_the_environment_plays() -> None:
    """A continuous actor samples beyond the bounds, where neither the environment nor the replay goes."""
    rssm = dreamer(CONTINUOUS).world_model.rssm
    sampled, played = torch.tensor([[2.5, -0.5], [-1.5, 1.0]]), torch.tensor([[1.0, -0.5], [-1.0, 1.0]])
    assert torch.equal(rssm.step(rssm.initial(2), sampled), rssm.step(rssm.initial(2), played))
    assert not torch.equal(rssm.step(rssm.initial(2), sampled), rssm.step(rssm.initial(2), 0.5 * played))


def test_the_model_keeps_nothing_between_calls() -> None:  # I2
    model = dreamer()
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    size = len(pickle.dumps(model))
    state, action = model.initial(2)
    for step in range(3):
        action, state = model.act(torch.zeros(2, 32, 32, 1, dtype=torch.uint8), state, action, torch.ones(2), noise())
        trainer_of(model).update(batch(), noise(step), train_actor_critic=True)
        model.zero_grad(set_to_none=True)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == attributes
    assert len(pickle.dumps(model)) == pytest.approx(size, rel=0.01)


def test_an_update_leaves_no_tensor_behind() -> None:  # I5, I7
    trainer, steps = trainer_of(dreamer()), batch()
    for number in range(3):
        trainer.update(steps, noise(number), train_actor_critic=True)
    before = tensors()
    for number in range(5):
        trainer.update(steps, noise(number), train_actor_critic=True)
    assert tensors() <= before  # fewer where another test left some


def test_the_loss_dies_with_its_update(monkeypatch: pytest.MonkeyPatch) -> None:  # I5
    model = dreamer()
    losses: list[Any] = []
    plain = type(model.world_model).loss

    def watched(*arguments: Any) -> Any:
        result = plain(*arguments)
        losses.append(weakref.ref(result[0]))
        return result

    monkeypatch.setattr(type(model.world_model), "loss", watched)
    trainer_of(model).update(batch(), noise(), train_actor_critic=True)
    gc.collect()
    assert losses[0]() is None


def test_metrics_have_no_graph() -> None:  # I7
    metrics = trainer_of(dreamer()).update(batch(), noise(), train_actor_critic=True)
    assert all(not value.requires_grad and value.grad_fn is None for value in metrics.values())
    assert all(torch.isfinite(value) for value in metrics.values())


def test_each_loss_has_gradients_for_its_own_parameters_alone() -> None:  # I6
    model, steps = dreamer(), batch()
    total, _, states = model.world_model.loss(steps, noise())
    total.backward()
    assert all(parameter.grad is None for parameter in model.actor_critic.parameters())
    assert all(parameter.grad is not None for parameter in model.world_model.parameters())
    model.zero_grad(set_to_none=True)
    start = State(*(part.flatten(0, 1) for part in states))
    total, _ = model.actor_critic.loss(model.world_model, start, steps.terminal.flatten(), 4, 1e-3, noise())
    total.backward()
    assert all(parameter.grad is None for parameter in model.world_model.parameters())
    assert all(parameter.grad is None for parameter in model.actor_critic.slow_critic.parameters())
    assert all(parameter.grad is not None for parameter in model.actor_critic.actor.parameters())


def test_states_for_imagination_are_detached() -> None:  # I6
    _, _, states = dreamer().world_model.loss(batch(), noise())
    assert nodes(states.deter) == nodes(states.stoch) == 0


def test_optimizer_and_weights_have_a_constant_size() -> None:  # I10
    trainer, sizes = trainer_of(dreamer()), []
    for number in range(4):
        trainer.update(batch(), noise(number), train_actor_critic=True)
        states = [trainer.model.state_dict(), *trainer.optimizer.state_dict()["state"].values()]
        sizes.append(sum(tensor.numel() for part in states for tensor in part.values()))
    assert len(set(sizes[1:])) == 1


def test_no_backward_pass_keeps_its_graph() -> None:  # I5
    import ast
    from pathlib import Path

    for path in (Path(__file__).parents[2] / "wm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert "retain_graph" not in {keyword.arg for keyword in node.keywords}, path


def test_the_same_seed_gives_the_same_weights() -> None:
    weights = []
    for _ in range(2):
        trainer = trainer_of(dreamer())
        for number in range(3):
            trainer.update(batch(), noise(number), train_actor_critic=True)
        weights.append(torch.cat([parameter.flatten() for parameter in trainer.model.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("config", [SMALL, pytest.param(CONTINUOUS, marks=pytest.mark.slow)])
def test_losses_fall_and_imagination_has_its_shape(config: DreamerConfig) -> None:
    model, steps = dreamer(config), batch(config)
    frames = torch.zeros_like(steps.frames)
    for step in range(frames.shape[1]):
        frames[:, step, :, 4 * step : 4 * step + 8] = 255  # a bar that moves
    steps = steps._replace(frames=frames)
    trainer = trainer_of(model)
    metrics = [trainer.update(steps, noise(number), train_actor_critic=True) for number in range(90)]
    for name, share in (("reconstruction", 0.6), ("reward", 0.9), ("continue", 0.6)):
        assert metrics[-1][name] < share * metrics[0][name], name
    features, actions = model.actor_critic.imagine(model.world_model, model.world_model.rssm.initial(5), 4, noise())
    assert features.shape == (5, 5, config.feature_width)
    assert actions.shape == (4, 5, config.action)


def test_an_episodes_first_step_resets_the_state() -> None:
    model, steps = dreamer(), batch()
    embeds = model.world_model.encode(steps.frames)
    whole, _, _ = model.world_model.rssm.observe(embeds, steps.actions, steps.first, noise())
    other = embeds.clone()
    other[0, :3] += 1
    changed, _, _ = model.world_model.rssm.observe(other, steps.actions, steps.first, noise())
    assert not torch.allclose(whole.deter[0, 2], changed.deter[0, 2])
    assert torch.equal(whole.deter[0, 3:], changed.deter[0, 3:])
    assert torch.equal(whole.deter[0, 3], whole.deter[0, 0])  # nor does the previous action count


def test_observing_a_step_is_observing_a_sequence_of_one() -> None:
    model, steps = dreamer(), batch(count=2)
    embeds = model.world_model.encode(steps.frames)
    rssm = model.world_model.rssm
    whole, _, _ = rssm.observe(embeds[:, :1], steps.actions[:, :1], steps.first[:, :1], noise(3))
    one = rssm.observe_step(rssm.initial(2), steps.actions[:, 0], steps.first[:, 0], embeds[:, 0], noise(3))
    assert torch.allclose(whole.deter[:, 0], one.deter)
    assert torch.allclose(whole.stoch[:, 0], one.stoch)


def test_lambda_returns_are_those_written_out() -> None:
    rewards, continues, values = (torch.tensor(numbers)[:, None] for numbers in ([9.0, 1, 2], [9.0, 1, 0], [5.0, 6, 7]))
    last = 2 + DISCOUNT * 0 * 7
    first = 1 + DISCOUNT * 1 * ((1 - LAMBDA) * 6 + LAMBDA * last)
    assert torch.allclose(lambda_returns(rewards, continues, values).squeeze(1), torch.tensor([first, last]))


def test_imagination_from_a_terminal_state_has_no_weight() -> None:
    model = dreamer()
    start = model.world_model.rssm.initial(4)
    detached = State(start.deter.detach(), start.stoch.detach())
    total, _ = model.actor_critic.loss(model.world_model, detached, torch.ones(4), 4, 1e-3, noise())
    assert total.item() == 0


def test_two_hot_predicts_the_number_of_its_target() -> None:
    head = TwoHot(mlp(3, 8, 1, 63, zero=True), 63)
    assert head.mean(head(torch.randn(5, 3))).tolist() == [0] * 5  # untrained
    for expected in (-1000.0, -1.0, 0.0, 0.37, 42.0):
        target = torch.full((1,), expected)
        upper = int(torch.searchsorted(head.bin_values, target).clamp(1, 62))
        low, high = head.bin_values[upper - 1], head.bin_values[upper]
        chances = torch.zeros(1, 63)
        chances[0, upper - 1], chances[0, upper] = (high - target) / (high - low), (target - low) / (high - low)
        assert head.mean(chances.log()).item() == pytest.approx(expected, rel=1e-3, abs=1e-3)
        assert head.loss(chances.clamp(min=1e-9).log(), target) < head.loss(
            chances.flip(1).clamp(min=1e-9).log(), target
        )


def test_symexp_undoes_symlog() -> None:
    x = torch.tensor([-300.0, -1.0, 0.0, 0.5, 1e5])
    assert torch.allclose(symexp(symlog(x)), x, rtol=1e-4)


@pytest.mark.parametrize("size", [32, 64, 96, 128])
def test_frames_of_every_size_are_encoded_and_decoded(size: int) -> None:
    config = DreamerConfig(size, 3, 2, True, deter=8, stoch=2, classes=2, depth=2)
    encoder = Encoder(config)
    assert encoder(torch.zeros(1, size, size, 3)).shape == (1, encoder.width)
    assert Decoder(config)(torch.zeros(1, config.feature_width)).shape == (1, size, size, 3)


def test_unimix_bounds_every_log_probability() -> None:
    model = dreamer()
    with torch.no_grad():
        model.world_model.rssm.prior_head[-1].bias.fill_(0)
        model.world_model.rssm.prior_head[-1].bias[0] = 1e4
        log_probs = model.world_model.rssm.prior(torch.zeros(1, 16))
    assert log_probs.min() > -7
    assert log_probs.exp().sum(-1).allclose(torch.ones(1, 4))


def test_without_noise_latents_and_actions_are_the_modes() -> None:
    model = dreamer()
    state, action = model.initial(2)
    frames = torch.randint(0, 256, (2, 32, 32, 1), dtype=torch.uint8)
    runs = [model.act(frames, state, action, torch.ones(2), None) for _ in range(2)]
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1].stoch, runs[1][1].stoch)


def test_a_range_of_returns_scales_the_advantage_only_upwards() -> None:
    actor_critic = ActorCritic(SMALL)
    assert actor_critic._return_scale(torch.linspace(0, 0.1, 50)).item() == 1
    for _ in range(500):
        scale = actor_critic._return_scale(torch.linspace(0, 100, 51))
    assert scale.item() == pytest.approx(90, rel=0.05)
