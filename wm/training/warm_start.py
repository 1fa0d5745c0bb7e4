"""`--init-from`: a training starts from the weights of another run.

The source is an input of the artifact that is trained. So the same command with another source, or without one, is
another recipe: it trains again, and the earlier artifact moves to the archive.
"""

from pathlib import Path

from torch import nn

from wm.artifacts import durable, runs
from wm.artifacts.runs import Artifact
from wm.artifacts.workspace import Workspace
from wm.errors import RecipeMismatch
from wm.training import weights

# Constants of a data set, not weights: the training measures its own. The rollout network keeps its own, because its
# weights are in units of them.
_DATA_CONSTANTS = ("mean_image", "image_std", "reward_mean", "reward_std")


def source_artifact(folder: str | None, name: str, env: str) -> Artifact | None:
    """The artifact `name` of the run to start from; None to train from scratch. Raises MissingInput without it."""
    if not folder:
        return None
    run = Path(folder)
    return runs.load(run / name, name, Workspace(env, run, ()).command(f"train-{name}"))


def source_fingerprint(folder: str | None, name: str, env: str) -> dict[str, str]:
    """The source as an input of the artifact that is trained for `env`."""
    source = source_artifact(folder, name, env)
    return {"init_from": source.fingerprint} if source else {}


def load_initial_weights(folder: str | None, name: str, env: str, model: nn.Module) -> None:
    """Load the source's weights. Raises RecipeMismatch if a shape differs."""
    source = source_artifact(folder, name, env)
    if source is None:
        return
    most = max(
        weights.file_bytes(model.state_dict()), durable.LARGEST_LOG
    )  # those of another network are compared below
    tensors = weights.load_tensors(source.read_bytes(weights.WEIGHTS, most), str(source.folder / weights.WEIGHTS))
    expected = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    if expected != shapes:
        key = next(key for key in sorted(expected | shapes) if expected.get(key) != shapes.get(key))
        raise RecipeMismatch(
            f"--init-from {folder} has another {name}: {key} is {shapes.get(key)}, expected "
            f"{expected.get(key)}; give the same settings, or leave --init-from out."
        )
    # Clones: load_into overwrites the tensors of the state.
    constants = {key: value.clone() for key, value in model.state_dict().items() if key in _DATA_CONSTANTS}
    weights.load_into(model, tensors, str(source.folder / weights.WEIGHTS))
    # Not strict, for these are a few of all names.
    model.load_state_dict(constants, strict=False)
