"""Collecting Pong and Breakout at 64x64 through to disk on one core, against the bare emulator: `act` with frame skip
4, no screen, no episode seeds; steps per second. And the share of the time that writing takes."""

import numpy as np

from benchmarks.measure import one_core, rates, report
from benchmarks.playing import Collector
from wm.envs.registry import EnvConfig

STEPS = 500


def main() -> None:
    one_core()
    for name in ("Pong", "Breakout"):
        env = EnvConfig(name)._build()
        env.reset(seed=0)
        ale = env.unwrapped.ale  # type: ignore[attr-defined]
        actions = list(env.unwrapped._action_set)  # type: ignore[attr-defined]
        drawn = np.random.default_rng(0).integers(0, len(actions), STEPS).tolist()

        def bare(ale=ale, actions=actions, drawn=drawn) -> int:  # type: ignore[no-untyped-def]
            for action in drawn:
                for _ in range(4):
                    ale.act(actions[action], 1.0)
                if ale.game_over():
                    ale.reset_game()
            return STEPS

        with Collector(name) as collector:
            ours, reference, ratio = rates(collector, bare, seconds=2.0)
            # Three quarters of the emulator's rate: drawing, storing and seeds take the rest.
            report(f"collect_{name.lower()}", ours, reference, 0.75, "steps/s", ratio)
            report(
                f"write_share_{name.lower()}", round(collector.share, 4), 1.0, 0.04, "of the time", lower_is_better=True
            )


if __name__ == "__main__":
    main()
