"""Checking every byte of a dataset, and moving damaged parts to quarantine so that the others can be used."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wm.actions import ActionSpace
from wm.artifacts import durable, json_reader, links, manifest, schemas
from wm.episodes.committed_parts import (
    QUARANTINE,
    Part,
    committed_parts,
    read_table,
    require_values,
    unexplained_gaps,
)
from wm.episodes.dataset import read_root
from wm.episodes.parts import KIND as PART
from wm.episodes.parts import ROOT_KIND, root_files
from wm.episodes.schema import array_specs, part_name, part_range
from wm.episodes.shards import METADATA, Shard
from wm.errors import BadData, MissingInput, UsageProblem
from wm.seeding import collected_seed

_CONTROLLER = re.compile(r" ([0-9a-f]{16})(,|$)")  # in a recipe's policy, the fingerprint of the one that played
_ROUNDING = 1e-5  # of a return, next to the sizes of its rewards: sums of 32-bit floats


@dataclass(frozen=True)
class CheckResult:
    """The state of the root, a part, or (without files) a gap between parts; `problem` is empty if it is intact."""

    folder: Path
    files: int
    problem: str = ""


def check(path: Path) -> list[CheckResult]:
    """Check the root, every part against its checksums and the schema, whether parts are missing in between, and
    whether the dataset can be opened."""
    try:
        names = sorted(name for name in os.listdir(path) if part_range(name) is not None)
    except PermissionError:
        # Nothing is known to be broken where reading is not permitted, so no result says so.
        raise
    except OSError as error:
        return [CheckResult(path, 0, f"{path} cannot be opened ({error.strerror}); restore it or remove it.")]
    try:
        recipe: dict[str, Any] | None = read_root(path)
        results = [CheckResult(path, manifest.verify(path, ROOT_KIND))]
    except (BadData, MissingInput) as error:
        # Without the root the parts are still checked: each has the recipe, from which the root is written again.
        recipe, results = None, [CheckResult(path, 0, str(error))]
    foreign = [link for link in links.directly_in(path) if link.name not in (*names, *root_files({}))]
    results += [CheckResult(link, 0, links.problem(link)) for link in foreign]
    results += [check_part(path / name, recipe) for name in names]
    if recipe is not None and not any(result.problem for result in results):
        try:
            parts = committed_parts(path, recipe)
        except BadData as error:
            return [*results, CheckResult(path, 0, str(error))]
        for first, last in unexplained_gaps(path, parts, bool(recipe.get("evicts"))):
            why = f"{path} has lost episodes {first} to {last - 1}."
            results.append(CheckResult(path / part_name(first, last), 0, why))
        results += _repeated(path, parts, recipe)
    return results


def _repeated(path: Path, parts: Sequence[Part], recipe: dict[str, Any]) -> Iterator[CheckResult]:
    """The parts with an episode that another has the seed of, and that wm collect would have played with its own.

    Pieces in a replay share their seed, and imported recordings may. So may two of 10,000 collected episodes, whose
    seeds have 29 bits: these are the seeds that follow from the recipe.
    """
    if recipe.get("evicts") or "origin" in recipe or recipe.get("seed", -1) < 0:
        return
    controller = _CONTROLLER.search(recipe.get("policy", ""))
    counts = Counter(seed for part in parts for seed in part.table["seed"])
    for part in parts:
        for index, seed in zip(part.table["index"], part.table["seed"], strict=True):
            if counts[seed] > 1 and seed != collected_seed(recipe["seed"], controller[1] if controller else "", index):
                why = f"{part.folder} has episode {index} with the seed {seed} of another one; expected its own"
                yield CheckResult(part.folder, 0, f"{why}, so run `wm verify {shlex.quote(str(path))} --repair`.")
                break


def check_part(folder: Path, recipe: dict[str, Any] | None) -> CheckResult:
    """Check a part against its checksums and, with the dataset's recipe, every chunk, and that its actions, rewards and
    returns can be."""
    try:
        links.refuse(folder)
        files = manifest.verify(folder, PART)
        table = read_table(folder, recipe)
        if recipe is not None:
            for name, spec in array_specs(recipe, table["ends"][-1]).items():
                shard = Shard(folder / name, spec)
                for number in range(spec.chunks):
                    shard.chunk(number)
            _check_values(folder, recipe, table)
    except (BadData, MissingInput) as error:
        return CheckResult(folder, 0, str(error))
    return CheckResult(folder, files)


def _check_values(folder: Path, recipe: dict[str, Any], table: dict[str, list[Any]]) -> None:
    """Raise BadData for actions outside of the recipe's space, and for rewards, labels and returns that cannot be."""
    specs = array_specs(recipe, table["ends"][-1])
    way_out = f"run `wm verify {shlex.quote(str(folder.parent))} --repair`"
    columns = {name: Shard(folder / name, spec).all() for name, spec in specs.items() if name != "frames"}
    try:
        ActionSpace.from_json(recipe["action_space"]).require(columns["actions"])
    except UsageProblem as error:
        raise BadData(f"{folder / 'actions'} is wrong: {str(error).rstrip('.')}; {way_out}.") from None
    for name, values in columns.items():
        require_values(folder, name, values)
    for index, start, end, listed in zip(
        table["index"], [0, *table["ends"]], table["ends"], table["return"], strict=False
    ):
        paid = columns["rewards"][start:end].astype(np.float64)
        # `not <=`, because a return that is NaN must be found, too.
        if not abs(paid.sum() - listed) <= _ROUNDING * np.abs(paid).sum():
            raise BadData(
                f"{folder / METADATA} has the return {listed} for episode {index}; expected {paid.sum()}, the sum of "
                f"its rewards, so {way_out}."
            )


