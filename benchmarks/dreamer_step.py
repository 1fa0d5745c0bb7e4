"""A gradient step of a Dreamer on one core, against sheeprl 0.8.4, which runs unpatched in its own virtual environment
(build/sheeprl). The same sizes: 64x64x3 frames, GRU 200, 32x32 latents, 16 windows of 50 steps, horizon 15, 6.6 M
parameters of the world model; every frame decoded, imagination from every state. bf16 where the CPU has instructions
for it."""

import itertools
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.measure import one_core, report
from wm.dreamer.updates import PIXEL_WEIGHTING
from wm.models.dreamer.agent import Dreamer, DreamerTrainer
from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import ReconstructionWeights
from wm.models.dreamer.world_model import Batch
from wm.telemetry.malloc import keep_freed
from wm.training.precision import Precision, has_bf16

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "sheeprl"
PINS = ("sheeprl==0.8.4", "lightning==2.6.6", "torch==2.13.0", "gymnasium==1.4.0", "numpy==2.4.6")
# sheeprl's sizes, so that both have 6.6 M parameters.
CONFIG = DreamerConfig(
    64, 3, 2, True, deter=200, hidden=200, stoch=32, classes=32, depth=24, units=200, layers=1, bins=255
)
# Pairs of windows in turn, of which the median counts: the machine has other work.
PAIRS = 5


def sheeprl(precision: str) -> "subprocess.Popen[str]":
    """A process that takes a gradient step for every line on its stdin."""
    python = VENV / "bin" / "python"
    if not (VENV / ".ready").exists():
        venv.create(VENV, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--prefer-binary", *PINS], check=True)
        (VENV / ".ready").touch()
    script = Path(__file__).with_name("_sheeprl.py")
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [python, script, precision], cwd=VENV, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


def sheeprl_step(process: "subprocess.Popen[str]") -> tuple[float, int]:
    """Seconds of its next step, and the parameters of its world model."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("STEP"):
            _, seconds, parameters = line.split()
            return float(seconds), int(parameters)
    sys.exit("sheeprl ended before it took a step")


def wm_steps(precision: Precision) -> Iterator[float]:
    """Seconds of each step of this project's Dreamer."""
    torch.manual_seed(0)
    trainer = DreamerTrainer(
        Dreamer(CONFIG), precision.cast, horizon=15, entropy=3e-4, imagine_last=0, world_learning_rate=1e-4,
        reconstruction=ReconstructionWeights(1.0, 1000.0, PIXEL_WEIGHTING), actor_learning_rate=3e-5,
    )  # fmt: skip
    frames = torch.randint(0, 256, (16, 50, 64, 64, 3), dtype=torch.uint8)
    zeros = torch.zeros(16, 50)
    actions = torch.eye(2)[torch.randint(0, 2, (16, 50))]
    first = zeros.clone()
    first[:, 0] = 1
    batch = Batch(frames, actions, zeros, first, zeros)
    for number in itertools.count():
        began = time.perf_counter()
        trainer.update(batch, torch.Generator().manual_seed(number), train_actor_critic=True)
        yield time.perf_counter() - began


def main() -> None:
    one_core()
    torch.set_num_threads(1)
    keep_freed()
    fast = has_bf16(torch.device("cpu"))
    precision = Precision("bf16" if fast else "fp32", torch.device("cpu"))
    process, steps = sheeprl("bf16-mixed" if fast else "32-true"), wm_steps(precision)
    _, parameters = sheeprl_step(process)
    next(steps)
    assert parameters == sum(part.numel() for part in Dreamer(CONFIG).world_model.parameters()), "the sizes differ"
    pairs = [(next(steps), sheeprl_step(process)[0]) for _ in range(PAIRS)]
    process.kill()
    ratio = statistics.median(theirs / ours for ours, theirs in pairs)
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    report("dreamer_step", round(1 / ours, 3), round(1 / theirs, 3), 1.5, "gradient steps/s", round(ratio, 3))


if __name__ == "__main__":
    main()
