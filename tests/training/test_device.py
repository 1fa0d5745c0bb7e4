import pytest
import torch

from wm.errors import MissingPackage
from wm.training.device import pick_device


def test_auto_is_the_fastest_available_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("mps")
    assert pick_device("cpu") == torch.device("cpu")


def test_an_unavailable_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingPackage, match="--device is cuda but torch finds no such device"):
        pick_device("cuda")
