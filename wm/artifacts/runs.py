"""Runs: artifacts that are built in `<name>.partial` and renamed when they are finished.

A finished artifact of the same recipe is up to date; an unfinished one is resumed. An artifact of another recipe moves
to `archive/<name>-<first 8 digits of its fingerprint>`, and is restored when its recipe is asked for again. Nothing in
the archive is deleted, and an artifact of another kind is never moved.
"""

import glob
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wm.artifacts import disk, durable, json_reader, links, locks, manifest, schemas
from wm.artifacts.json_reader import Schema
from wm.artifacts.recipe import Recipe, differences
from wm.errors import BadData, MissingInput, RecipeMismatch

RECIPE_FILE = "recipe.json"
ARCHIVE = "archive"
SCRATCH = "checkpoints"  # needed only while the artifact is unfinished


@dataclass(frozen=True)
class Artifact:
    """A finished folder and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Identity of its recipe."""
        return str(self.manifest["fingerprint"])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in its recipe: those that can change the result."""
        return dict(self.manifest["recipe"]["settings"])

    @property
    def inputs(self) -> dict[str, str]:
        """Fingerprints of the artifacts and datasets that were its inputs."""
        return dict(self.manifest["recipe"]["inputs"])

    @property
    def metrics(self) -> dict[str, Any]:
        """The stage's final metrics."""
        return dict(self.manifest["metrics"])

    @property
    def wall_seconds(self) -> float:
        """What it took: of a training over all its sessions, of another stage the session that finished it."""
        # Only a training counts earlier sessions; another stage that was killed began again from nothing.
        last = float(self.manifest["provenance"]["wall_seconds"]) + float(self.metrics.get("earlier_seconds", 0.0))
        return max(last, float(self.metrics.get("seconds", 0.0)))

    def read_bytes(self, name: str, most: int = durable.LARGEST_LOG) -> bytes:
        """A file's bytes, at most so many, whose digest agrees with the manifest; raises BadData otherwise."""
        path = self._locate(name)
        if (size := self.manifest["files"][name]["size"]) > most:
            raise BadData(f"{path} has {size} bytes; expected at most {most}, so restore it or run the stage again.")
        data = durable.read_bytes(path)
        self._compare(path, hashlib.sha256(data).hexdigest(), name)
        return data

    def read_json(self, name: str, schema: Schema, way_out: str = json_reader.WAY_OUT) -> Any:
        """The JSON in a small file whose digest agrees with the manifest. Raises BadData otherwise, and for another
        value than the schema's."""
        return json_reader.parse(self.read_bytes(name, json_reader.MAX_BYTES), str(self.folder / name), schema, way_out)

    def check(self, name: str) -> Path:
        """The path of a file whose digest agrees with the manifest; raises BadData otherwise."""
        path = self._locate(name)
        self._compare(path, manifest.sha256_file(path), name)
        return path

    def _locate(self, name: str) -> Path:
        path = manifest.locate(self.folder, name)
        if name not in self.manifest["files"]:
            raise BadData(f"{self.folder / manifest.NAME} does not list {name}; run the stage again.")
        return path

    def _compare(self, path: Path, digest: str, name: str) -> None:
        if digest != self.manifest["files"][name]["sha256"]:
            raise BadData(f"{path} does not match its checksum; remove {self.folder} and run the stage again.")


def free_name(archived: Path) -> Path:
    """A path in the archive at which nothing is: this one, or the first with a number."""
    target, number = archived, 1
    while target.exists() or target.is_symlink():
        number += 1
        target = archived.with_name(f"{archived.name}.{number}")
    return target


def _kind_in(folder: Path) -> str:
    """The kind of the artifact or dataset in a folder, finished or not; empty if there is none, or none that can be
    read."""
    for name in (manifest.NAME, RECIPE_FILE):
        try:
            return str(manifest.read_json(folder / name)["kind"])
        except (BadData, KeyError, TypeError):
            continue
    return ""


