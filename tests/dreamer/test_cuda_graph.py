"""On a GPU whole updates of a Dreamer are replayed as CUDA graphs, which changes their speed and nothing else."""

import pytest
import torch
from torch import Tensor

from tests.models.test_dreamer import CONTINUOUS, SMALL, batch, dreamer, trainer_of
from wm.dreamer.cuda_graph import PLAIN_UPDATES, GraphedUpdate, Update, fastest_update
from wm.models.dreamer.agent import DreamerTrainer
from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.world_model import Batch

CUDA, UPDATES = torch.device("cuda"), 2 * PLAIN_UPDATES + 6
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def trainer_on_gpu(config: DreamerConfig) -> DreamerTrainer:
    return trainer_of(dreamer(config).to(CUDA))


def run(update: Update, trainer: DreamerTrainer) -> tuple[list[dict[str, float]], Tensor]:
    """Metrics of updates on other batches, the world model's alone and then all, and the weights after them."""
    noise, metrics = torch.Generator(CUDA), []
    example = batch(trainer.model.config)
    for number in range(UPDATES):
        frames = example.frames.roll(number, 2)
        on_gpu = Batch(*(part.to(CUDA) for part in example._replace(frames=frames)))
        values = update(on_gpu, noise.manual_seed(number), number >= UPDATES // 2)
        metrics.append({name: value.item() for name, value in values.items()})
    return metrics, weights_of(trainer)


def weights_of(trainer: DreamerTrainer) -> Tensor:
    return torch.cat([part.detach().flatten() for part in trainer.model.parameters()])


@needs_gpu
@pytest.mark.parametrize("config", [SMALL, CONTINUOUS], ids=["discrete", "continuous"])
def test_replayed_updates_are_those_that_were_recorded(config: DreamerConfig) -> None:
    trainer, plain = trainer_on_gpu(config), trainer_on_gpu(config)
    update = GraphedUpdate(trainer)
    metrics, weights = run(update, trainer)
    assert len(update._replays) == 2
    expected, expected_weights = run(plain.update, plain)
    for ours, others in zip(metrics, expected, strict=True):
        assert ours == pytest.approx(others, rel=1e-3, abs=1e-4)
    moved = expected_weights - torch.cat(
        [part.detach().flatten() for part in trainer_on_gpu(config).model.parameters()]
    )
    assert (weights - expected_weights).norm() < 1e-2 * moved.norm()


@needs_gpu
def test_metrics_stay_when_the_graph_is_replayed_again() -> None:
    trainer = trainer_on_gpu(SMALL)
    update, noise = GraphedUpdate(trainer), torch.Generator(CUDA)
    on_gpu = Batch(*(part.to(CUDA) for part in batch()))
    for number in range(PLAIN_UPDATES + 1):
        first = update(on_gpu, noise.manual_seed(number), True)["kl"]
    before = first.item()
    update(on_gpu, noise.manual_seed(9), True)
    assert first.item() == before


@needs_gpu
def test_a_loss_that_is_not_finite_changes_no_weight_in_a_replay() -> None:
    trainer = trainer_on_gpu(SMALL)
    update, noise = GraphedUpdate(trainer), torch.Generator(CUDA)
    on_gpu = Batch(*(part.to(CUDA) for part in batch()))
    for number in range(PLAIN_UPDATES + 2):
        update(on_gpu, noise.manual_seed(number), False)
    before = weights_of(trainer)
    update(on_gpu._replace(rewards=on_gpu.rewards * float("nan")), noise.manual_seed(0), False)
    assert torch.equal(before, weights_of(trainer))


def test_updates_on_a_cpu_are_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, threads = trainer_of(dreamer()), list[int]()
    monkeypatch.setattr(trainer, "update", lambda *_: threads.append(torch.get_num_threads()) or {})
    torch.set_num_threads(3)
    try:
        fastest_update(trainer, torch.device("cpu"))(batch(), torch.Generator(), True)
        assert (threads, torch.get_num_threads()) == ([1], 3)
    finally:
        torch.set_num_threads(1)
