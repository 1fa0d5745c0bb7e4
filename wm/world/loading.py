"""Loads the world of a run."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wm import model_json
from wm.artifacts import manifest, runs
from wm.artifacts.object_store import refuse_address
from wm.artifacts.workspace import Workspace, env_slug
from wm.errors import MissingInput, UsageProblem
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
    folder = _path("run", run)
    if not isinstance(agent, str) or not agent:
        raise UsageProblem(f"agent is {agent!r}; expected the name of a controller, such as 'controller'.")
    if not folder.is_dir():
        raise MissingInput(f"{folder} is not a folder; expected a run, such as runs/CartPole.")
    if (folder / manifest.NAME).is_file():
        raise UsageProblem(f"{folder} is an artifact; expected the run that it belongs to, {folder.absolute().parent}.")
    env = model_json.read_env(runs.load(folder / "vae", "vae", "")).name
    _require_imported(folder, env)
    if is_dreamer(folder / agent):
        raise UsageProblem(f"agent is {agent!r}, a Dreamer, which has no V, M and C; `wm evaluate` plays it.")
    datasets = (folder.parent.parent / "data" / f"{env_slug(env)}.zarr",) if data is None else _paths(data)
    # Absolute: latents and episodes are read when they are first used, and the program may have moved by then.
    workspace = Workspace(env, folder.absolute(), tuple(path.absolute() for path in datasets))
    if agent == "controller" and not os.path.lexists(folder / agent):
        return World(workspace, *load_pair(workspace))
    return World(workspace, *load_all(workspace, agent))


def _paths(data: RunPath | Sequence[RunPath]) -> tuple[Path, ...]:
    """One path or several. Raises UsageProblem for none, for what is none, and for an address."""
    paths = tuple(data) if isinstance(data, Sequence) and not isinstance(data, str | bytes) else (data,)
    if not paths:
        raise UsageProblem("data is empty; expected the path of a dataset, or None for data/<Env>.zarr beside runs/.")
    for path in paths:
        refuse_address(str(path))
    return tuple(_path("data", path) for path in paths)


def _path(name: str, value: Any) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise UsageProblem(f"{name} is {value!r}; expected the path of a folder.")
    return Path(value)


def _require_imported(folder: Path, env: str) -> None:
    """Raise UsageProblem if loading would import a module that only the run names: a run may come from a stranger."""
    module = env.rpartition(":")[0]
    if module and module not in sys.modules:
        raise UsageProblem(f"{folder} is a run of {env}, whose module is not imported yet; `import {module}` first.")
