from pathlib import Path

import torch
from torch import Tensor, nn

from wm.seeding import integer
from wm.training.checkpoint import Checkpoints
from wm.training.loop import Trainer
from wm.training.precision import Precision


def setup(folder: Path) -> tuple[Trainer, Checkpoints]:
    torch.manual_seed(0)
    convolution = nn.Conv2d(4, 8, 2, padding=1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = nn.Sequential(nn.Unflatten(1, (4, 1, 1)), convolution, nn.Tanh(), nn.Flatten(), nn.Linear(32, 1))

    def loss(batch: int) -> tuple[Tensor, dict[str, Tensor]]:
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(integer(0, batch)))
        value = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        return value, {"loss": value}

    precision = Precision("fp32", torch.device("cpu"))
    trainer = Trainer(model, loss, precision, steps=40, learning_rate=1e-2, clip=1.0)
    return trainer, Checkpoints(folder, trainer)


def score(value: float) -> dict[str, float]:
    return {"validation_loss": value}


def test_a_resumed_run_is_bitwise_the_uninterrupted_one(tmp_path: Path) -> None:
    uninterrupted, _ = setup(tmp_path / "a")
    for step in range(40):
        uninterrupted.step(step)
    killed, checkpoints = setup(tmp_path / "b")
    for step in range(23):  # killed six steps after the checkpoint
        if step == 17:
            checkpoints.save(step, score(1.0))
        killed.step(step)
    resumed, checkpoints = setup(tmp_path / "b")
    torch.manual_seed(123)
    assert checkpoints.resume() == 17
    for step in range(17, 40):
        resumed.step(step)
    for one, two in zip(uninterrupted.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_rate_that_was_halved_stays_so(tmp_path: Path) -> None:
    trainer, checkpoints = setup(tmp_path)
    trainer.rate = 0.5
    checkpoints.save(1, score(1.0))
    resumed, checkpoints = setup(tmp_path)
    checkpoints.resume()
    assert resumed.rate == 0.5


def test_the_best_and_the_last_two_are_kept(tmp_path: Path) -> None:
    trainer, checkpoints = setup(tmp_path)
    for step, value in ((1, 5.0), (2, 1.0), (3, 4.0), (4, 3.0), (5, 2.0)):
        trainer.step(step)
        checkpoints.save(step, score(value))
    assert [checkpoint.step for checkpoint in checkpoints.all()] == [2, 4, 5]
    assert len(list(tmp_path.iterdir())) == 6
    assert checkpoints.load_best().step == 2


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    trainer, checkpoints = setup(tmp_path)
    trainer.step(0)
    checkpoints.save(1, score(1.0))
    checkpoints.save(2, score(1.0))
    file = checkpoints.all()[-1].tensors
    data = bytearray(file.read_bytes())
    data[-3] ^= 4
    file.write_bytes(bytes(data))
    assert checkpoints.resume() == 1
    file.unlink()
    assert checkpoints.resume() == 1
