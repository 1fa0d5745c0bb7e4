"""Runs: artifacts that are built aside in `<name>.partial` and renamed when finished.

Same recipe and finished: up to date. Unfinished of the same recipe: resumed. Another recipe: what stands there moves
to `archive/<name>-<fp8>`, and moves back when it is asked for again.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wm.artifacts import durable, locks, manifest
from wm.artifacts.recipe import Recipe, differences
from wm.errors import BadData, MissingInput, RecipeMismatch

RECIPE_FILE = "recipe.json"
SCRATCH = "checkpoints"  # only of use while the artifact is unfinished


@dataclass(frozen=True)
class Artifact:
    """A finished folder and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Identity of the recipe it was made of."""
        return str(self.manifest["fingerprint"])

    @property
    def settings(self) -> dict[str, Any]:
        """The result-changing settings it was made with."""
        return dict(self.manifest["recipe"]["settings"])

    @property
    def inputs(self) -> dict[str, str]:
        """Fingerprints of what it was made from."""
        return dict(self.manifest["recipe"]["inputs"])

    @property
    def metrics(self) -> dict[str, Any]:
        """Final figures of the stage."""
        return dict(self.manifest["metrics"])

    def read_bytes(self, name: str) -> bytes:
        """A file's bytes, checked against the manifest."""
        self.check(name)
        return (self.folder / name).read_bytes()

    def check(self, name: str) -> Path:
        """The path of a file whose digest agrees with the manifest; raises BadData otherwise."""
        path = self.folder / name
        if manifest.sha256_file(path) != self.manifest["files"][name]["sha256"]:
            raise BadData(f"{path} does not match its checksum; remove {self.folder} and run the stage again.")
        return path


def load(folder: Path, kind: str, make_it: str) -> Artifact:
    """The finished artifact at `folder`; MissingInput says to run `make_it` first."""
    if not (folder / manifest.NAME).is_file():
        raise MissingInput(f"{folder} does not exist or is not finished; run `{make_it}` first.")
    return Artifact(folder, manifest.read(folder, kind))


def copy(artifact: Artifact, folder: Path) -> None:
    """The same artifact at another place, whole or not at all. Raises BadData if a file does not match its checksum."""
    durable.make_folder(folder.parent)
    staged = durable.aside(folder)
    staged.mkdir()
    for name in (*artifact.manifest["files"], manifest.NAME):
        data = (artifact.folder / name).read_bytes() if name == manifest.NAME else artifact.read_bytes(name)
        durable.make_folder((staged / name).parent)
        durable.write_bytes(staged / name, data)
    durable.commit_folder(staged, folder)


def _but_for(recipe: dict[str, Any], settings: Collection[str]) -> dict[str, Any]:
    others = {name: value for name, value in recipe["settings"].items() if name not in settings}
    return {**recipe, "settings": others}


