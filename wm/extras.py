"""Optional dependencies: what needs them, whether they are installed, and the command that installs them."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import wm
from wm.errors import MissingPackage


@dataclass(frozen=True)
class Extra:
    """The modules of an extra in setup.cfg, and what they are for."""

    modules: tuple[str, ...]
    purpose: str


EXTRAS = {
    "tb": Extra(("tensorboard",), "curves and images in TensorBoard"),
    "mp4": Extra(("imageio", "imageio_ffmpeg"), "MP4 videos"),
    "minari": Extra(("minari", "h5py"), "datasets in Minari's format"),
}


def is_installed(extra: str) -> bool:
    """Whether every module of the extra can be imported."""
    return all(importlib.util.find_spec(module) is not None for module in EXTRAS[extra].modules)


def require(extra: str, what: str) -> None:
    """Raise MissingPackage, which says that `what` needs the extra, where it is not installed."""
    if not is_installed(extra):
        packages = ", ".join(module.replace("_", "-") for module in EXTRAS[extra].modules)
        raise MissingPackage(f"{what} needs {packages}; run `{install_command(extra)}`.")


def install_command(extra: str) -> str:
    """The command that installs an extra: in a source tree from there, so that the sources stay in use."""
    root = Path(__file__).resolve().parent.parent
    if (root / "setup.cfg").is_file():
        return f"pip install -e '.[{extra}]'"
    return f"pip install '{wm.DISTRIBUTION}[{extra}]'"
