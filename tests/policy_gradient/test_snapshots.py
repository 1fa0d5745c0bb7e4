import numpy as np
import pytest
import torch

from wm.policy_gradient.snapshots import MOST, Snapshots


def kept(iterations: int, begin: int = 1, snapshots: Snapshots | None = None) -> Snapshots:
    snapshots = snapshots or Snapshots(torch.zeros(MOST, 2))
    for iteration in range(begin, iterations + 1):
        snapshots.keep(iteration, np.full(2, iteration, np.float32))
    return snapshots


@pytest.mark.parametrize("iterations", [1, MOST, MOST + 1, 100, 1000])
def test_policies_are_kept_at_equal_distances_from_the_first_on(iterations: int) -> None:
    snapshots = kept(iterations)
    assert snapshots.iterations[0] == 1
    assert len(set(np.diff(snapshots.iterations))) <= 1
    assert min(iterations, MOST // 2) <= len(snapshots.iterations) <= MOST
    assert snapshots.parameters().tolist() == [[number] * 2 for number in snapshots.iterations]


def test_what_a_checkpoint_holds_continues_alike() -> None:
    rows = torch.zeros(MOST, 2)
    half = kept(70, snapshots=Snapshots(rows))
    resumed = Snapshots(rows.clone())
    resumed.load_state(half.state())
    assert kept(200, 71, resumed).iterations == kept(200).iterations
    assert np.array_equal(resumed.parameters(), kept(200).parameters())
