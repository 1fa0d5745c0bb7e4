"""Dependencies: whether the required ones have the versions of setup.cfg, and whether optional ones are installed."""

import configparser
import importlib
import importlib.util
import re
import traceback
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import wm
from wm.errors import LONGEST_VALUE, MissingPackage

_OURS = ("wm", "stages", "__main__")
SETTINGS_ADVICE = "correct the variable or the file of its settings that this is about, or install it again"


@dataclass(frozen=True)
class Extra:
    """The modules of an extra in setup.cfg, and what they are for."""

    modules: tuple[str, ...]
    purpose: str


EXTRAS = {
    "tb": Extra(("tensorboard",), "curves and images in TensorBoard"),
    "mp4": Extra(("imageio", "imageio_ffmpeg"), "MP4 videos"),
    "onnx": Extra(("onnx", "onnxscript", "onnxruntime"), "V, M and C as ONNX graphs"),
    "minari": Extra(("minari", "h5py"), "datasets in Minari's format"),
    "sb3": Extra(("stable_baselines3",), "training by stable-baselines3 in dreams"),
    "sweep": Extra(("optuna",), "sweeps over settings"),
    "wandb": Extra(("wandb",), "metrics in Weights & Biases"),
    "trackio": Extra(("trackio",), "metrics in Trackio"),
    "mlflow": Extra(("mlflow",), "metrics in MLflow"),
    "s3": Extra(("obstore",), "datasets and runs in object stores"),
    "cluster": Extra(("distributed",), "workers of a Dask cluster"),
    "hub": Extra(("huggingface_hub",), "runs on the Hugging Face Hub"),
}


def exists(module: str) -> bool:
    """Whether a package with code has this name. A folder alone is none: what a half-removed package leaves, or what
    one writes into the working directory, as wandb does."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def is_installed(extra: str) -> bool:
    """Whether every module of the extra exists; whether it can be imported says `import_problem`."""
    return all(map(exists, EXTRAS[extra].modules))


def import_problem(extra: str) -> str:
    """Import the modules of an extra. Returns why that failed, on one line; empty if it did not. A package of another
    version may raise anything when it is imported, and one outside of its bounds may do so later."""
    if not is_installed(extra):
        return "not installed"
    for module in EXTRAS[extra].modules:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            # A package of others may raise anything, and even call sys.exit(), while it is imported.
            return f"the import of {module} failed: {' '.join(str(error).split()) or type(error).__name__}"
    return describe_outdated(outdated(extra))[0]


def require(extra: str, what: str) -> None:
    """Raise MissingPackage, which says that `what` needs the extra, where it is not installed."""
    if problem := import_problem(extra):
        packages = ", ".join(module.replace("_", "-") for module in EXTRAS[extra].modules)
        reason = "" if problem == "not installed" else f", and {problem}"
        raise MissingPackage(f"{what} needs {packages}{reason}; run `{install_command(extra)}`.")


def install_command(extra: str) -> str:
    """The command that installs an extra: in a source tree from there, so that the sources stay in use."""
    if _source_config().is_file():
        return f"pip install -e '.[{extra}]'"
    return f"pip install '{wm.DISTRIBUTION}[{extra}]'"


@dataclass(frozen=True)
class Outdated:
    """A required package that is installed in another version than `requirement`, such as `gymnasium[box2d]>=1.4`."""

    package: str
    version: str
    requirement: str


def outdated(extra: str = "") -> list[Outdated]:
    """The required packages, or those of an extra, with a version outside of its bounds. One that is not installed is
    none of them: only some environments need it, and building these says so."""
    packages = []
    for requirement in _requirements(extra):
        package = re.split(r"[^\w.-]", requirement)[0]
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        if not _within(version, requirement):
            packages.append(Outdated(package, version, requirement))
    return packages


def describe_outdated(packages: list[Outdated]) -> tuple[str, str]:
    """What is wrong with the packages, and the command that installs others."""
    finding = ", and ".join(f"{one.package} is {one.version} but wm needs {one.requirement}" for one in packages)
    return finding, "pip install " + " ".join(f"'{one.requirement}'" for one in packages)


def require_versions() -> None:
    """Raise MissingPackage, which names all of them and the command, if a required package is outdated."""
    if packages := outdated():
        finding, command = describe_outdated(packages)
        raise MissingPackage(f"{finding}; run `{command}`.")


def explain_import(error: Exception) -> str:
    """One sentence about a package of others that cannot be imported; empty for another error, which is a bug of wm.
    A package that does not like a variable, such as PYTORCH_JIT, or a file of its settings may raise anything."""
    package = _imported_at(error)
    if isinstance(error, ImportError):
        if not package and (error.name or "wm").partition(".")[0] in _OURS:
            return ""
        advice = "install it again, or see what `wm doctor` says of it"
    elif package:
        advice = SETTINGS_ADVICE
    else:
        return ""
    problem = " ".join(str(error).split()) or type(error).__name__
    problem = problem if len(problem) <= LONGEST_VALUE else f"{problem[:LONGEST_VALUE]}..."
    return f"{package or 'a package'} cannot be imported ({problem}); {advice}."


def _imported_at(error: Exception) -> str:
    """The package of others whose import raised the error; empty if nothing was being imported."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if frame.f_code.co_name == "<module>" and package not in _OURS:
            return package
    return ""


def _source_config() -> Path:
    """setup.cfg of a source tree; an installed package has none."""
    return Path(__file__).resolve().parent.parent / "setup.cfg"


def _requirements(extra: str) -> list[str]:
    """The required packages, or those of an extra, with their bounds, without spaces: those of setup.cfg, or of the
    installed package."""
    config = configparser.ConfigParser()
    if config.read(_source_config()):
        listed = config["options.extras_require"][extra] if extra else config["options"]["install_requires"]
        lines = [line for line in listed.split("\n") if not line.startswith("#")]
    else:
        parts = [line.partition(";") for line in metadata.requires(wm.DISTRIBUTION) or []]
        of_extra = f'extra == "{extra}"'
        lines = [bounds for bounds, _, marker in parts if (of_extra in marker if extra else "extra ==" not in marker)]
    return [line.replace(" ", "") for line in lines if line]


def _within(version: str, requirement: str) -> bool:
    """Whether a version has the bounds of a requirement, which are `>=` and `<`."""
    installed = _numbers(version)
    return all(
        installed >= _numbers(bound) if relation == ">=" else installed < _numbers(bound)
        for relation, bound in re.findall(r"(>=|<)([\d.]+)", requirement)
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 10, 0) for 2.10.0+cpu."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()
