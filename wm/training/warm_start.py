"""`--init-from`: a training starts from the weights of another run."""

from pathlib import Path

from torch import nn

from wm.artifacts import runs
from wm.artifacts.runs import Artifact
from wm.errors import RecipeMismatch
from wm.settings import GradientSettings
from wm.training import weights


def source_artifact(folder: str | None, name: str) -> Artifact | None:
    """The artifact `name` of the run to start from; None to train from scratch. Raises MissingInput without it."""
    return runs.load(Path(folder) / name, name, f"wm train-{name} --run {folder}") if folder else None


def source_fingerprint(settings: GradientSettings, name: str) -> dict[str, str]:
    """The source as an input of the artifact that is trained."""
    found = source_artifact(settings.init_from, name)
    return {"init_from": found.fingerprint} if found else {}


def load_initial_weights(settings: GradientSettings, name: str, model: nn.Module) -> None:
    """Load the source's weights. Raises RecipeMismatch if a shape differs."""
    found = source_artifact(settings.init_from, name)
    if found is None:
        return
    tensors = weights.load_tensors(found.read_bytes(weights.WEIGHTS), str(found.folder / weights.WEIGHTS))
    wanted = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    there = {key: tuple(value.shape) for key, value in tensors.items()}
    if wanted != there:
        differs = next(key for key in sorted(wanted | there) if wanted.get(key) != there.get(key))
        raise RecipeMismatch(
            f"--init-from {settings.init_from} has another {name}: {differs} is {there.get(differs)}, expected "
            f"{wanted.get(differs)}; give the same settings, or leave --init-from out."
        )
    kept = {key: value.clone() for key, value in model.state_dict().items() if key in _OF_THE_DATA}
    weights.load_into(model, tensors, str(found.folder / weights.WEIGHTS))
    model.load_state_dict(kept, strict=False)


_OF_THE_DATA = ("background", "contrast", "reward_mean", "reward_std")
