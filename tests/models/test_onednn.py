import pytest
import torch
from torch import nn
from torch.nn import functional

from wm.models import onednn as packed


@pytest.fixture(params=[True, False], ids=["oneDNN", "plain"])
def onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(packed, "_supported", lambda weight: False)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_agrees_with_the_layer_for_any_number_of_rows(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    matrix, bias = torch.randn(7, 20).to(dtype), torch.randn(7).to(dtype)
    multiply = packed.linear(matrix, bias, 8)
    for rows in (8, 1, 300):
        x = torch.randn(rows, 20).to(dtype)
        wanted = functional.linear(x.float(), matrix.float(), bias.float())
        assert torch.allclose(multiply(x).float(), wanted, rtol=0.02 if dtype == torch.bfloat16 else 1e-4, atol=0.1)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("relu", [True, False])
def test_convolution_agrees_with_the_layer(relu: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(6, 5, 4, 2, padding=1).requires_grad_(False)
    x = torch.randn(8, 6, 16, 16).contiguous(memory_format=torch.channels_last)
    convolve = packed.convolution(layer, layer.weight, x.shape, relu)
    for part in (x, x[:3]):
        wanted = layer(part).relu() if relu else layer(part)
        assert torch.allclose(convolve(part), wanted, atol=1e-5)


def test_a_row_does_not_depend_on_its_index_or_the_other_rows() -> None:
    torch.manual_seed(0)
    multiply = packed.linear(torch.randn(100, 40), torch.randn(100), 8)
    x = torch.randn(8, 40)
    alone = torch.zeros(8, 40)
    alone[5] = x[2]
    assert torch.equal(multiply(x)[2], multiply(alone)[5])
