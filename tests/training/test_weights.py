from pathlib import Path

import pytest
import torch
from torch import nn

from wm.errors import BadData
from wm.training import weights


def test_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    weights.save(tmp_path / "w", model.state_dict())
    other = nn.Linear(3, 2)
    weights.load_into(other, weights.load_tensors((tmp_path / "w").read_bytes(), "w"), "w")
    assert torch.equal(model.weight, other.weight)


def test_a_mismatch_is_reported_by_name() -> None:
    with pytest.raises(BadData, match=r"w: weight has shape \[4, 4\]; expected \[2, 3\]"):
        weights.load_into(nn.Linear(3, 2), {"weight": torch.zeros(4, 4), "bias": torch.zeros(2)}, "w")
    with pytest.raises(BadData, match="bias is in the model but not in w"):
        weights.load_into(nn.Linear(3, 2), {"weight": torch.zeros(2, 3)}, "w")
    with pytest.raises(BadData, match="not a safetensors file"):
        weights.load_tensors(b"nonsense", "w")
