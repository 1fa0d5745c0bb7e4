import pytest
import torch
from torch import Tensor

from wm.models.mdnrnn.cell import make_cell
from wm.models.mdnrnn.rollout_network import RolloutNetwork

ACTIONS, LATENT = 2, 3
FORMS = pytest.mark.parametrize("hidden", [0, 16])


def make(hidden: int) -> RolloutNetwork:
    """With other constants than 0 and 1, and outputs that differ from 0."""
    torch.manual_seed(0)
    model = RolloutNetwork(LATENT, ACTIONS, hidden, 24)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    for name in ("z_mean", "z_std", "difference_std", "residual_std", "reward_unit"):
        buffer = model.get_buffer(name)
        buffer.copy_(0.5 + torch.rand(buffer.shape))
    return model


def windows(rows: int, warm_up: int, steps: int) -> dict[str, Tensor]:
    length = warm_up + steps
    return {
        "means": torch.randn(rows, length + 1, LATENT),
        "noise": torch.zeros(rows, warm_up + 1, LATENT),
        "action": torch.randn(rows, length, ACTIONS),
        "rewards": torch.randn(rows, length),
        "ends": torch.zeros(rows, length),
        "mask": torch.ones(rows, length),
    }


@FORMS
def test_stepping_is_the_same_as_a_sequence(hidden: int) -> None:
    model = make(hidden).requires_grad_(False)
    z, actions = torch.randn(2, 7, LATENT), torch.randn(2, 7, ACTIONS)
    expected = model.one_step(z, actions, z)
    cell, state, random = make_cell(model, 2), model.initial_state(2), torch.Generator()
    model.residual_std.zero_()
    for step in range(7):
        sample, following = cell.advance(z[:, step], actions[:, step], state, 1.0, random, None)
        state = cell.step(z[:, step], actions[:, step], state)
        assert all(torch.equal(one, two) for one, two in zip(state, following, strict=True))
        assert torch.allclose(state[0], expected.hidden[:, step], atol=1e-5)
        assert torch.allclose(sample.z, expected.z[:, step], atol=1e-5)
        assert torch.allclose(sample.reward, expected.reward[:, step], atol=1e-4)
        assert torch.allclose(sample.end, expected.end[:, step], atol=1e-5)


@FORMS
@pytest.mark.parametrize("dreamt_rewards", [False, True])
def test_the_heads_do_not_train_the_prediction_of_latents(hidden: int, dreamt_rewards: bool) -> None:
    model, batch = make(hidden), windows(4, 2, 3)
    losses = model.loss(**batch, dreamt_rewards=dreamt_rewards)
    (losses.reward + losses.end).backward()
    latents, *heads = model.clipped_apart()
    assert all(parameter.grad is None for parameter in latents.parameters())
    assert all(parameter.grad.abs().sum() > 0 for head in heads for parameter in head.parameters())  # type: ignore[union-attr]
    assert sum(1 for part in model.clipped_apart() for _ in part.parameters()) == len(list(model.parameters()))


@FORMS
def test_a_rollout_is_fed_its_own_predictions(hidden: int) -> None:
    model, batch = make(hidden), windows(4, 2, 5)
    before = model.loss(**batch)
    batch["means"][:, 3:7] += 1  # real latents after the start of the rollout, but the last: targets, not inputs
    last = model.loss(**{**batch, "mask": torch.eye(7)[6].repeat(4, 1)})
    batch["means"][:, 3:7] -= 1
    assert torch.equal(last.rollout, model.loss(**{**batch, "mask": torch.eye(7)[6].repeat(4, 1)}).rollout)
    batch["means"][:, 2] += 1
    assert before.rollout != model.loss(**batch).rollout


@FORMS
def test_rows_before_an_episode_are_as_if_they_were_not_there(hidden: int) -> None:
    model, batch = make(hidden), windows(4, 3, 4)
    batch["mask"][:, :3] = 0
    short = {name: value[:, 3:] for name, value in batch.items()}
    assert torch.allclose(model.loss(**batch).rollout, model.loss(**short).rollout, atol=1e-6)
    assert torch.allclose(model.loss(**batch).reward, model.loss(**short).reward, atol=1e-6)


def test_the_heads_learn_from_the_last_step_of_an_episode() -> None:
    model, batch = make(0), windows(4, 1, 4)
    batch["mask"][:, 3:] = 0
    batch["ends"][:, 2] = 1
    ended = model.loss(**batch).end
    batch["ends"][:, 2] = 0
    assert ended != model.loss(**batch).end


