"""Loads the world of a run."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from wm import model_json
from wm.artifacts import manifest, runs
from wm.artifacts.disk import require_possible
from wm.artifacts.workspace import Workspace, check_name, env_slug, folder, folders
from wm.errors import MissingInput, UsageProblem, shown
from wm.pretrained import is_dreamer
from wm.run_models import load_all, load_pair
from wm.world.world import World

RunPath = str | os.PathLike[str]
Paths = RunPath | Sequence[RunPath] | None


def load(run: RunPath, data: Paths = None, agent: str = "controller") -> World:
    """The world of a run: V, M and C from its folder, checked as the commands check them.

    `run` is a folder such as `runs/CartPole`. `data` are its datasets, by default `data/<Env>.zarr` beside `runs/`;
    they are opened when World.dataset is used. `agent` is the name of a controller. A run without `controller` is a
    world without C.

    Raises MissingInput where V or M, or an agent of another name, is not trained, and BadData where a file is damaged.
    Raises RecipeMismatch where V, M and C do not belong together, or where the environment takes other actions today.
    Raises UsageProblem for a Dreamer, and for an environment `module:id` whose module is not imported yet. So it does
    for an address as data, and for what is no path or no name.
    """
    path = folder("run", run)
    if not isinstance(agent, str) or not agent:
        raise UsageProblem(f"agent is {shown(agent)}; expected the name of a controller, such as 'controller'.")
    require_possible(path / check_name("agent", agent))
    if not path.is_dir():
        raise MissingInput(f"{path} is not a folder; expected a run, such as runs/CartPole.")
    if (path / manifest.NAME).is_file():
        raise UsageProblem(f"{path} is an artifact; expected the run that it belongs to, {path.absolute().parent}.")
    env = model_json.read_env(runs.load(path / "vae", "vae", "")).name
    _require_imported(path, env)
    if is_dreamer(path / agent):
        raise UsageProblem(f"agent is {agent!r}, a Dreamer, which has no V, M and C; `wm evaluate` plays it.")
    datasets = (path.parent.parent / "data" / f"{env_slug(env)}.zarr",) if data is None else _paths(data)
    # Absolute: latents and episodes are read when they are first used, and the program may have moved by then.
    workspace = Workspace(env, path.absolute(), tuple(each.absolute() for each in datasets))
    if agent == "controller" and not os.path.lexists(path / agent):
        return World(workspace, *load_pair(workspace))
    return World(workspace, *load_all(workspace, agent))


def _paths(data: RunPath | Sequence[RunPath]) -> tuple[Path, ...]:
    """One path or several. Raises UsageProblem for none, for what is none, and for an address."""
    paths = folders("data", data)
    if not paths:
        raise UsageProblem("data is empty; expected the path of a dataset, or None for data/<Env>.zarr beside runs/.")
    return paths


def _require_imported(folder: Path, env: str) -> None:
    """Raise UsageProblem if loading would import a module that only the run names: a run may come from a stranger."""
    module = env.rpartition(":")[0]
    if module and module not in sys.modules:
        raise UsageProblem(f"{folder} is a run of {env}, whose module is not imported yet; `import {module}` first.")
