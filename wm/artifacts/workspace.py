"""The places of one environment's datasets and artifacts."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wm.artifacts.disk import require_possible
from wm.artifacts.object_store import is_address
from wm.errors import UsageProblem, shown

# The stages' own artifacts, and the folders in a run that are none: `random` is the random policy's evaluation.
RESERVED = ("vae", "latents", "mdnrnn", "controller", "dreamer", "dream", "evaluation", "film", "videos", "random",
            "archive", "checkpoints", "tensorboard")  # fmt: skip
NO_STICKY = "-no-sticky"  # ends the name of an evaluation without sticky actions, which stands beside the usual one
# A variant with such a name would be taken for a file or a folder of another kind.
_ENDINGS = (".partial", ".tmp", ".zarr", ".html", ".md", ".json")  # also of pages and records in a run
_FAMILIES = ("latents", "dream")  # names such as `latents-<dataset>` and `dream-<agent>`
_MARKS = str.maketrans("", "", "-_.")


def is_reserved(name: str, default: str) -> bool:
    """Whether `name` cannot be given to a variant of the artifact `default`. Case does not count, as on many disks."""
    name = name.casefold()
    family = name.partition("-")[0]
    others = family in _FAMILIES and "-" in name and family != default.partition("-")[0]
    return name in RESERVED or others or Path(name).suffix in _ENDINGS or name.endswith(NO_STICKY)


def check_name(option: str, name: str) -> str:
    """`name`, if it can be that of an artifact, which is a folder directly in its run: reports, shared runs and sweeps
    find none deeper. Raises UsageProblem otherwise."""
    if name[:1] in (".", "-") or not name.translate(_MARKS).isalnum():
        raise UsageProblem(
            f"{option} is {name!r}; expected letters, digits, '-', '_' and '.', beginning with neither '-' nor '.'."
        )
    return name


def env_slug(env: str) -> str:
    """An environment's name in paths: `ALE/Seaquest-v5` becomes `ALE-Seaquest-v5`."""
    return env.replace("/", "-").replace(":", "-")


def usual_run(env: str) -> Path:
    """The folder of an environment's artifacts where none is given."""
    return Path("runs") / env_slug(env)


@dataclass(frozen=True)
class Workspace:
    """`run` is the folder of the environment's artifacts. `datasets` are those of a training; V is trained on the first
    one."""

    env: str
    run: Path
    datasets: tuple[Path, ...]

    def command(self, name: str) -> str:
        """The command line of a stage for this environment and run, for error messages. Episodes are of no run."""
        usual = name == "collect" or self.run == usual_run(self.env)
        return f"wm {name} --env {shlex.quote(self.env)}" + ("" if usual else f" --run {shlex.quote(str(self.run))}")


def folder(name: str, value: Any) -> Path:
    """`value` as the path of a folder. Raises UsageProblem for what is none, an empty one, an address, and a file."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text or not _encodes(text):
        raise UsageProblem(f"{name} is {shown(value)}; expected the path of a folder.")
    if is_address(text):
        raise UsageProblem(f"{name} is {text!r}; in Python it is a folder, only commands take an address.")
    path = Path(text)
    require_possible(path)
    if path.is_file():
        raise UsageProblem(f"{name} is {text!r}, which is a file; expected the path of a folder.")
    return path


def _encodes(text: str) -> bool:
    """Whether the operating system can be given the text."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def folders(name: str, value: Any) -> tuple[Path, ...]:
    """A path, or those of a list. Raises UsageProblem as `folder`."""
    paths = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
    return tuple(folder(name, each) for each in paths)
