"""A game that comes with wm: CartPole, as the quick preset trains it, with a smaller M.

`python -m benchmarks.pages.example runs/CartPole` makes it from a run.
"""

import json
from importlib import resources
from pathlib import Path

from wm.artifacts import json_reader
from wm.artifacts.json_reader import TABLE, TEXT, table
from wm.report.play.page import Game, write_page
from wm.report.play.template import fill

NAME = "example.json"
LARGEST = 1_000_000  # bytes of its page


def example_text(game: Game) -> str:
    """The content of example.json for this game. Raises UsageProblem if its page would be too large."""
    description, weights = game.content(LARGEST)
    return json.dumps({"description": description, "weights": weights}, separators=(",", ":")) + "\n"


def write_example(path: Path) -> Path:
    """Write the example's page, with today's scripts, and return its path."""
    data = resources.files(__package__).joinpath(NAME).read_bytes()
    content = json_reader.parse(data, NAME, table({"description": TABLE, "weights": TEXT}))
    return write_page(path, fill(content["description"], content["weights"]))
