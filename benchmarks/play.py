"""Pictures a second of `wm play` in headless Chromium on one core, dream, recorded frame and reconstruction, with the
networks of the laptop preset and the paper's: against 60 and 30, the median of some windows. A second is one that the
browser's processes have computed, so that other programs do not count. Models are untrained. The slowest and the
fastest window and the size of the page go to stderr."""

import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.browser import BROWSERS, Browser, find_browser
from benchmarks.measure import one_core, report
from wm.actions import ActionSpace
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents
from wm.episodes.schema import Episode
from wm.episodes.writer import Writer, create
from wm.models.controller import Controller
from wm.models.mdnrnn.config import MdnRnnConfig
from wm.models.vae.networks import build
from wm.report.play.page import Game

# Rows of a recorded episode: more than the page shows of each (RECORDED in wm/report/play/page.py).
ROWS = 120
# V's in Pong, by the laptop preset and the paper's.
LATENTS = {"small": 48, "paper": 32}
STEPS, WINDOWS = 60, 9  # steps of a window
SPACE = ActionSpace(count=6)
# What a screen shows, and half of it for the paper's V.
GOALS = {"small": 60, "paper": 30}
# Pong's down, stay and up.
ORDERED = (3, 0, 2)
# V's network, M's sizes, and C: by PPO in the laptop preset, evolved in the paper.
MEMORIES = {
    "small": MdnRnnConfig(LATENTS["small"], SPACE.as_json(), 0, 5, 10.0, "rollout", 384),
    "paper": MdnRnnConfig(LATENTS["paper"], SPACE.as_json(), 256, 5, 10.0),
}
CONTROLLERS = {
    "small": Controller(
        2 * LATENTS["small"], SPACE, "categorical", ORDERED, layers=(128, 128), difference=True, sampled=True
    ),
    "paper": Controller(LATENTS["paper"] + 256, SPACE, "ordered", ORDERED),
}
RUN = f"""ready.then(player => {{
  player.play(false);
  for (let i = 0; i < {STEPS}; i++) {{
    player.dream.terminated = false;
    player.step();
    if (player.dream.steps > 90) player.begin(0);
  }}
}})"""


def episodes(path: Path) -> Dataset:
    """A dataset of frames of random cells."""
    random = np.random.default_rng(0)
    recipe = {"env": {"name": "Pong", "size": 64, "gray": False}, "action_space": SPACE.as_json(), "labels": []}
    with Writer(create(path, recipe)) as writer:
        for index in range(10):
            frames = np.repeat(random.integers(0, 256, (ROWS, 8, 8, 3), np.uint8), 8, 1).repeat(8, 2)
            actions, rewards = random.integers(0, 6, ROWS).astype(np.int32), np.zeros(ROWS, np.float32)
            labels = np.zeros((ROWS, 0), np.float32)
            writer.add(Episode(index, index, frames, actions, rewards, labels, False, True).pack())
    return Dataset.open(path)


def game(network: str, folder: Path) -> Game:
    """These networks, untrained."""
    torch.manual_seed(0)
    dataset, rows = episodes(folder / "Pong.zarr"), 10 * ROWS
    random = np.random.default_rng(0)
    means = random.normal(size=(rows, LATENTS[network])).astype(np.float32)
    latents = Latents(
        means,
        means,
        random.integers(0, 6, rows).astype(np.int32),
        np.zeros(rows, np.float32),
        np.arange(ROWS, rows + 1, ROWS),
        np.zeros(10, bool),
        np.arange(10),
        SPACE,
    )
    model = MEMORIES[network].build().eval().requires_grad_(False)
    mdnrnn: Any = SimpleNamespace(model=model, space=SPACE, held_out=lambda latents: np.zeros(10, bool))
    vae: Any = SimpleNamespace(model=build(network, 64, 3, LATENTS[network]).eval().requires_grad_(False))
    controller = CONTROLLERS[network]
    parameters = random.normal(size=controller.parameters).astype(np.float32) / 16
    trained: Any = SimpleNamespace(model=controller, parameters=parameters)
    return Game("Pong", vae, mdnrnn, trained, latents, dataset, 1.0, 15, 10_000)


def rate(opened: Browser) -> float:
    """Pictures a second of one window."""
    began = opened.processor_seconds()
    opened.evaluate(RUN)
    return STEPS / (opened.processor_seconds() - began)


def main() -> None:
    browser = find_browser()
    if browser is None:
        print(f"no browser: none of {', '.join(BROWSERS)} is on the path", file=sys.stderr)
        return
    one_core()
    for network, goal in GOALS.items():
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "play.html")
            path.write_bytes(game(network, Path(name)).page())
            print(f"{network}: {path.stat().st_size:,} bytes", file=sys.stderr)
            with Browser(browser) as opened:
                opened.open(path)
                opened.evaluate(RUN)
                rates = [rate(opened) for _ in range(WINDOWS)]
        print(f"{network}: {min(rates):.1f} to {max(rates):.1f} pictures/s", file=sys.stderr)
        report(f"play_{network}", round(statistics.median(rates), 1), goal, 1.0, "pictures/s")


if __name__ == "__main__":
    main()