@pytest.mark.parametrize("dreamt_rewards", [False, True])
def test_every_second_window_trains_the_end_on_dreams_and_rewards_only_if_asked(dreamt_rewards: bool) -> None:
    model, batch = make(0), windows(4, 2, 3)
    batch["ends"][:, -1] = 1
    for first, real in ((0, True), (1, False)):
        mask = torch.zeros(4, 5)
        mask[first::2] = 1
        before = model.loss(**{**batch, "mask": mask}, dreamt_rewards=dreamt_rewards)
        batch["means"][:, 3:] += 1  # what a rollout does not see
        after = model.loss(**{**batch, "mask": mask}, dreamt_rewards=dreamt_rewards)
        assert torch.equal(before.end, after.end) != real
        assert torch.equal(before.reward, after.reward) == (dreamt_rewards and not real)


def test_a_step_that_ends_the_episode_has_a_reward_of_its_own() -> None:
    model, batch = make(0), windows(4, 1, 3)
    last_rows = [layer for layer in model.reward.layers if isinstance(layer, torch.nn.Linear)][-1].bias
    for ends, trained, other in ((0.0, slice(0, 49), slice(49, 98)), (1.0, slice(49, 98), slice(0, 49))):
        batch["ends"][:] = ends
        (gradient,) = torch.autograd.grad(model.loss(**batch).reward, last_rows)
        assert gradient[trained].abs().sum() > 0
        assert not gradient[other].any()


def test_a_reward_is_the_mean_over_going_on_and_ending() -> None:
    model = make(0).requires_grad_(False)
    log_probs = model.reward(torch.randn(6, 3 * LATENT + ACTIONS))
    alive, dead, half = (model.mean_reward(log_probs, torch.full((6,), end)) for end in (0.0, 1.0, 0.5))
    assert torch.allclose(alive, model.reward.mean(log_probs[:, 0]) * model.reward_unit)
    assert torch.allclose(dead, model.reward.mean(log_probs[:, 1]) * model.reward_unit)
    assert torch.allclose(half, (alive + dead) / 2)


def test_a_dreams_latents_and_reward_are_those_of_the_bounded_transition() -> None:
    model = make(16).requires_grad_(False)
    z, action, state = torch.randn(5, LATENT), torch.randn(5, ACTIONS), model.initial_state(5)
    bounds = torch.full((LATENT,), -0.1), torch.full((LATENT,), 0.1)
    cell = make_cell(model, 5)
    bounded, _ = cell.advance(z, action, state, 1.0, torch.Generator().manual_seed(0), bounds)
    free, _ = cell.advance(z, action, state, 1.0, torch.Generator().manual_seed(0), None)
    assert torch.equal(bounded.z, free.z.clamp(-0.1, 0.1))
    inputs, _, _ = model.remember(model.standardise(z), action, state)
    reward, end = model.outcome(inputs, model.standardise(bounded.z))
    assert torch.allclose(bounded.reward, reward, atol=1e-5)
    assert torch.allclose(bounded.end, end, atol=1e-5)
    assert not torch.allclose(bounded.reward, free.reward, atol=1e-3)


def test_noise_is_a_share_of_the_residual_that_grows_with_the_temperature() -> None:
    model = make(0).requires_grad_(False)
    z, action, state = torch.zeros(4000, LATENT), torch.zeros(4000, ACTIONS), model.initial_state(4000)
    cell = make_cell(model, 4000)
    for temperature, share in ((1.0, 0.25), (4.0, 0.5)):
        sample, _ = cell.advance(z, action, state, temperature, torch.Generator().manual_seed(0), None)
        assert torch.allclose(sample.z.std(0), share * model.residual_std * model.z_std, rtol=0.05)


@FORMS
def test_h_stays_within_its_bounds(hidden: int) -> None:
    model, low, high = make(hidden).requires_grad_(False), torch.full((LATENT,), -2.0), torch.full((LATENT,), 3.0)
    z, actions = low + torch.rand(50, 6, LATENT).round() * (high - low), torch.rand(50, 6, ACTIONS).round() * 2 - 1
    least, most = model.hidden_bounds(low, high)
    states = model.hidden_states(z, actions)
    assert least.shape == most.shape == states.shape[2:]
    assert ((states >= least - 1e-5) & (states <= most + 1e-5)).all()
    if not hidden:  # they are reached
        assert torch.allclose(states.amin((0, 1)), least, atol=1e-5)
        assert torch.allclose(states.amax((0, 1)), most, atol=1e-5)
