"""`--from`: a training goes on from the weights of another run, where their shapes allow."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from wm.artifacts import runs
from wm.artifacts.runs import Artifact, Run
from wm.errors import RecipeMismatch
from wm.settings import GradientSettings
from wm.training import weights


def source_artifact(folder: str, name: str) -> Artifact | None:
    """The artifact `name` of the run to go on from; None to begin from scratch. Raises MissingInput without it."""
    return runs.load(Path(folder) / name, name, f"wm train-{name} --run {folder}") if folder else None


def source_fingerprint(settings: GradientSettings, name: str) -> dict[str, str]:
    """It as an input of the artifact that is made."""
    found = source_artifact(settings.from_, name)
    return {"start": found.fingerprint} if found else {}


def adopted(run: Run, settings: GradientSettings) -> Run:
    """The run with the start that its finished artifact had, if nothing else differs and none is asked for: a training
    that went on from somewhere is not thrown away by the same command without `--from`."""
    found = run.finished()
    if settings.from_ or found is None or "start" not in found.inputs:
        return run
    chosen = {"matching": True} if found.settings.get("matching") else {}
    inputs = run.recipe.inputs | {"start": found.inputs["start"]}
    recipe = replace(run.recipe, settings=run.recipe.settings | chosen, inputs=inputs)
    return replace(run, recipe=recipe) if recipe.fingerprint == found.fingerprint else run


def load_initial_weights(settings: GradientSettings, name: str, model: nn.Module) -> None:
    """Take its weights; with `matching` those that fit, else all. Raises RecipeMismatch if shapes differ then."""
    found = source_artifact(settings.from_, name)
    if found is None:
        return
    tensors = weights.load_tensors(found.read_bytes(weights.WEIGHTS), str(found.folder / weights.WEIGHTS))
    wanted = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    there = {key: tuple(value.shape) for key, value in tensors.items()}
    if settings.matching:
        tensors = {key: value for key, value in tensors.items() if wanted.get(key) == there[key]}
        tensors = {key: tensors.get(key, value) for key, value in model.state_dict().items()}
    elif wanted != there:
        differs = next(key for key in sorted(wanted | there) if wanted.get(key) != there.get(key))
        raise RecipeMismatch(
            f"--from {settings.from_} has another {name}: {differs} is {there.get(differs)}, expected "
            f"{wanted.get(differs)}; give the same settings, or leave --from out."
        )
    kept = {key: value.clone() for key, value in model.state_dict().items() if key in _OF_THE_DATA}
    weights.load_into(model, tensors, str(found.folder / weights.WEIGHTS))
    model.load_state_dict(kept, strict=False)


_OF_THE_DATA = ("background", "contrast", "reward_mean", "reward_std")
