"""The page's JavaScript computes what torch does: V's decoder, M and C, over a dream of 100 steps."""

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.browser import Browser, find_browser
from tests.report.play.reference import expect, parts_of
from tests.report.play.worlds import PADDLE, STEER, Kind, make_game
from wm.models.action_distributions import EDGE, Beta, Categorical
from wm.report.play import page as play_page
from wm.report.play.page import Game
from wm.report.play.starts import choose_starts
from wm.report.play.weights import PRECISIONS
from wm.settings.base import Settings
from wm.settings.train_controller import ControllerSettings
from wm.settings.train_mdnrnn import MdnRnnSettings
from wm.settings.train_vae import VaeSettings

BROWSER = find_browser()
NODE = shutil.which("node")
DRIVER = Path(__file__).with_name("agreement.js")
SCRIPTS = Path(play_page.__file__).parent
BY_GRADIENT = {"layers": (8, 8), "difference": True, "previous_action": True}
# Every V with every M, and every C once: evolved (linear, with hidden units) or trained by PPO (with layers).
KINDS = {
    "small, paper, argmax": Kind(),
    "small, rollout with LSTM, tanh": Kind("small", "rollout", 7, STEER, controller={"head": "tanh"}),
    "small, rollout without LSTM, beta with gas and brake as one axis": Kind(
        "small", "rollout", 0, STEER, controller={"head": "beta", "opposed": (1, 2), **BY_GRADIENT}
    ),
    "attentive, paper, beta, colder": Kind(
        "attentive", space=STEER, controller={"head": "beta", "layers": (6,)}, temperature=0.3
    ),
    "attentive, rollout with LSTM, argmax with hidden units, gray": Kind(
        "attentive", "rollout", 7, channels=1, controller={"head": "argmax", "hidden": 4}, temperature=1.5
    ),
    "attentive, rollout without LSTM, categorical over three actions": Kind(
        "attentive", "rollout", 0, controller={"head": "categorical", "ordered": (3, 0, 2), "serve": 1, **BY_GRADIENT}
    ),
    "paper of 64 pixels, paper, ordered, rounded weights": Kind(
        "paper", size=64, controller={"head": "ordered", "ordered": (3, 0, 2)}
    ),
    "paper, rollout with LSTM, tanh with hidden units": Kind(
        "paper", "rollout", 7, STEER, controller={"head": "tanh", "hidden": 4, "memory": False}, temperature=0.3
    ),
    "paper, rollout without LSTM, categorical": Kind(
        "paper", "rollout", 0, controller={"head": "categorical", **BY_GRADIENT}
    ),
}
ROUNDED = [name for name in KINDS if "rounded" in name]


def test_the_kinds_are_all_that_can_be_trained() -> None:
    assert {kind.vae for kind in KINDS.values()} == set(_choices(VaeSettings, "network"))
    assert {kind.mdnrnn for kind in KINDS.values()} == set(_choices(MdnRnnSettings, "network"))
    heads = {*_choices(ControllerSettings, "head"), "categorical", "beta"} - {"auto"}
    assert {kind.controller["head"] for kind in KINDS.values()} == heads


def _choices(settings: type[Settings], name: str) -> Sequence[str]:
    (item,) = (item for item in dataclasses.fields(settings) if item.name == name)
    choices: Sequence[str] = item.metadata["choices"]
    return choices


def write_comparison(path: Path, page: bytes, game: Game, temperature: float = 1.0) -> dict[str, Any]:
    """What agreement.js compares: the page's world, and torch's dream from its first start, which is returned."""
    assert game.controller is not None
    start = choose_starts(game.latents, game.mdnrnn, game.dataset, 8)[0]
    parameters = torch.from_numpy(game.controller.parameters)
    models = game.vae.model, game.mdnrnn.model, game.controller.model
    expected = expect(*models, parameters, start.initial, temperature=temperature)
    world, weights = parts_of(page.decode())
    path.write_text(json.dumps({"world": world, "weights": weights, "expected": expected}))
    return expected


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of every kind a page, and beside it what agreement.js compares."""
    folders = {}
    for name, kind in KINDS.items():
        folder = folders[name] = tmp_path_factory.mktemp("kind")
        torch.manual_seed(0)
        game = make_game(folder, kind)
        with pytest.MonkeyPatch.context() as patch:
            if name in ROUNDED:
                patch.setattr(play_page, "PRECISIONS", PRECISIONS[-1:])
            (folder / "page.html").write_bytes(page := game.page())
        write_comparison(folder / "comparison.json", page, game, kind.temperature)
    return folders


@pytest.fixture(scope="module")
def in_node(written: dict[str, Path]) -> dict[str, dict[str, float]]:
    """The differences of every kind, from one process."""
    if NODE is None:
        pytest.skip("node is not installed")
    words = [str(NODE), str(DRIVER), str(SCRIPTS), *(str(folder / "comparison.json") for folder in written.values())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(zip(KINDS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all kinds."""
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    with Browser(BROWSER) as opened:
        yield opened


@pytest.mark.parametrize("name", KINDS)
def test_a_dream_in_node_is_torchs(in_node: dict[str, dict[str, float]], name: str) -> None:
    require_agreement(in_node[name])


@pytest.mark.parametrize("name", KINDS)
def test_a_dream_in_chromium_is_torchs(browser: Browser, written: dict[str, Path], name: str) -> None:
    expected = json.loads((written[name] / "comparison.json").read_text())["expected"]
    browser.open(written[name] / "page.html", prefers_reduced_motion="reduce")
    browser.evaluate(f"globalThis.agreement = (() => {{ {DRIVER.read_text()}; return agreement; }})(); 0")
    require_agreement(browser.evaluate(f"ready.then(player => agreement(player.world, {json.dumps(expected)}))"))
    assert browser.messages == []


def require_agreement(differences: dict[str, float]) -> None:
    """100 steps, the same actions, and every number that was compared within 1e-4."""
    assert differences.pop("steps") == 100
    assert differences.pop("actions") == 100
    assert max(differences.values()) < 1e-4, differences
    assert min(differences.values()) > 0, differences  # each was compared: single precision is not exact


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_actions_are_drawn_as_in_torch(tmp_path: Path) -> None:
    u, uniform = [0.3, -1.0, 1.2], np.linspace(0.001, 0.999, 50)
    numbers: Any = SimpleNamespace(random=iter(uniform).__next__)
    drawn = Categorical(3).draw(torch.tensor([u] * len(uniform)), [numbers] * len(uniform))
    box = {"count": 0, "low": [-1.0, 0.0], "high": [1.0, 1.0]}
    cases = [
        {"form": {"head": "categorical"}, "space": PADDLE.as_json(), "u": u, "uniform": uniform.tolist()},
        {"form": {"head": "beta", "edge": EDGE}, "space": box, "u": [0.5, 3.0, 2.0, -1.0]},
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    words = [str(NODE), str(DRIVER.with_name("sampling.js")), str(SCRIPTS), str(tmp_path / "cases.json")]
    actions, mean = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert actions == drawn.tolist()
    assert mean == pytest.approx(Beta(2).likeliest(torch.tensor([cases[1]["u"]]))[0].tolist(), abs=0.03)
