import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from wm.artifacts import durable, runs
from wm.errors import BadData
from wm.seeding import integer
from wm.telemetry.metrics_log import MetricsLog
from wm.training import checkpoint
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


def test_the_best_and_the_last_are_kept_and_of_the_one_before_its_json(tmp_path: Path) -> None:
    trainer, checkpoints = setup(tmp_path)
    for step, value in ((1, 5.0), (2, 1.0), (3, 4.0), (4, 3.0), (5, 2.0)):
        trainer.step(step)
        checkpoints.save(step, score(value))
    assert [checkpoint.step for checkpoint in checkpoints.all()] == [2, 4, 5]
    tensors, records = (sorted(path.stem for path in tmp_path.rglob(f"*.{end}")) for end in ("safetensors", "json"))
    assert tensors == ["step-00000002", "step-00000005"]
    assert records == ["step-00000002", "step-00000004", "step-00000005"]
    assert setup(tmp_path)[1].resume() == 5
    assert checkpoints.load_best().step == 2


def saved(folder: Path) -> Checkpoints:
    """Four checkpoints: the first, which is the best, and the last are kept, and of the third the JSON."""
    trainer, checkpoints = setup(folder)
    log = MetricsLog(folder, -1)
    for step, value in ((1, 1.0), (2, 4.0), (3, 3.0), (4, 2.0)):
        trainer.step(step)
        log.write(step, score(value))
        checkpoints.save(step, score(value))
    return checkpoints


def edits(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a training, with one byte of it changed at each of some places, and removed."""
    names = ["metrics.jsonl", *(f"checkpoints/{path.name}" for path in (folder / "checkpoints").iterdir())]
    for name in sorted(names):
        data = (folder / name).read_bytes()
        digits = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
        for place in digits[:: max(len(digits) // 25, 1)]:
            yield name, data[:place] + (b"7" if data[place] != ord("7") else b"8") + data[place + 1 :]
        yield name, b""


def test_whatever_is_changed_in_a_checkpoint_or_the_metrics_before_it_is_named(tmp_path: Path) -> None:
    kept = saved(tmp_path).all()
    assert [checkpoint.step for checkpoint in kept] == [1, 3, 4]
    for name, data in edits(tmp_path):
        file = tmp_path / name
        real = file.read_bytes()
        file.write_bytes(data)
        if not data:
            file.unlink()
        # Without the last one, the one before it names another that was removed meanwhile.
        named = "step-00000002" if file == kept[-1].record and not data else file.stem
        with pytest.raises(BadData, match=rf"{named}.*; restore it, or remove {tmp_path} to begin anew"):
            setup(tmp_path)
        file.write_bytes(real)
    assert setup(tmp_path)[1].resume() == 4


def test_a_checkpoint_of_another_training_is_named(tmp_path: Path) -> None:
    for latent in (1, 2):
        durable.make_folder(tmp_path / str(latent))
        durable.write_json(tmp_path / str(latent) / runs.RECIPE_FILE, {"latent": latent})
        saved(tmp_path / str(latent))
    durable.remove(tmp_path / "1" / "checkpoints")
    shutil.copytree(tmp_path / "2" / "checkpoints", tmp_path / "1" / "checkpoints")
    with pytest.raises(BadData, match=r"step-00000004\.json is of another step or another training"):
        setup(tmp_path / "1")


def test_what_a_kill_leaves_is_no_damage(tmp_path: Path) -> None:
    saved(tmp_path)
    old = tmp_path / "checkpoints" / "step-00000002.json"
    durable.write_json(old, {"of": "a checkpoint that was not removed yet"})
    (tmp_path / "checkpoints" / "step-00000005.safetensors").write_bytes(b"without its JSON")
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 5, "lo')
    checkpoints = setup(tmp_path)[1]
    assert checkpoints.resume() == 4
    assert checkpoints.load_best().step == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"optimizer.0.exp_avg": torch.zeros(7)}, r"optimizer\.0\.exp_avg has shape \[7\], not \[8, 4, 2, 2\]"),
        ({"optimizer.1.step": torch.ones(1)}, r"optimizer\.1\.step has shape \[1\], not \[\]"),
        ({"optimizer.2.step": None}, r"optimizer\.2\.step is missing"),
        (dict.fromkeys(f"optimizer.3.{name}" for name in ("step", "exp_avg", "exp_avg_sq")), "optimizer.3 is missing"),
        ({"optimizer.-1.exp_avg": torch.zeros(1)}, r"optimizer\.-1\.exp_avg belongs to none of 4 parameters"),
        ({"optimizer.4.step": torch.tensor(1.0)}, "belongs to none of 4 parameters"),
        ({"optimizer.0.more": torch.zeros(1)}, "belongs to none of 4 parameters"),
        ({"optimizer.0": torch.zeros(1)}, "belongs to none of 4 parameters"),
    ],
)
def test_moments_of_other_weights_are_refused(
    change: dict[str, Tensor | None], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, checkpoints = setup(tmp_path)
    trainer.step(0)
    tensors = checkpoint.tensors_of(trainer) | change
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "tensors_of", lambda _: kept)
        checkpoints.save(1, score(1.0))
    with pytest.raises(BadData, match=rf"step-00000001\.safetensors has moments .*{problem}.*restore it, or remove"):
        setup(tmp_path)[1].resume()
