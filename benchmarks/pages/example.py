"""Makes the game that `wm play --example` shows from a run of CartPole.

`python -m benchmarks.pages.example runs/CartPole data/CartPole.zarr`. The run is one of `wm curriculum --quick --envs
CartPole --set train-mdnrnn.units=128 --set train-mdnrnn.steps=1500`: with the preset's M the page would be larger.
"""

import sys
from pathlib import Path

from stages.session import Session
from wm.pipeline.play import open_game
from wm.report import play
from wm.report.play.example import NAME, example_text


def main(run: str, data: str) -> None:
    game = open_game(Session(env="CartPole", run=Path(run), data=(Path(data),)), "controller", 1.0)
    (Path(play.__file__).parent / NAME).write_text(example_text(game))


if __name__ == "__main__":
    main(*sys.argv[1:])
