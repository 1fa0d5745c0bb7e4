from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from wm.seeding import integer
from wm.training.checkpoint import Checkpoints
from wm.training.loop import train


def setup(folder: Path) -> tuple[nn.Module, torch.optim.Optimizer, Checkpoints]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    return model, optimizer, Checkpoints(folder, model, optimizer)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, start: int) -> Iterator[tuple[int, dict[str, Tensor]]]:
    def loss(step: int) -> tuple[Tensor, dict[str, Tensor]]:
        batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(integer(0, step)))
        value = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        return value, {"loss": value}

    return train(model, optimizer, loss, start=start, stop=40, learning_rate=1e-2, clip=1.0)


def score(value: float) -> dict[str, float]:
    return {"validation_loss": value}


def test_a_resumed_run_is_bitwise_the_uninterrupted_one(tmp_path: Path) -> None:
    whole, optimizer, _ = setup(tmp_path / "a")
    list(steps(whole, optimizer, 0))
    model, optimizer, checkpoints = setup(tmp_path / "b")
    for step, _ in steps(model, optimizer, 0):
        if step == 17:
            checkpoints.save(step, score(1.0))
        if step == 23:
            break  # killed six steps later
    model, optimizer, checkpoints = setup(tmp_path / "b")
    torch.manual_seed(123)
    assert checkpoints.resume() == 17
    list(steps(model, optimizer, 17))
    for one, two in zip(whole.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_the_best_and_the_last_two_are_kept(tmp_path: Path) -> None:
    model, optimizer, checkpoints = setup(tmp_path)
    for step, value in ((1, 5.0), (2, 1.0), (3, 4.0), (4, 3.0), (5, 2.0)):
        with torch.no_grad():
            model[0].bias.fill_(value)  # type: ignore[index]
        list(steps(model, optimizer, 39))
        checkpoints.save(step, score(value))
    assert [point.step for point in checkpoints.points()] == [2, 4, 5]
    assert len(list(tmp_path.iterdir())) == 6
    assert checkpoints.load_best().step == 2


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    model, optimizer, checkpoints = setup(tmp_path)
    list(steps(model, optimizer, 39))
    checkpoints.save(1, score(1.0))
    checkpoints.save(2, score(1.0))
    file = checkpoints.points()[-1].tensors
    data = bytearray(file.read_bytes())
    data[-3] ^= 4
    file.write_bytes(bytes(data))
    assert checkpoints.resume() == 1
    file.unlink()
    assert checkpoints.resume() == 1
