"""Collecting environments that gymnasium draws with pygame, at 64x64 through to disk on one core, against gymnasium:
CarRacing's own env.step (which draws), the others' rgb_array with our area resize; steps per second."""

from benchmarks.measure import one_core, rates, report
from benchmarks.playing import Collector
from wm.envs.registry import EnvConfig
from wm.envs.resize import AreaResize

# Steps of a call: gymnasium draws about 125 frames of CarRacing a second (decision 0008).
STEPS = 20
# How many times gymnasium's rate each renderer was to have.
GOALS = (
    ("CarRacing", "exact", 2.0),
    ("CarRacing", "fast", 5.0),
    ("LunarLander", "exact", 2.3),
    ("LunarLander", "fast", 6.0),
    ("CartPole", "exact", 1.5),
    ("Acrobot", "exact", 1.5),
)


def main() -> None:
    one_core()
    for name, render, goal in GOALS:
        recipe = EnvConfig(name)
        env = recipe._build() if name == "CarRacing" else recipe._build(render_mode="rgb_array")
        env.reset(seed=0)
        resize = None if name == "CarRacing" else AreaResize(*env.render().shape, 64)  # type: ignore[union-attr]

        def theirs(env=env, resize=resize) -> int:  # type: ignore[no-untyped-def]
            for _ in range(STEPS):
                *_, terminated, truncated, _ = env.step(env.action_space.sample())
                if resize is not None:
                    resize(env.render())
                if terminated or truncated:
                    env.reset()
            return STEPS

        with Collector(name, render) as collector:
            ours, reference, ratio = rates(collector, theirs, seconds=2.0)
            report(f"collect_{name.lower()}_{render}", ours, reference, goal, "steps/s", ratio)
            share = round(collector.share, 4)
            report(f"write_share_{name.lower()}_{render}", share, 1.0, 0.05, "of the time", lower_is_better=True)


if __name__ == "__main__":
    main()
