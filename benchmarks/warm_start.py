"""What V and M gain by beginning with the weights of another environment, after equal steps of the quick preset: V's
validation loss, and M's squared error of the next latent on held-out episodes, with the same V.

Breakout after Pong, and Pong after Breakout, two seeds. Below 1 the warm start is better.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import report

ROOT = Path(__file__).resolve().parent.parent
PAIRS = (("Pong", "Breakout"), ("Breakout", "Pong"))
SEEDS = (0, 1)


def train(folder: Path, command: str, *options: str) -> dict[str, float]:
    """A stage's metrics."""
    words = [sys.executable, "-c", "from stages.cli import main; main()", command, "--preset", "quick", "--json"]
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*words, *options], cwd=folder, stdout=subprocess.PIPE, text=True, check=True, env=paths)
    found: dict[str, float] = json.loads(done.stdout)["metrics"]
    return found


def main() -> None:
    losses: dict[str, list[tuple[float, float]]] = {"vae": [], "mdnrnn": []}
    envs = sorted({env for pair in PAIRS for env in pair})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for env in envs:
            train(folder, "collect", "--env", env)
        for seed in SEEDS:
            cold: dict[str, tuple[float, float]] = {}
            for env in envs:
                where = ("--env", env, "--seed", str(seed), "--run", f"runs/{env}-{seed}")
                vae = train(folder, "train-vae", *where, "--latent", "32")
                cold[env] = vae["validation_loss"], train(folder, "train-mdnrnn", *where)["error"]
            for before, env in PAIRS:
                warm = f"runs/{env}-{seed}-warm"
                start = ("--from", f"runs/{before}-{seed}", "--set", "matching=true")
                where = ("--env", env, "--seed", str(seed), "--run", warm, *start)
                vae = train(folder, "train-vae", *where, "--latent", "32")
                shutil.rmtree(folder / warm / "vae")  # M's errors are compared in the same latent space
                shutil.copytree(folder / f"runs/{env}-{seed}" / "vae", folder / warm / "vae")
                losses["vae"].append((vae["validation_loss"], cold[env][0]))
                losses["mdnrnn"].append((train(folder, "train-mdnrnn", *where)["error"], cold[env][1]))
    for name, pairs in losses.items():
        ratio = statistics.median(warm / scratch for warm, scratch in pairs)
        warm, scratch = (statistics.median(values) for values in zip(*pairs, strict=True))
        unit = "nats" if name == "vae" else "squared error"
        report(f"warm_start_{name}", warm, scratch, 1.0, unit, ratio, lower_is_better=True)


if __name__ == "__main__":
    main()
