"""The invariants of dreaming without leaking (I1, I2, I5, I6, I7, I9, I10), and the numbers behind the learning."""

import gc
import pickle
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from wm.models.dreamer.actor_critic import DISCOUNT, LAMBDA, ActorCritic, lambda_returns
from wm.models.dreamer.agent import Dreamer, DreamerTrainer
from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import ReconstructionWeights
from wm.models.dreamer.layers import Decoder, Encoder, TwoHot, symexp, symlog
from wm.models.dreamer.rssm import State
from wm.models.dreamer.world_model import Batch

SMALL = DreamerConfig(32, 1, 3, True, deter=16, hidden=12, stoch=4, classes=4, depth=4, units=12, bins=31)
GAUSSIAN = DreamerConfig(32, 3, 2, False, stack=2, deter=16, hidden=12, stoch=4, classes=0, depth=4, units=12, bins=31)


def made(form: DreamerConfig = SMALL) -> Dreamer:
    torch.manual_seed(0)
    return Dreamer(form)


def learner(model: Dreamer) -> DreamerTrainer:
    return DreamerTrainer(
        model,
        nullcontext,
        horizon=4,
        entropy=3e-4,
        drawing=ReconstructionWeights(0.5, 100, 0.5),
        starts=2,
        world_learning_rate=1e-3,
        actor_learning_rate=1e-3,
    )


def batch(form: DreamerConfig = SMALL, count: int = 3, steps: int = 6) -> Batch:
    random = torch.Generator().manual_seed(1)
    frames = torch.randint(0, 256, (count, steps, form.size, form.size, form.planes), generator=random)
    actions = torch.eye(form.action)[torch.randint(0, form.action, (count, steps), generator=random)]
    first = torch.zeros(count, steps)
    first[:, 0] = first[0, 3] = 1
    terminal = torch.zeros(count, steps)
    terminal[0, 2] = 1
    return Batch(frames.to(torch.uint8), actions, torch.randn(count, steps, generator=random), first, terminal)


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def nodes(tensor: Tensor) -> int:
    """How many nodes of an autograd graph a tensor keeps alive."""
    seen, waiting = set[Any](), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return len(seen)


def tensors() -> int:
    gc.collect()
    return sum(type(thing) in (torch.Tensor, torch.nn.Parameter) for thing in gc.get_objects())


def test_acting_builds_no_graph() -> None:  # I1
    model = made()
    state, action = model.begin(2)
    first = torch.ones(2)
    for step in range(100):
        frames = torch.randint(0, 256, (2, 32, 32, 1), dtype=torch.uint8)
        action, state = model.act(frames, state, action, first, source(step))
        first = torch.zeros(2)
        for tensor in (action, *state):
            assert tensor.grad_fn is None
            assert not tensor.requires_grad
            assert nodes(tensor) == 0


def test_an_acted_state_cannot_be_trained_on_by_mistake() -> None:  # I1
    model = made()
    state, action = model.begin(2)
    _, state = model.act(torch.zeros(2, 32, 32, 1, dtype=torch.uint8), state, action, torch.ones(2), source())
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        model.world.rssm.prior(state.deter).sum().backward()


def test_the_model_keeps_nothing_between_calls() -> None:  # I2
    model = made()
    kept = {name: set(vars(module)) for name, module in model.named_modules()}
    size = len(pickle.dumps(model))
    state, action = model.begin(2)
    for step in range(3):
        action, state = model.act(torch.zeros(2, 32, 32, 1, dtype=torch.uint8), state, action, torch.ones(2), source())
        learner(model).update(batch(), source(step), behave=True)
        model.zero_grad(set_to_none=True)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == kept
    assert len(pickle.dumps(model)) == pytest.approx(size, rel=0.01)


def test_an_update_leaves_no_tensor_behind() -> None:  # I5, I7
    learning, steps = learner(made()), batch()
    for number in range(3):
        learning.update(steps, source(number), behave=True)
    before = tensors()
    for number in range(5):
        learning.update(steps, source(number), behave=True)
    assert tensors() == before


