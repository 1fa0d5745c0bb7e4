import itertools

import pytest
import torch

from wm.actions import ActionSpace
from wm.settings import MdnRnnSettings, VaeSettings
from wm.training.cost import (
    LATENT_BYTES,
    RECORD_BYTES,
    mdnrnn_cost,
    mdnrnn_memory,
    publishing_bytes,
    vae_cost,
    weight_bytes,
)
from wm.training.mdnrnn import mdnrnn_config, new_mdnrnn
from wm.training.vae import SAMPLE_FRAMES, VALIDATION_FRAMES

CPU = torch.device("cpu")


def clock() -> object:
    """Of which two readings are two seconds apart."""
    return itertools.count(step=2.0).__next__


@pytest.mark.parametrize("steps", [10, 40])
def test_the_time_of_a_training_is_that_of_a_few_steps_for_all_and_some_more_for_validations(steps: int) -> None:
    vae = vae_cost(clock(), VaeSettings(latent=4, batch=2, steps=steps), (32, 32, 3), 100, 0, CPU)  # type: ignore[arg-type]
    assert 2 * steps < vae.seconds < 2.5 * steps
    settings = MdnRnnSettings(hidden=8, batch=2, seq_len=4, steps=steps)
    assert 2 * steps < mdnrnn_cost(clock(), settings, 4, ActionSpace(count=3), 100, 0, CPU).seconds < 2.5 * steps  # type: ignore[arg-type]


def test_frames_in_memory_are_counted_up_to_their_limit() -> None:
    settings = [VaeSettings(latent=4, batch=2, steps=1, ram=ram) for ram in ("1MB", "2MB")]
    few, many, more = (
        vae_cost(clock(), one, (32, 32, 3), rows, 0, CPU).memory  # type: ignore[arg-type]
        for one, rows in ((settings[0], 10), (settings[0], 10_000), (settings[1], 10_000))
    )
    sample = (SAMPLE_FRAMES + VALIDATION_FRAMES) * 32 * 32 * 3
    assert many - few == 1_000_000 + sample - 2 * 10 * 32 * 32 * 3
    assert more - many == 1_000_000


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is taken to see how long it takes."""
    monkeypatch.setattr("wm.training.cost.seconds_per_step", lambda *_: 1.0)


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    ("batch", "rows", "orientations", "used"),
    [(8, 2_572, 0, 650e6), (64, 15_618, 0, 847e6), (64, 18_729, 0, 867e6), (64, 6_024, 1, 778e6)],
)
def test_the_memory_of_v_is_that_of_measured_trainings_and_no_less(
    batch: int, rows: int, orientations: int, used: float
) -> None:
    """`used` is the largest RSS of `wm train-vae --quick` in Pong with a batch of 8 frames and of 64, in LunarLander
    and in CarRacing."""
    settings = VaeSettings(batch=batch, steps=1, ram="1GB", orientation_targets=orientations)
    told = vae_cost(clock(), settings, (64, 64, 3), rows, 0, CPU).memory  # type: ignore[arg-type]
    assert used <= told < 1.2 * used


@pytest.mark.usefixtures("untimed")
@pytest.mark.parametrize(
    ("network", "latent", "batch", "used"),
    [
        ("small", 32, 8, 648e6),
        ("small", 32, 64, 647e6),
        ("paper", 32, 8, 811e6),
        ("paper", 32, 64, 941e6),
        ("paper", 1024, 8, 944e6),
    ],
)
def test_the_memory_of_v_counts_its_weights(network: str, latent: int, batch: int, used: float) -> None:
    """`used` is the largest RSS of six steps in Pong on 2,572 frames, read from disk."""
    settings = VaeSettings(network=network, latent=latent, batch=batch, steps=1, ram="1MB")
    told = vae_cost(clock(), settings, (64, 64, 3), 2_572, 0, CPU).memory  # type: ignore[arg-type]
    assert used <= told < 1.2 * used


@pytest.mark.parametrize(
    ("hidden", "batch", "used"),
    [(256, 4, 630e6), (256, 32, 696e6), (256, 128, 695e6), (1024, 4, 1_238e6), (1024, 32, 1_258e6), (2048, 4, 1_730e6)],
)
def test_the_memory_of_m_counts_its_weights(hidden: int, batch: int, used: float) -> None:
    """`used` is the largest RSS of six steps in Pong on 15,618 latents, and of the comparison after them."""
    length = 16 if batch == 4 else 64
    settings = MdnRnnSettings(hidden=hidden, batch=batch, seq_len=length)
    model = new_mdnrnn(mdnrnn_config(settings, 32, ActionSpace(count=3)), 0)
    assert used <= mdnrnn_memory(model, 15_618, batch=batch, length=length, mixtures=settings.mixtures) < 1.5 * used


@pytest.mark.parametrize(("batch", "length", "rows", "used"), [(32, 64, 18_729, 672e6), (100, 999, 15_000, 1_824e6)])
def test_the_memory_of_m_is_that_of_measured_trainings_and_no_less(
    batch: int, length: int, rows: int, used: float
) -> None:
    """`used` is the largest RSS of `wm train-mdnrnn --quick` in LunarLander, which the comparison with baselines has,
    and of steps of the `paper` preset."""
    settings = MdnRnnSettings(batch=batch, seq_len=length)
    model = new_mdnrnn(mdnrnn_config(settings, 32, ActionSpace(count=4)), 0)
    assert used <= mdnrnn_memory(model, rows, batch=batch, length=length, mixtures=settings.mixtures) < 1.25 * used


def test_latents_are_counted_with_the_disk_of_m() -> None:
    settings = MdnRnnSettings(hidden=8, batch=2, seq_len=4, steps=1)
    few, many = (mdnrnn_cost(clock(), settings, 4, ActionSpace(count=3), rows, 0, CPU) for rows in (0, 1000))  # type: ignore[arg-type]
    assert many.latents == many.disk - few.disk == 1000 * 4 * LATENT_BYTES
    assert many.memory > few.memory


def test_checkpoints_and_published_weights_are_ten_times_the_weights_besides_the_records() -> None:
    model = torch.nn.Linear(9, 10)
    assert weight_bytes(model) == 400
    assert publishing_bytes(model) == 10 * 400 + RECORD_BYTES