def read_recipe(folder: Path, way_out: str = json_reader.WAY_OUT) -> dict[str, Any]:
    """The recipe of the unfinished work in a folder, as_json. Raises BadData for what is none."""
    return dict(json_reader.read(folder / RECIPE_FILE, schemas.UNFINISHED, way_out))


def load(folder: Path, kind: str, command: str) -> Artifact:
    """The finished artifact at `folder`. Raises MissingInput, which says to run `command` first; where it is empty, as
    the environment is not known, no command is named."""
    links.refuse(folder)
    if not (folder / manifest.NAME).is_file():
        way_out = f"run `{command}` first" if command else f"expected a finished {kind}"
        raise MissingInput(f"{folder} does not exist or is not finished; {way_out}.")
    return read(folder, kind)


def read(folder: Path, kind: str) -> Artifact:
    """The finished artifact at `folder`. Raises BadData unless its manifest has what an artifact's has, and its
    fingerprint is that of its recipe."""
    body = manifest.read(folder, kind)
    json_reader.validate(body, str(folder / manifest.NAME), schemas.artifact(kind))
    _require_fingerprint(folder, body)
    return Artifact(folder, body)


def _require_fingerprint(folder: Path, body: dict[str, Any]) -> None:
    if body["fingerprint"] != (expected := manifest.sha256_json(body["recipe"])):
        raise BadData(
            f"{folder / manifest.NAME}: fingerprint is {body['fingerprint'][:8]!r}; expected {expected[:8]!r}, that of "
            f"its recipe, so restore it or create the {body['kind']} again."
        )


def read_any(folder: Path) -> Artifact | None:
    """The finished artifact at `folder`, of whatever kind; None if it is not finished. Raises what `read` raises."""
    if not (folder / manifest.NAME).exists():
        return None
    return read(folder, _kind_in(folder))


def read_whole(folder: Path, kind: str = "") -> Artifact:
    """The finished artifact at `folder`, with every file checked against its digest: what a page or a table is made
    from. Raises MissingInput if nothing is finished, and BadData naming the damaged file."""
    artifact = read(folder, kind or _kind_in(folder))
    for name in artifact.manifest["files"]:
        artifact.check(name)
    return artifact


def copy(artifact: Artifact, folder: Path) -> None:
    """Copy an artifact to `folder`, whole or not at all, without taking its disk space again: the files of an artifact
    never change. Raises BadData if one does not match its checksum."""
    durable.commit_folder(_staged_copy(artifact, folder), folder)


def _staged_copy(artifact: Artifact, folder: Path) -> Path:
    durable.make_folder(folder.parent)
    staged = durable.staging_path(folder)
    staged.mkdir()
    for name in (*artifact.manifest["files"], manifest.NAME):
        path = artifact.folder / name if name == manifest.NAME else artifact.check(name)
        durable.make_folder((staged / name).parent)
        # Hard links: an artifact that another run takes over costs no bytes.
        durable.link(path, staged / name)
    return staged


