import pytest
import torch

from wm.errors import MissingPackage
from wm.training.device import device_name, pick_device


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


def test_a_result_names_the_device_it_was_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_name(torch.device("cpu")) == "cpu"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert device_name(torch.device("cuda")) == "NVIDIA H200"
