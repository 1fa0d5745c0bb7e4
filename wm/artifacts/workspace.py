"""The places of one environment's datasets and artifacts."""

import shlex
from dataclasses import dataclass
from pathlib import Path


def env_slug(env: str) -> str:
    """An environment's name in paths: `ALE/Seaquest-v5` becomes `ALE-Seaquest-v5`."""
    return env.replace("/", "-").replace(":", "-")


@dataclass(frozen=True)
class Workspace:
    """`run` is the folder of the environment's artifacts. `datasets` are those of a training; V is trained on the first
    one."""

    env: str
    run: Path
    datasets: tuple[Path, ...]

    def command(self, name: str) -> str:
        """The command line of a stage for this environment, for error messages."""
        return f"wm {name} --env {shlex.quote(self.env)}"