@dataclass(frozen=True)
class Run:
    """The place of one artifact: `name` inside `root` (runs/Pong), such as `vae` or `evaluation/random`. `dependents`
    are the kinds of artifacts that have it as an input."""

    root: Path
    name: str
    recipe: Recipe
    dependents: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The finished artifact."""
        return self.root / self.name

    @property
    def partial(self) -> Path:
        """The artifact under construction."""
        return self.folder.with_name(self.folder.name + ".partial")

    @property
    def archived(self) -> list[Path]:
        """Archived artifacts of this name, finished or not."""
        first = self._archived("")
        return sorted(first.parent.glob(f"{glob.escape(first.name)}*"))

    def _archived(self, fingerprint: str, suffix: str = "") -> Path:
        # Eight of 64 hex digits; two recipes with the same eight get a number (`free_name`).
        return self.root / ARCHIVE / f"{self.name.replace('/', '-')}-{fingerprint[:8]}{suffix}"

    def require_place(self) -> None:
        """Raise BadData for a link or a file in the places of this artifact's folders, and RecipeMismatch for an
        artifact of another kind."""
        parents = [parent for parent in self.folder.parents if parent.is_relative_to(self.root) and parent != self.root]
        for place in (*reversed(parents), self.folder, self.partial, self.root / ARCHIVE):
            disk.require_folder(links.refuse(place))
        for place in (self.folder, self.partial, self.root / ARCHIVE):
            # Before anything is moved: a rename would carry a link into the archive, where nobody looks for it.
            links.refuse_below(place)
        for place in (self.folder, self.partial):
            kind = _kind_in(place)
            if kind and kind != self.recipe.kind:
                raise RecipeMismatch(
                    f"{place} holds a {kind}, and a {self.recipe.kind} does not replace it; choose another --name."
                )
        for parent in parents:
            if kind := _kind_in(parent):
                raise RecipeMismatch(f"{parent} holds a {kind}, and {self.folder} lies in it; choose another --name.")

    def finished(self) -> Artifact | None:
        """The artifact in `folder`, of any recipe; None if there is none or it is damaged. Raises what `require_place`
        raises."""
        self.require_place()
        try:
            return read(self.folder, self.recipe.kind)
        except (MissingInput, BadData):
            # A damaged artifact is archived and made again, as `damage` says to the user.
            return None

    def damage(self) -> str:
        """What is wrong with the finished artifact in `folder`; empty if it is intact or there is none."""
        try:
            read(self.folder, self.recipe.kind)
        except MissingInput:
            return ""
        except BadData as error:
            # Up to the way out, which names other commands than this situation asks for.
            return str(error).partition(";")[0]
        return ""

    def current(self) -> Artifact | None:
        """The finished artifact of this recipe, or None."""
        artifact = self.finished()
        return artifact if artifact is not None and artifact.fingerprint == self.recipe.fingerprint else None

    def why_stale(self) -> str:
        """How the finished artifact's recipe differs from this one, for messages; empty if nothing is finished."""
        artifact = self.finished()
        if artifact is None or artifact.fingerprint == self.recipe.fingerprint:
            return ""
        return ", ".join(differences(artifact.manifest["recipe"], self.recipe.as_json()))

    @contextmanager
    def build(self, keep_current: bool, log: Callable[[str], None]) -> Iterator["Builder"]:
        """Hold the lock and yield a Builder, whose `folder` is new or holds the unfinished artifact of this recipe.

        Raises Locked, and with `keep_current` RecipeMismatch for an artifact of another recipe and BadData for a
        damaged one.
        """
        self.require_place()  # before a lock file is created next to it
        with locks.exclusive(self.folder):
            self.require_place()
            for name in (self.folder.name, self.partial.name):
                durable.sweep(self.folder.parent, name)
            self._finish_publishing()
            why = self.why_stale()
            if why and keep_current:
                raise RecipeMismatch(
                    f"{self.folder} was created by another recipe ({why}) and --keep-current is given; "
                    "drop the option to archive it, or choose another --name."
                )
            if why:
                dependents = f"; {', '.join(self.dependents)} depend on it" if self.dependents else ""
                log(f"{self.name}: {why}{dependents}; the artifact of the old recipe moves to the archive")
            if damage := self.damage():
                if keep_current:
                    raise BadData(f"{damage}, and --keep-current is given; restore the file, or drop the option.")
                log(f"{self.name}: {damage}; the artifact moves to the archive, and is made again")
            restored = self._restore_archived()
            if restored is None:
                resumed = self._open_partial()
                yield Builder(self, self.partial, resumed, None)
            else:
                log(f"{self.name}: restored from the archive")
                yield Builder(self, self.partial, False, restored)

    def take(self, artifact: Artifact, keep_current: bool, log: Callable[[str], None]) -> None:
        """Copy the artifact of this recipe from another run, as `copy` does; one of another recipe moves to the
        archive. Raises what `build` and `copy` raise."""
        with self.build(keep_current, log) as builder:
            if builder.restored is None:
                log(f"{self.name}: copied from {artifact.folder}")
                self.swap_in(_staged_copy(artifact, self.folder))
                durable.remove(builder.folder)

    def _finish_publishing(self) -> None:
        if (self.partial / manifest.NAME).is_file():
            try:
                manifest.verify(self.partial, self.recipe.kind)
            except BadData as error:
                problem = str(error).partition(";")[0]
                raise BadData(f"{problem}; {self._begin_anew(self.partial)}.") from None
            self.swap_in(self.partial)

    def swap_in(self, source: Path) -> None:
        """Rename the complete folder `source` to `folder`; the artifact in `folder` moves to the archive."""
        # What only an unfinished artifact needs goes before the rename, so that no manifest lists it.
        durable.remove(source / SCRATCH)
        durable.remove(source / RECIPE_FILE)
        if self.folder.exists():
            old = self.finished()
            # No hex digits, so it never meets a fingerprint, of which the archive's names have the first eight.
            self._move_to_archive(self.folder, self._archived(old.fingerprint if old else "damaged0"))
        durable.make_folder(self.folder.parent)
        durable.commit_folder(source, self.folder)

    @staticmethod
    def _move_to_archive(folder: Path, archived: Path) -> None:
        durable.make_folder(archived.parent)
        os.rename(folder, free_name(archived))

    def _restore_archived(self) -> Artifact | None:
        first = self._archived(self.recipe.fingerprint)
        for archived in (first, *sorted(first.parent.glob(f"{glob.escape(first.name)}.[0-9]*"))):
            try:
                artifact = read(archived, self.recipe.kind)
            except (MissingInput, BadData):
                # A damaged archive is passed over, not removed: the artifact is made again beside it.
                continue
            if artifact.fingerprint == self.recipe.fingerprint:
                self.swap_in(archived)
                return self.current()
        return None

    def _open_partial(self) -> bool:
        """Prepare `partial` for this recipe. Returns whether it holds unfinished work to resume."""
        expected = self.recipe.as_json()
        if self.partial.exists():
            recipe = self._partial_recipe()
            if recipe == expected:
                return True
            if recipe:
                self._move_to_archive(self.partial, self._archived(manifest.sha256_json(recipe), ".partial"))
        archived = self._archived(self.recipe.fingerprint, ".partial")
        durable.make_folder(self.partial.parent)
        if archived.exists() and read_recipe(archived, self._begin_anew(archived)) == expected:
            durable.remove(self.partial)
            os.rename(archived, self.partial)
            return True
        durable.make_folder(self.partial)
        durable.write_json(self.partial / RECIPE_FILE, expected)
        return False

    def _partial_recipe(self) -> dict[str, Any]:
        """The recipe of the unfinished work; empty if a kill came before it was written. Raises BadData for work whose
        recipe is missing or cannot be read."""
        durable.sweep(self.partial)
        if not any(self.partial.iterdir()):
            return {}
        return read_recipe(self.partial, self._begin_anew(self.partial))

    @staticmethod
    def _begin_anew(folder: Path) -> str:
        return f"restore it, or remove {folder} to begin anew"


@dataclass(frozen=True)
class Builder:
    """An artifact under construction. If `restored` is set, it came from the archive and is finished."""

    run: Run
    folder: Path
    resumed: bool
    restored: Artifact | None

    def publish(self, metrics: dict[str, Any], provenance: dict[str, Any]) -> Artifact:
        """Write the manifest and rename the folder to its final place; an artifact of another recipe is archived."""
        durable.sweep(self.folder)
        paths = (path.relative_to(self.folder) for path in links.walk(self.folder) if path.is_file())
        files = [path.as_posix() for path in paths if path.parts[0] not in (SCRATCH, RECIPE_FILE, manifest.NAME)]
        body = {
            "kind": self.run.recipe.kind,
            "fingerprint": self.run.recipe.fingerprint,
            "recipe": self.run.recipe.as_json(),
            "metrics": metrics,
            "provenance": provenance,
        }
        # Before the manifest: once that is durable, the files it lists must be.
        durable.fsync_tree(self.folder)
        manifest.write(self.folder, body, files)
        self.run.swap_in(self.folder)
        return load(self.run.folder, self.run.recipe.kind, "the same command")
