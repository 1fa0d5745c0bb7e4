from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from wm.evaluation.linear_probe import fit_and_score
from wm.models.vae.networks import to_images
from wm.models.vae.position_targets import MOST, PositionTargets


def scenes(count: int, channels: int) -> tuple[torch.Tensor, np.ndarray]:
    """A dim dot of one pixel and a bright bar twelve pixels long, each at random places; and those."""
    random = np.random.default_rng(0)
    places = np.stack([random.integers(4, 60, count), random.integers(4, 60, count), random.integers(8, 52, count)], 1)
    frames = np.full((count, 64, 64, channels), 90, np.uint8)
    for frame, (x, y, bar) in zip(frames, places, strict=True):
        frame[bar - 6 : bar + 6, 2:4] = (200, 60, 90)[:channels]
        frame[y, x] = 160
    return torch.from_numpy(frames), places.astype(np.float64)


@pytest.mark.parametrize("channels", [1, 3])
def test_positions_are_linear_in_them(channels: int) -> None:
    frames, places = scenes(800, channels)
    targets = PositionTargets(frames, 32)(to_images(frames)).numpy()
    scores = fit_and_score(targets[:600], places[:600], targets[600:], places[600:])
    assert min(r2 for r2, _, _ in scores) > 0.9


def test_two_polynomials_per_axis_are_linear_in_a_position_and_two_cosines_are_not() -> None:
    frames, places = scenes(800, 3)

    def r2_of(basis: str) -> float:
        targets = PositionTargets(frames, 7, basis=basis)(to_images(frames)).numpy()
        assert targets.shape[1] == 3 * 2 * 2
        return min(r2 for r2, _, _ in fit_and_score(targets[:600], places[:600], targets[600:], places[600:]))

    assert r2_of("polynomials") > 0.998 > r2_of("cosines")


@pytest.mark.parametrize(("latent", "channels", "count"), [(32, 3, 48), (64, 3, 108), (32, 1, 49), (2, 3, 12)])
def test_their_number_follows_the_number_of_latents(latent: int, channels: int, count: int) -> None:
    frames, _ = scenes(200, channels)
    assert PositionTargets(frames, latent).count == count


def test_they_are_whitened_and_rounding_noise_stays_small() -> None:
    frames, _ = scenes(400, 3)
    targets = PositionTargets(frames, 32)(to_images(frames))
    assert targets.shape == (400, 48)
    assert targets.mean(0).abs().max() < 1e-2
    assert targets.std(0).max() < 1.01
    assert (targets.std(0) > 0.9).sum() >= 10
    still = torch.full((400, 64, 64, 3), 90, dtype=torch.uint8)
    assert PositionTargets(still, 32)(to_images(still)).abs().max() < 0.1


def test_what_a_few_frames_do_not_show_outweighs_no_other_frame() -> None:
    shown = torch.full((20, 64, 64, 3), 90, dtype=torch.uint8)
    for number in range(20):
        shown[number, 3 * number : 3 * number + 3, 20:23] = 255  # one object, which never leaves
    gone = torch.full((1, 64, 64, 3), 90, dtype=torch.uint8)
    targets = PositionTargets(shown, 8)
    assert targets(to_images(shown)).std(0).max() > 0.9
    assert targets(to_images(gone)).abs().max() <= MOST
    assert targets(to_images(gone)).square().mean() < 20


@pytest.mark.slow
@pytest.mark.slow
def test_an_orientation_is_linear_in_the_orientation_targets_only() -> None:
    random = np.random.default_rng(1)
    angles, (x, y) = random.uniform(-0.7, 0.7, 800), random.uniform(12, 52, (2, 800))
    rows, columns = np.mgrid[:64, :64]
    along = (columns - x[:, None, None]) * np.cos(angles)[:, None, None]
    along += (rows - y[:, None, None]) * np.sin(angles)[:, None, None]
    across = (rows - y[:, None, None]) * np.cos(angles)[:, None, None]
    across -= (columns - x[:, None, None]) * np.sin(angles)[:, None, None]
    shade = 150 * np.clip(6 - np.abs(along), 0, 1) * np.clip(2 - np.abs(across), 0, 1)
    frames = torch.from_numpy(np.repeat(shade[..., None], 3, axis=-1).astype(np.uint8))

    def r2_of(orientation_targets: int) -> float:
        targets = PositionTargets(frames, 64, orientation_targets)(to_images(frames)).numpy()
        return fit_and_score(targets[:600], angles[:600, None], targets[600:], angles[600:, None])[0][0]

    assert r2_of(2) > 0.9
    assert r2_of(0) < 0.5


def test_orientation_targets_replace_position_targets() -> None:
    frames, _ = scenes(200, 3)
    assert PositionTargets(frames, 64, 2).count == 3 * 16 + 9 * 4


class FloatCopies(TorchDispatchMode):
    """The float tensors with as many numbers as `sample` or more, which it keeps alive."""

    def __init__(self, sample: torch.Tensor) -> None:
        super().__init__()
        self._least, self.storages = sample.numel(), dict[int, torch.Tensor]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.is_floating_point() and result.numel() >= self._least:
            self.storages[result.untyped_storage().data_ptr()] = result
        return result


def test_orientation_targets_take_the_sample_as_floats_once() -> None:
    frames, _ = scenes(900, 3)  # more than the tensors of a part of 256 frames have numbers
    with FloatCopies(frames) as copies:
        PositionTargets(frames, 64, 1)
    assert len(copies.storages) == 1
