"""The code that an environment is made of: versions of installed packages, and digests of files that are none."""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium as gym

_INSTALLED = {"site-packages", "dist-packages"}  # folders whose contents change by installing another version only
_DIGITS = 16  # of a digest, as in wm/envs/renderers/source_check.py


@dataclass(frozen=True)
class EnvCode:
    """`packages` maps installed packages to versions. `sources` maps `source of <module>` to a digest of its file, for
    modules of somebody's own."""

    packages: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, env: gym.Env[Any, Any], env_id: str) -> "EnvCode":
        """The code of an environment's classes and their bases, of its wrappers, and of the module that registers it.

        What else these modules import is not covered. Modules of wm do not count: an id of ours, such as Catch-v0, has
        its version, and our renderers draw what gymnasium draws.
        """
        packages, sources = dict[str, str](), dict[str, str]()
        for name in sorted(_modules(env, env_id)):
            module = sys.modules.get(name)
            file = getattr(module, "__file__", None)
            top = name.partition(".")[0]
            if not file or top == "wm" or top in sys.stdlib_module_names:
                continue
            installed = _INSTALLED & set(Path(file).parts)
            if installed and (distributions := _distributions(top)):
                packages |= distributions
            else:
                sources[f"source of {name}"] = _digest(module, file)
        return cls(packages, sources)

    def edited_since(self, earlier: Mapping[str, str]) -> str:
        """The modules, `one and another`, with another digest in the inputs of an artifact; empty without."""
        names = (name for name, now in self.sources.items() if earlier.get(name, now) != now)
        return " and ".join(name.removeprefix("source of ") for name in names)


def _modules(env: gym.Env[Any, Any], env_id: str) -> set[str]:
    """Names of the modules with the environment's classes, and of the one that registers it."""
    names = {base.__module__ for layer in _layers(env) for base in type(layer).__mro__}
    spec = env.unwrapped.spec
    entry_point = None if spec is None else spec.entry_point
    if isinstance(entry_point, str):
        names.add(entry_point.partition(":")[0])
    elif entry_point is not None:
        names.add(getattr(entry_point, "__module__", ""))
    return names | {env_id.rpartition(":")[0]}


def _layers(env: Any) -> Iterator[gym.Env[Any, Any]]:
    """The environment and what it wraps, from outside in."""
    visited: list[Any] = []
    while isinstance(env, gym.Env) and not any(env is other for other in visited):
        yield env
        visited.append(env)
        env = vars(env).get("env")


def _distributions(module: str) -> dict[str, str]:
    """Name and version of the installed packages with this top-level module; usually there is one."""
    try:
        distributions = [metadata.distribution(module)]
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(module, ())  # reads the file lists of all packages
        distributions = [metadata.distribution(name) for name in set(names)]
    return {distribution.name: distribution.version for distribution in distributions}


def _digest(module: Any, file: str) -> str:
    """Of the bytes of a module's file, wherever its loader finds it."""
    data: bytes = module.__loader__.get_data(file)
    return hashlib.sha256(data).hexdigest()[:_DIGITS]