@dataclass(frozen=True)
class Run:
    """The place of one artifact: `name` inside `root` (runs/Pong), such as `vae` or `evaluation/random`; `dependents`
    are kinds of artifacts that are made from it."""

    root: Path
    name: str
    recipe: Recipe
    dependents: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where the finished artifact stands."""
        return self.root / self.name

    @property
    def partial(self) -> Path:
        """Where it is being made."""
        return self.folder.with_name(self.folder.name + ".partial")

    @property
    def _archived_name(self) -> str:
        return self.name.replace("/", "-")

    def _archived(self, fingerprint: str, suffix: str = "") -> Path:
        return self.root / "archive" / f"{self._archived_name}-{fingerprint[:8]}{suffix}"

    def finished(self) -> Artifact | None:
        """The artifact standing in `folder`, of whatever recipe; None if there is none or it is damaged."""
        try:
            return Artifact(self.folder, manifest.read(self.folder, self.recipe.kind))
        except (MissingInput, BadData):
            return None

    def current(self) -> Artifact | None:
        """The finished artifact of this recipe, or None."""
        found = self.finished()
        return found if found is not None and found.fingerprint == self.recipe.fingerprint else None

    def why_stale(self) -> str:
        """What differs between this recipe and the finished artifact, in words; empty if nothing stands there."""
        found = self.finished()
        if found is None or found.fingerprint == self.recipe.fingerprint:
            return ""
        return ", ".join(differences(found.manifest["recipe"], self.recipe.as_json()))

    def but_for(self, settings: Collection[str]) -> list[tuple[Path, dict[str, Any]]]:
        """Work of recipes that differ from this one in these settings at most, finished and whole or unfinished, here
        or in the archive: its folder and its settings."""
        found, wanted = [], _but_for(self.recipe.as_json(), settings)
        archive = sorted((self.root / "archive").glob(f"{self._archived_name}-*"))
        for folder in (self.folder, *archive):
            recipe = self._recipe_of(folder)
            if recipe is not None and _but_for(recipe, settings) == wanted:
                found.append((folder, recipe["settings"]))
        return found

    def _recipe_of(self, folder: Path) -> dict[str, Any] | None:
        """What is in `folder`, as a recipe's as_json; None if it is damaged, of another kind or not there."""
        try:
            if (folder / manifest.NAME).exists():
                artifact = load(folder, self.recipe.kind, "")
                for name in artifact.manifest["files"]:
                    artifact.check(name)
                return dict(artifact.manifest["recipe"])
            found = manifest.read_json(folder / RECIPE_FILE)
            return found if isinstance(found, dict) and isinstance(found.get("settings"), dict) else None
        except (MissingInput, BadData):
            return None

    @contextmanager
    def build(self, keep_current: bool, say: Callable[[str], None]) -> Iterator["Builder"]:
        """Hold the lock and yield a Builder whose `folder` is new or has the unfinished work of this recipe."""
        with locks.exclusive(self.folder):
            durable.sweep(self.folder.parent, self.folder.name + "*")
            self._finish_publishing()
            why = self.why_stale()
            if why and keep_current:
                raise RecipeMismatch(
                    f"{self.folder} was made by another recipe ({why}) and --keep-current is given; "
                    "drop the option to archive it, or choose another --name."
                )
            if why:
                depend = f"; {', '.join(self.dependents)} depend on it" if self.dependents else ""
                say(f"{self.name}: {why}{depend}; the old one moves to the archive")
            restored = self._restore_archived()
            if restored is None:
                resumed = self._open_partial()
                yield Builder(self, self.partial, resumed, None)
            else:
                say(f"{self.name}: found in the archive, moved back")
                yield Builder(self, self.partial, False, restored)

    def _finish_publishing(self) -> None:
        if (self.partial / manifest.NAME).is_file():
            try:
                manifest.read(self.partial, self.recipe.kind)
            except BadData:
                durable.remove_folder(self.partial)
                return
            self.swap_in(self.partial)

    def swap_in(self, source: Path) -> None:
        """Rename the complete folder `source` to `folder`; what stands there moves to the archive."""
        durable.remove_folder(source / SCRATCH)
        (source / RECIPE_FILE).unlink(missing_ok=True)
        if self.folder.exists():
            old = self.finished()
            aside = self._archived(old.fingerprint if old else "damaged0")
            durable.make_folder(aside.parent)
            durable.remove_folder(aside)
            os.rename(self.folder, aside)
        durable.make_folder(self.folder.parent)
        durable.commit_folder(source, self.folder)

    def _restore_archived(self) -> Artifact | None:
        archived = self._archived(self.recipe.fingerprint)
        try:
            found = manifest.read(archived, self.recipe.kind)
        except (MissingInput, BadData):
            return None
        if found["fingerprint"] != self.recipe.fingerprint:
            return None
        self.swap_in(archived)
        return self.current()

    def _open_partial(self) -> bool:
        """Make `partial` hold work of this recipe. Returns whether there was some already."""
        wanted = self.recipe.as_json()
        if self.partial.exists():
            try:
                found = json.loads((self.partial / RECIPE_FILE).read_bytes())
            except (OSError, ValueError):
                found = None
            if found == wanted:
                return True
            if found is None:
                durable.remove_folder(self.partial)
            else:
                aside = self._archived(manifest.sha256_json(found), ".partial")
                durable.make_folder(aside.parent)
                durable.remove_folder(aside)
                os.rename(self.partial, aside)
        archived = self._archived(self.recipe.fingerprint, ".partial")
        durable.make_folder(self.partial.parent)
        if archived.exists():
            os.rename(archived, self.partial)
            return True
        durable.make_folder(self.partial)
        durable.write_json(self.partial / RECIPE_FILE, wanted)
        return False


@dataclass(frozen=True)
class Builder:
    """An artifact under construction. `restored` is set if it came back from the archive: nothing is left to do."""

    run: Run
    folder: Path
    resumed: bool
    restored: Artifact | None

    def publish(self, metrics: dict[str, Any], provenance: dict[str, Any]) -> Artifact:
        """Write the manifest and rename the folder to its final place; what stood there goes to the archive."""
        durable.sweep(self.folder)
        found = (path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())
        kept = [path.as_posix() for path in found if path.parts[0] not in (SCRATCH, RECIPE_FILE, manifest.NAME)]
        body = {
            "kind": self.run.recipe.kind,
            "fingerprint": self.run.recipe.fingerprint,
            "recipe": self.run.recipe.as_json(),
            "metrics": metrics,
            "provenance": provenance,
        }
        durable.fsync_tree(self.folder)
        manifest.write(self.folder, body, kept)
        self.run.swap_in(self.folder)
        return load(self.run.folder, self.run.recipe.kind, "the same command")
