"""Where the datasets and artifacts of one environment are."""

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Workspace:
    """`run` is the folder of the environment's artifacts; `datasets` are those of a training, the first of them the one
    V was trained on."""

    env: str
    run: Path
    datasets: tuple[Path, ...]

    def command(self, name: str) -> str:
        """The command line that makes something for this environment, for error messages."""
        return f"wm {name} --env {shlex.quote(self.env)}"
