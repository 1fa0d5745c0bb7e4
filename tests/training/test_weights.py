import re
from pathlib import Path

import pytest
import torch
from torch import nn

from wm.errors import BadData, WmError
from wm.training import weights


def test_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    weights.save(tmp_path / "w", model.state_dict())
    other = nn.Linear(3, 2)
    weights.load_into(other, weights.load_tensors((tmp_path / "w").read_bytes(), "w"), "w")
    assert torch.equal(model.weight, other.weight)


def test_a_mismatch_is_reported_by_name() -> None:
    with pytest.raises(BadData, match=r"w: weight has shape \[4, 4\]; expected \[2, 3\]\. .*train it again"):
        weights.load_into(nn.Linear(3, 2), {"weight": torch.zeros(4, 4), "bias": torch.zeros(2)}, "w")
    with pytest.raises(BadData, match=r"bias is in the model but not in w; .* train it again"):
        weights.load_into(nn.Linear(3, 2), {"weight": torch.zeros(2, 3)}, "w")
    with pytest.raises(BadData, match="not a safetensors file"):
        weights.load_tensors(b"nonsense", "w")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "3e+38", "-1.1e+18"])
def test_weights_that_nothing_can_be_computed_with_are_refused_by_name(tmp_path: Path, value: str) -> None:
    tensors = {"good": torch.tensor([1.0, -1e18]), "none": torch.zeros(0), "bad": torch.tensor([[1.0, float(value)]])}
    value = re.escape(value)
    with pytest.raises(BadData, match=rf"runs/vae/w: bad has the value {value}; expected finite numbers"):
        weights.load_tensors(weights.to_bytes(tensors), "runs/vae/w")
    with pytest.raises(WmError, match=rf"^w was to be written but bad has the value {value}; expected finite numbers"):
        weights.save(tmp_path / "w", tensors)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "kind", [torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool, torch.int8]
)
def test_numbers_of_another_type_are_refused_before_they_are_rounded(kind: torch.dtype) -> None:
    data = weights.to_bytes({"weight": torch.ones(2, 3).to(kind)})
    with pytest.raises(BadData, match=rf"w: weight has numbers of type {kind}; expected torch.float32 or torch.int64"):
        weights.load_tensors(data, "w")
    with pytest.raises(BadData, match=r"w: bias has numbers of type torch.int64; expected torch.float32, so restore"):
        weights.load_into(nn.Linear(3, 2), {"weight": torch.ones(2, 3), "bias": torch.ones(2, dtype=torch.int64)}, "w")
