"""The page's JavaScript computes what torch does: V's decoder, M and C, over a dream of 100 steps."""

import json
import shutil
import subprocess
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

BROWSER = find_browser()
NODE = shutil.which("node")
DRIVER = Path(__file__).with_name("agreement.js")
SCRIPTS = Path(play_page.__file__).parent
BY_GRADIENT = {"layers": (8, 8), "difference": True, "previous_action": True}
KINDS = {
    "small, paper, argmax": Kind(),
    "attentive, rollout without LSTM, categorical over three actions": Kind(
        "attentive", "rollout", 0, controller={"head": "categorical", "ordered": (3, 0, 2), "serve": 1, **BY_GRADIENT}
    ),
    "paper, rollout with LSTM, tanh with hidden units": Kind(
        "paper", "rollout", 7, STEER, controller={"head": "tanh", "hidden": 4, "memory": False}, temperature=0.3
    ),
    "paper of 64 pixels, paper, ordered, rounded weights": Kind(
        "paper", size=64, controller={"head": "ordered", "ordered": (3, 0, 2)}
    ),
    "small, rollout, beta with gas and brake as one axis": Kind(
        "small", "rollout", 0, STEER, controller={"head": "beta", "opposed": (1, 2), **BY_GRADIENT}
    ),
    "small, paper, beta, colder": Kind(space=STEER, controller={"head": "beta", "layers": (6,)}, temperature=0.3),
}
ROUNDED = [name for name in KINDS if "rounded" in name]


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
def in_node(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """The differences of every kind, from one process."""
    if NODE is None:
        pytest.skip("node is not installed")
    files = []
    for name, kind in KINDS.items():
        folder = tmp_path_factory.mktemp("kind")
        torch.manual_seed(0)
        game, path = make_game(folder, kind), folder / "comparison.json"
        with pytest.MonkeyPatch.context() as patch:
            if name in ROUNDED:
                patch.setattr(play_page, "PRECISIONS", PRECISIONS[-1:])
            write_comparison(path, game.page(), game, kind.temperature)
        files.append(str(path))
    words = [str(NODE), str(DRIVER), str(SCRIPTS), *files]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(zip(KINDS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_a_dream_in_node_is_torchs(in_node: dict[str, dict[str, float]], name: str) -> None:
    require_agreement(in_node[name])


def require_agreement(differences: dict[str, float]) -> None:
    """100 steps, the same actions, and every number that was compared within 1e-4."""
    assert differences.pop("steps") == 100
    assert differences.pop("actions") == 100
    assert max(differences.values()) < 1e-4, differences
    assert min(differences.values()) > 0, differences  # each was compared: single precision is not exact


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_a_dream_in_chromium_is_torchs(tmp_path: Path) -> None:
    game, path = make_game(tmp_path, Kind()), tmp_path / "page.html"
    page = game.page()
    path.write_bytes(page)
    expected = json.dumps(write_comparison(tmp_path / "comparison.json", page, game))
    with Browser(str(BROWSER)) as opened:
        opened.open(path)
        opened.evaluate(f"globalThis.agreement = (() => {{ {DRIVER.read_text()}; return agreement; }})(); 0")
        require_agreement(opened.evaluate(f"ready.then(player => agreement(player.world, {expected}))"))
        assert opened.messages == []


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
