"""An environment that changes what belongs to the whole process changes it for itself alone."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from wm.envs import process_state
from wm.envs.registry import EnvConfig
from wm.errors import UsageProblem


def _ignore(*_: Any) -> None:
    pass


def torch_now() -> tuple[torch.dtype, str, bool]:
    return torch.get_default_dtype(), torch.get_default_device().type, torch.is_grad_enabled()


def numbers_now() -> tuple[Any, ...]:
    return *torch_now(), np.geterr()["under"]


class Changing(gym.Env):  # type: ignore[type-arg]
    """Sets handlers in the constructor, in reset() and in step(), and how torch computes in the constructor."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gym.spaces.Box(-1, 1, (4,))
    action_space = gym.spaces.Discrete(3)
    seen: list[Any] = []  # noqa: RUF012
    fails = False

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self._handle()
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        np.seterr(all="raise")
        os.chdir("/")
        if self.fails:
            raise RuntimeError("no licence")

    def _handle(self) -> None:
        signal.signal(signal.SIGINT, _ignore)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.umask(0o777)
        sys.setrecursionlimit(sys.getrecursionlimit() - 100)
        np.seterr(all="print")

    def reset(self, **_: Any) -> Any:
        self.seen.append(numbers_now())
        self._handle()
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.seen.append(numbers_now())
        self._handle()
        return np.zeros(4, np.float32), 1.0, False, False, {}

    def render(self) -> Any:
        self.seen.append(numbers_now())
        return np.zeros((32, 32, 3), np.uint8)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process_state, "_of_environments", None)
    monkeypatch.setattr(process_state, "_context", None)
    gym.register("Changing-v0", Changing)
    umask, depth = os.umask(0o077), sys.getrecursionlimit()
    os.umask(umask)
    yield
    os.umask(umask)
    sys.setrecursionlimit(depth)
    gym.registry.pop("Changing-v0")
    Changing.seen.clear()


def ours() -> Any:
    os.umask(umask := os.umask(0))
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return numbers_now(), handlers, Path.cwd(), umask, sys.getrecursionlimit()


def test_what_it_changes_is_put_back_and_an_environment_finds_numpy_and_torch_as_it_set_them() -> None:
    before, theirs = ours(), (torch.float64, "meta", False, "raise")
    env = EnvConfig("Changing-v0", 32).make()
    assert ours() == before
    for play in (lambda: env.reset(seed=0), lambda: env.step(0), env.screen, env.close):
        play()
        assert ours() == before
    assert Changing.seen == [theirs] * len(Changing.seen)
    assert len(Changing.seen) >= 4
    assert before[0] == (torch.float32, "cpu", True, "ignore")


def test_they_are_put_back_where_the_constructor_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Changing, "fails", True)
    before = ours()
    with pytest.raises(UsageProblem, match="constructor raised RuntimeError: no licence"):
        EnvConfig("Changing-v0", 32).make()
    assert ours() == before


def test_an_environment_that_changes_nothing_leaves_torch_alone() -> None:
    EnvConfig("Changing-v0", 32).make().close()
    with process_state.torch_of_environments():
        assert torch_now() == (torch.float64, "meta", False)
    with process_state.learnt_torch():
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.set_grad_enabled(True)
    assert process_state.torch_of_environments() is process_state._UNCHANGED
