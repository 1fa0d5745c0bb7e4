"""Optional dependencies: what needs them, whether they are installed, and the command that installs them."""

import importlib
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
    """Whether every module of the extra exists; whether it can be imported says `import_problem`."""
    return all(importlib.util.find_spec(module) is not None for module in EXTRAS[extra].modules)


def import_problem(extra: str) -> str:
    """Import the modules of an extra. Returns why that failed, on one line; empty if it did not. A package of another
    version may raise anything when it is imported."""
    if not is_installed(extra):
        return "not installed"
    for module in EXTRAS[extra].modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            return f"the import of {module} failed: {' '.join(str(error).split()) or type(error).__name__}"
    return ""


def require(extra: str, what: str) -> None:
    """Raise MissingPackage, which says that `what` needs the extra, where it is not installed."""
    if problem := import_problem(extra):
        packages = ", ".join(module.replace("_", "-") for module in EXTRAS[extra].modules)
        reason = "" if problem == "not installed" else f", and {problem}"
        raise MissingPackage(f"{what} needs {packages}{reason}; run `{install_command(extra)}`.")


def install_command(extra: str) -> str:
    """The command that installs an extra: in a source tree from there, so that the sources stay in use."""
    root = Path(__file__).resolve().parent.parent
    if (root / "setup.cfg").is_file():
        return f"pip install -e '.[{extra}]'"
    return f"pip install '{wm.DISTRIBUTION}[{extra}]'"