def test_the_loss_dies_with_its_update(monkeypatch: pytest.MonkeyPatch) -> None:  # I5
    model = made()
    losses: list[Any] = []
    plain = type(model.world).loss

    def watched(*arguments: Any) -> Any:
        found = plain(*arguments)
        losses.append(weakref.ref(found[0]))
        return found

    monkeypatch.setattr(type(model.world), "loss", watched)
    learner(model).update(batch(), source(), behave=True)
    gc.collect()
    assert losses[0]() is None


def test_figures_carry_no_history() -> None:  # I7
    figures = learner(made()).update(batch(), source(), behave=True)
    assert all(not value.requires_grad and value.grad_fn is None for value in figures.values())
    assert all(torch.isfinite(value) for value in figures.values())


def test_behaviour_does_not_move_the_world_nor_the_world_the_behaviour() -> None:  # I6
    model, steps = made(), batch()
    total, _, states = model.world.loss(steps, source())
    total.backward()
    assert all(parameter.grad is None for parameter in model.behaviour.parameters())
    assert all(parameter.grad is not None for parameter in model.world.parameters())
    model.zero_grad(set_to_none=True)
    start = State(*(part.flatten(0, 1) for part in states))
    total, _ = model.behaviour.loss(model.world, start, steps.terminal.flatten(), 4, 1e-3, source())
    total.backward()
    assert all(parameter.grad is None for parameter in model.world.parameters())
    assert all(parameter.grad is None for parameter in model.behaviour.slow.parameters())
    assert all(parameter.grad is not None for parameter in model.behaviour.actor.parameters())


def test_states_for_imagination_are_detached() -> None:  # I6
    _, _, states = made().world.loss(batch(), source())
    assert nodes(states.deter) == nodes(states.stoch) == 0


def test_optimizer_and_weights_have_a_constant_size() -> None:  # I10
    learning, sizes = learner(made()), []
    for number in range(4):
        learning.update(batch(), source(number), behave=True)
        held = [learning.model.state_dict(), *learning.optimizer.state_dict()["state"].values()]
        sizes.append(sum(tensor.numel() for part in held for tensor in part.values()))
    assert len(set(sizes[1:])) == 1


