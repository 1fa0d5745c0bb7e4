"""What the digests of unfinished work cost: chained log lines, sealed JSON, hashed checkpoints and their fsync, as a
share of each stage's time. Trains V, M and C (by PPO and by CMA-ES) on Catch with the quick preset, and a Dreamer with
the nano preset."""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

from benchmarks.measure import report
from stages import cli
from wm.artifacts import chained_log, manifest
from wm.evolution import evolve, stopping
from wm.training import checkpoint

# Measured: 0.02 to 0.25 % (decision 0022).
GOAL = 1.0  # percent
STAGES = {
    "train-vae": ("--preset", "quick", "--steps", "100", "--set", "validate_every=50"),
    "train-mdnrnn": ("--preset", "quick", "--steps", "100", "--set", "validate_every=50"),
    "train-controller": ("--preset", "quick", "--algo", "ppo", "--max-env-steps", "60000"),
    "train-controller --algo cma": ("--preset", "quick", "--max-generations", "5", "--set", "max_env_steps=0"),
    "train-dreamer": ("--preset", "nano", "--steps", "1500", "--set", "warmup=1024"),
}
PLACES = {  # where the library calls them
    "sync": (chained_log,),
    "parse": (chained_log,),
    "chain": (chained_log, evolve),
    "sealed": (manifest,),
    "parse_sealed": (manifest,),
    "sha256_file": (checkpoint, stopping),
}


class Stopwatch:
    """Seconds spent in the functions it wraps; one that calls another counts once."""

    def __init__(self) -> None:
        self.seconds, self._running = 0.0, False

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*arguments: Any, **named: Any) -> Any:
            if self._running:
                return function(*arguments, **named)
            self._running, began = True, time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - began
                self._running = False

        return timed


def run(words: list[str]) -> int:
    """The exit code of a command whose summary does not go among the rows."""
    with contextlib.redirect_stdout(sys.stderr):
        return cli.run(words)


def share(stage: str, *words: str) -> float:
    """Percent of a stage's time."""
    watch = Stopwatch()
    patches = [
        mock.patch.object(module, name, watch.wrap(getattr(module, name)))
        for name, modules in PLACES.items()
        for module in modules
    ]
    for patch in patches:
        patch.start()
    began = time.perf_counter()
    code = run([*stage.split(), "--env", "Catch", *words])
    whole = time.perf_counter() - began
    for patch in patches:
        patch.stop()
    assert code == 0, stage
    return 100 * watch.seconds / whole


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        assert run(["collect", "--env", "Catch", "--episodes", "20", "--quiet"]) == 0
        for stage, words in STAGES.items():
            percent, name = share(stage, *words, "--quiet"), f"digests_{stage.replace(' --algo ', '_')}"
            report(name, round(percent, 3), GOAL, 1.0, "% of the stage's time", lower_is_better=True)


if __name__ == "__main__":
    main()
