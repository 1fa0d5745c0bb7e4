"""What the trials of a sweep read: V, M, latents and episodes. They are shared, not copied."""

from collections.abc import Iterable
from pathlib import Path

from wm.artifacts import runs
from wm.artifacts.recipe import Recipe
from wm.artifacts.workspace import Workspace
from wm.episodes.mixture import fingerprints, open_datasets
from wm.errors import WmError
from wm.settings import Settings
from wm.sweeps.space import Space

RECIPE = 1  # raised when other trials follow from the same recipe

_TRAINED = {"train-vae": (), "train-mdnrnn": ("vae",), "train-controller": ("vae", "mdnrnn")}


def sweep_recipe(workspace: Workspace, stage: str, code: int, seed: int, base: Settings, space: Space) -> Recipe:
    """What makes trials comparable: the inputs of the stage, the version of its `code`, its fixed settings, and the
    space. Raises MissingInput naming the command that makes what is missing."""
    fixed = {name: value for name, value in base.result_settings().items() if name not in space}
    others = {"stage": stage, "code": code, "seed": seed, "init_from": getattr(base, "init_from", None)}
    ranges = {f"space of {name}": str(each) for name, each in space.items()}
    inputs = _fingerprints(workspace, stage, getattr(base, "episodes", 0))
    return Recipe("sweep", RECIPE, fixed | others | ranges, inputs)


def _fingerprints(workspace: Workspace, stage: str, episodes: int) -> dict[str, str]:
    """Of what a stage reads; V is trained on the first `episodes` (0: all)."""
    trained = {
        name: runs.load(workspace.run / name, name, workspace.command(f"train-{name}")).fingerprint
        for name in _TRAINED[stage]
    }
    if stage == "train-controller":
        return trained
    datasets = open_datasets(workspace.env, workspace.datasets, episodes)
    # V says which episodes of the first dataset M is trained on.
    return trained | fingerprints(datasets if stage == "train-vae" else datasets[1:])


def link_inputs(stage: str, sources: Iterable[Path], run: Path) -> None:
    """Give the run of a trial what it reads, from the first of the `sources` that has it: second names of the same
    files, which never change. Latents that no source has are encoded by the trial, and are there for the next one."""
    for source in sources:
        for name in _TRAINED[stage]:
            _link(source / name, run, name)
        for folder in sorted(source.glob("latents*")) if _TRAINED[stage] else ():
            _link(folder, run, "latents")


def _link(folder: Path, run: Path, kind: str) -> None:
    if (run / folder.name).exists():
        return
    try:
        artifact = runs.read(folder, kind)
    except WmError:  # missing or unfinished: the stage itself says so
        return
    runs.copy(artifact, run / folder.name)
