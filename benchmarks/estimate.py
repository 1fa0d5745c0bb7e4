"""The disk space that `wm collect` estimates from its first episodes, over the actual one: 1.0 to 1.5."""

import tempfile
from pathlib import Path

from benchmarks.measure import report
from stages.collect import collect, plan
from stages.session import Session
from wm.artifacts.durable import folder_size
from wm.settings import CollectSettings

# Enough for two parts or more.
EPISODES = {"Pong": 40, "LunarLander": 150, "Breakout": 100, "CarRacing": 12}


def main() -> None:
    for env, episodes in EPISODES.items():
        with tempfile.TemporaryDirectory() as folder:
            session, settings = Session(env, data=(Path(folder) / "d.zarr",)), CollectSettings(episodes=episodes)
            estimated = plan(session, settings).disk
            collect(session, settings)
            actual = folder_size(session.data_path)
        report(f"estimate_{env.lower()}", estimated / 1e6, actual / 1e6, 1.5, "MB", lower_is_better=True)


if __name__ == "__main__":
    main()
