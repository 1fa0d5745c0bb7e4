"""Pictures a second of `wm play` in headless Chromium on one core, dream, recorded frame and reconstruction, with V's
small decoder and the paper's: against 60 and 30. Models are untrained and of the default sizes. The fastest of some
windows counts, because the reference is a number and not a program beside it. The size of the page goes to stderr."""

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

LATENT, ROWS = 32, 120
STEPS, WINDOWS = 60, 16  # steps of a window
SPACE = ActionSpace(count=6)
GOALS = {"small": 60, "paper": 30}
MEASURE = f"""ready.then(player => {{
  player.play(false);
  const run = steps => {{
    const began = performance.now();
    for (let i = 0; i < steps; i++) {{
      player.dream.terminated = false;
      player.step();
      if (player.dream.steps > 90) player.begin(0);
    }}
    return 1000 * steps / (performance.now() - began);
  }};
  return Math.max(...Array.from({{length: {WINDOWS}}}, () => run({STEPS})));
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
    """V with this decoder, the paper's M, and the paper's C."""
    torch.manual_seed(0)
    dataset, rows = episodes(folder / "Pong.zarr"), 10 * ROWS
    random = np.random.default_rng(0)
    means = random.normal(size=(rows, LATENT)).astype(np.float32)
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
    config = MdnRnnConfig(LATENT, SPACE.as_json(), 256, 5, 10.0)
    mdnrnn: Any = SimpleNamespace(model=config.build().eval().requires_grad_(False), space=SPACE)
    vae: Any = SimpleNamespace(model=build(network, 64, 3, LATENT).eval().requires_grad_(False))
    controller = Controller(LATENT + 256, SPACE, "ordered", (3, 0, 2))
    parameters = random.normal(size=controller.parameters).astype(np.float32) / 16
    trained: Any = SimpleNamespace(model=controller, parameters=parameters)
    return Game("Pong", vae, mdnrnn, trained, latents, dataset, 1.0, 15, 10_000)


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
                pictures = round(opened.evaluate(MEASURE), 1)
        report(f"play_{network}", pictures, goal, 1.0, "pictures/s")


if __name__ == "__main__":
    main()
