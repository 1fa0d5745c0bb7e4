"""A recipe is everything that determines a result; its fingerprint is the artifact's identity."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from wm.artifacts.manifest import sha256_json

# Raised when the recipe's own form changes; it enters every fingerprint, so all artifacts would be made anew.
FORMAT = 1
_CHOICES = ("algo", "in_", "network")  # settings that decide which others mean something


@dataclass(frozen=True)
class Recipe:
    """What determines an artifact.

    `version` is raised when a stage's code changes its results. `settings` are those that can change the result;
    `inputs` are the fingerprints of the artifacts and datasets read. Device and number of workers are no part of it.
    """

    kind: str
    version: int
    settings: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values, the same that are hashed."""
        return {
            "kind": self.kind,
            "format": FORMAT,
            "recipe": self.version,
            "settings": self.settings,
            "inputs": self.inputs,
        }

    @property
    def fingerprint(self) -> str:
        """64 hex digits; messages and paths show the first eight."""
        return sha256_json(self.as_json())


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Nested tables as one, by their innermost names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value) if isinstance(value, dict) else {name: value}
    return flat


def _or_none(value: Any) -> Any:
    return "none" if value is None or value == "" else value


def _in_series(names: Iterable[str]) -> list[str]:
    """Names in order; those that differ by their last number alone as one: `episodes 2, 3, 4`."""
    series = dict[str, list[str]]()
    for name in sorted(names, key=lambda name: (len(name), name)):
        stem, _, last = name.rpartition(" ")
        if last.isdecimal():
            series.setdefault(stem, []).append(last)
        else:
            series[name] = []
    return [f"{stem} {', '.join(numbers)}".rstrip() for stem, numbers in series.items()]


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """How two recipes, as_json, differ: `latent 32 -> 64`. A setting that one of them lacks has its default there, or
    means nothing to another choice of algorithm or network and is left out; a package that one of them lacks is `none`
    there, and of an input it is said which has it."""
    changes = []
    settings = old.get("settings", {}), new.get("settings", {})
    before, after = map(_flat, settings)
    packages = {name for table in settings for name in table.get("packages", {})}
    names = {*before, *after}
    if any(name in before and name in after and before[name] != after[name] for name in _CHOICES):
        names = {name for name in names if (name in before and name in after) or name in packages}
    for name in sorted(names):
        lacking = "none" if name in packages else "default"
        was, now = before.get(name, lacking), after.get(name, lacking)
        if was != now:
            changes.append(f"{name.rstrip('_')} {_or_none(was)} -> {_or_none(now)}")
    before, after = old.get("inputs", {}), new.get("inputs", {})
    changes += [f"{name} changed" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    changes += [f"now with {name}" for name in _in_series(after.keys() - before.keys())]
    changes += [f"now without {name}" for name in _in_series(before.keys() - after.keys())]
    if old.get("recipe") != new.get("recipe"):
        changes.append(f"code of the stage {old.get('recipe')} -> {new.get('recipe')}")
    if old.get("format") != new.get("format"):
        changes.append(f"format {old.get('format')} -> {new.get('format')}")
    return changes