def test_no_backward_pass_keeps_its_graph() -> None:  # I5
    import ast
    from pathlib import Path

    for path in (Path(__file__).parents[2] / "wm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                assert "retain_graph" not in {keyword.arg for keyword in node.keywords}, path


def test_the_same_seed_gives_the_same_weights() -> None:
    found = []
    for _ in range(2):
        learning = learner(made())
        for number in range(3):
            learning.update(batch(), source(number), behave=True)
        found.append(torch.cat([parameter.flatten() for parameter in learning.model.parameters()]))
    assert torch.equal(*found)


@pytest.mark.parametrize("form", [SMALL, GAUSSIAN])
def test_losses_fall_and_imagination_has_its_shape(form: DreamerConfig) -> None:
    model, steps = made(form), batch(form)
    frames = torch.zeros_like(steps.frames)
    for step in range(frames.shape[1]):
        frames[:, step, :, 4 * step : 4 * step + 8] = 255  # a bar that moves
    steps = steps._replace(frames=frames)
    learning = learner(model)
    told = [learning.update(steps, source(number), behave=True) for number in range(90)]
    for name, share in (("drawn", 0.6), ("reward", 0.9), ("end", 0.6)):
        assert told[-1][name] < share * told[0][name], name
    features, actions = model.behaviour.imagine(model.world, model.world.rssm.initial(5), 4, source())
    assert features.shape == (5, 5, form.feature)
    assert actions.shape == (4, 5, form.action)


def test_an_episodes_first_step_forgets_what_was_before() -> None:
    model, steps = made(), batch()
    embeds = model.world.see(steps.frames)
    whole, _, _ = model.world.rssm.observe(embeds, steps.actions, steps.first, source())
    other = embeds.clone()
    other[0, :3] += 1
    changed, _, _ = model.world.rssm.observe(other, steps.actions, steps.first, source())
    assert not torch.allclose(whole.deter[0, 2], changed.deter[0, 2])
    assert torch.equal(whole.deter[0, 3:], changed.deter[0, 3:])
    assert torch.equal(whole.deter[0, 3], whole.deter[0, 0])  # nor does the action before count


def test_looking_step_by_step_is_observing() -> None:
    model, steps = made(), batch(count=2)
    embeds = model.world.see(steps.frames)
    rssm = model.world.rssm
    whole, _, _ = rssm.observe(embeds[:, :1], steps.actions[:, :1], steps.first[:, :1], source(3))
    one = rssm.look(rssm.initial(2), steps.actions[:, 0], steps.first[:, 0], embeds[:, 0], source(3))
    assert torch.allclose(whole.deter[:, 0], one.deter)
    assert torch.allclose(whole.stoch[:, 0], one.stoch)


def test_lambda_returns_are_those_written_out() -> None:
    rewards, going_on, values = (torch.tensor(numbers)[:, None] for numbers in ([9.0, 1, 2], [9.0, 1, 0], [5.0, 6, 7]))
    last = 2 + DISCOUNT * 0 * 7
    first = 1 + DISCOUNT * 1 * ((1 - LAMBDA) * 6 + LAMBDA * last)
    assert torch.allclose(lambda_returns(rewards, going_on, values).squeeze(1), torch.tensor([first, last]))


def test_what_lies_behind_an_end_does_not_count() -> None:
    model = made()
    start = model.world.rssm.initial(4)
    begun = State(start.deter.detach(), start.stoch.detach())
    total, _ = model.behaviour.loss(model.world, begun, torch.ones(4), 4, 1e-3, source())
    assert total.item() == 0


def test_two_hot_tells_the_number_it_learned() -> None:
    head = TwoHot(3, 8, 1, 63)
    assert head.value(head(torch.randn(5, 3))).tolist() == [0] * 5  # before it learned anything
    for wanted in (-1000.0, -1.0, 0.0, 0.37, 42.0):
        target = torch.full((1,), wanted)
        upper = int(torch.searchsorted(head.edges, target).clamp(1, 62))
        low, high = head.edges[upper - 1], head.edges[upper]
        chances = torch.zeros(1, 63)
        chances[0, upper - 1], chances[0, upper] = (high - target) / (high - low), (target - low) / (high - low)
        assert head.value(chances.log()).item() == pytest.approx(wanted, rel=1e-3, abs=1e-3)
        assert head.loss(chances.clamp(min=1e-9).log(), target) < head.loss(
            chances.flip(1).clamp(min=1e-9).log(), target
        )


def test_symexp_undoes_symlog() -> None:
    x = torch.tensor([-300.0, -1.0, 0.0, 0.5, 1e5])
    assert torch.allclose(symexp(symlog(x)), x, rtol=1e-4)


@pytest.mark.parametrize(("size", "encoder"), [(32, "conv"), (64, "conv"), (96, "conv"), (128, "conv"), (84, "nature")])
def test_every_size_is_drawn_as_it_is_seen(size: int, encoder: str) -> None:
    form = DreamerConfig(size, 3, 2, True, stack=2, encoder=encoder, deter=8, stoch=2, classes=2, depth=2)
    seen = Encoder(form)(torch.zeros(1, size, size, 6))
    assert seen.shape[0] == 1
    assert Decoder(form)(torch.zeros(1, form.feature)).shape == (1, size, size, 3)


def test_unimix_bounds_every_log_probability() -> None:
    model = made()
    with torch.no_grad():
        model.world.rssm.guess[-1].bias.fill_(0)
        model.world.rssm.guess[-1].bias[0] = 1e4
        stats = model.world.rssm.prior(torch.zeros(1, 16))
    assert stats.min() > -7
    assert stats.exp().sum(-1).allclose(torch.ones(1, 4))


def test_without_chance_the_likeliest_is_taken() -> None:
    model = made()
    state, action = model.begin(2)
    frames = torch.randint(0, 256, (2, 32, 32, 1), dtype=torch.uint8)
    runs = [model.act(frames, state, action, torch.ones(2), None) for _ in range(2)]
    assert torch.equal(runs[0][0], runs[1][0])
    assert torch.equal(runs[0][1].stoch, runs[1][1].stoch)


def test_a_range_of_returns_scales_the_advantage_only_upwards() -> None:
    behaviour = ActorCritic(SMALL)
    assert behaviour._follow_range(torch.linspace(0, 0.1, 50)).item() == 1
    for _ in range(500):
        scale = behaviour._follow_range(torch.linspace(0, 100, 51))
    assert scale.item() == pytest.approx(90, rel=0.05)