def repair(path: Path, restored: bool = False) -> list[str]:
    """Move damaged and lost parts to quarantine, and restore a damaged root from a part, unless it was `restored`
    already. Returns messages.

    Hold the dataset's lock. Nothing is deleted; a second repair has nothing to do.
    """
    actions = []
    for result in check(path):
        if not result.problem:
            continue
        if result.folder != path and part_range(result.folder.name) is None:
            raise BadData(result.problem)  # a link that is no part: what it points to is not ours to move
        if result.folder == path and restored:
            raise BadData(result.problem)
        if result.folder == path:
            actions.append(_restore_root(path))
            restored = True
        else:
            quarantined = _quarantine(path, result.folder)
            actions.append(f"{result.folder.name} moved to {quarantined}")
    # A damaged part may have hidden a gap.
    return actions + (repair(path, restored) if actions else [])


def _quarantine(path: Path, folder: Path) -> Path:
    """Move a part to quarantine. For a lost one, an empty folder there records that its episodes are missing."""
    durable.make_folder(path / QUARANTINE)
    target, number = path / QUARANTINE / folder.name, 1
    while target.exists() or target.is_symlink():
        number += 1
        target = path / QUARANTINE / f"{folder.name}.{number}"
    if folder.exists() or folder.is_symlink():
        os.rename(folder, target)
    else:
        durable.make_folder(target)
    # The quarantine first: a part that is in neither folder after a power failure would be gone.
    durable.fsync_folder(path / QUARANTINE)
    durable.fsync_folder(path)
    return target


def _restore_root(path: Path) -> str:
    """Write the root's files from the recipe that every part contains."""
    for name in sorted(os.listdir(path)):
        if part_range(name) is None or check_part(path / name, None).problem:
            continue
        metadata = path / name / METADATA
        recipe = manifest.read_json(metadata)["attributes"]["recipe"]
        try:
            json_reader.validate(recipe, str(metadata), schemas.DATASET_RECIPE)
        except BadData:
            # The recipe of a forged part is passed over; the next part may have an intact one.
            continue
        for file, data in root_files(recipe).items():
            if (path / file).is_dir():
                durable.remove(path / file)
            durable.write_bytes(path / file, data)
        return f"the root of {path} was restored from {name}"
    raise BadData(f"{path} has neither an intact root nor an intact part; collect again at another place with --data.")
