"""Every checksum of a dataset, an artifact, or all of them below a folder."""

from dataclasses import dataclass
from pathlib import Path

from wm.artifacts import links, locks, manifest, runs
from wm.episodes import repair
from wm.episodes.dataset import Dataset
from wm.episodes.parts import KIND as PART
from wm.episodes.parts import ROOT_KIND as EPISODES
from wm.episodes.repair import CheckResult
from wm.episodes.schema import SUFFIX, part_range
from wm.errors import BadData, MissingInput, WmError


@dataclass(frozen=True)
class Report:
    """The results of all checks, messages of the repair, and the folders that may not be read, so nobody knows of."""

    checked: list[CheckResult]
    repaired: list[str]
    closed: list[Path]

    @property
    def damaged(self) -> list[CheckResult]:
        """Folders that do not agree with their checksums."""
        return [checked for checked in self.checked if checked.problem]


def verify(path: Path, repair_datasets: bool = False) -> Report:
    """Check everything at or below `path`; with `repair_datasets`, first move damaged parts to quarantine."""
    closed = find_closed(path)
    datasets = [folder for folder in find_datasets(path) if folder not in closed]
    repaired: list[str] = []
    if repair_datasets:
        for dataset in filter(Path.is_dir, datasets):
            with locks.exclusive(dataset):
                repaired += repair.repair(dataset)
    checked = [result for dataset in datasets for result in repair.check(dataset)]
    unreadable = {dataset for dataset in datasets if not _opens(dataset)}
    checked.sort(key=lambda result: not (result.problem and {result.folder, result.folder.parent} & unreadable))
    checked += [_check(folder) for folder in _artifacts(path)]
    checked += [CheckResult(link, 0, links.problem(link)) for link in find_links(path)]
    if not checked and not closed:
        raise MissingInput(f"{path} holds no dataset and no artifact; expected a {manifest.NAME} somewhere in it.")
    return Report(checked, repaired, closed)


def find_closed(path: Path) -> list[Path]:
    """The folders below `path` that may not be read and may be datasets or artifacts, or hold some."""
    return [folder for folder in links.closed(path) if _visible(path, folder)]


def _visible(path: Path, below: Path) -> bool:
    pieces = below.relative_to(path).parts
    return not any(piece.startswith(".") or piece.endswith(".partial") for piece in pieces)


def _opens(dataset: Path) -> bool:
    """Whether a stage could read the dataset's table; its arrays may be damaged all the same."""
    try:
        Dataset.open(dataset)
    except (WmError, OSError):
        # What keeps it from opening has its own line in the list of checks; here only yes or no is asked.
        return False
    return True


def find_datasets(path: Path) -> list[Path]:
    """What contains a part or a dataset's manifest, or has a dataset's name: damaged, empty or a link that leads
    nowhere, so that nothing which cannot be opened is passed over."""
    if part_range(path.name) is not None:
        return [path.parent]
    paths = list(links.walk(path))
    folders = {folder.parent for folder in paths if part_range(folder.name) is not None}
    folders |= {file.parent for file in paths if file.name == manifest.NAME and _kind(file) == EPISODES}
    named = (folder for folder in (path, *paths) if folder.suffix == SUFFIX)
    folders |= {folder for folder in named if not (folder.parent / manifest.NAME).exists()}  # an artifact has arrays
    return sorted(folder for folder in folders if _visible(path, folder))


def _artifacts(path: Path) -> list[Path]:
    """Folders with the manifest of an artifact."""
    folders = (file.parent for file in links.walk(path) if file.name == manifest.NAME)
    visible = (folder for folder in folders if part_range(folder.name) is None and _visible(path, folder))
    others = (folder for folder in visible if folder.suffix != SUFFIX)
    return sorted(folder for folder in others if _kind(folder / manifest.NAME) not in (EPISODES, PART))


def find_links(path: Path) -> list[Path]:
    """The links in the artifacts at or below `path`, and in the runs that hold these: no command follows them."""
    within = {folder for artifact in _artifacts(path) for folder in (artifact, artifact.parent)}
    return [link for link in links.below(path) if not within.isdisjoint(_folders_of(link, path))]


def _folders_of(link: Path, top: Path) -> list[Path]:
    return [folder for folder in link.parents if folder.is_relative_to(top)]


def _check(folder: Path) -> CheckResult:
    kind = _kind(folder / manifest.NAME)
    try:
        files = manifest.verify(folder, kind or "artifact")
        runs.read(folder, kind)  # whose figures are those that commands show
        return CheckResult(folder, files)
    except (BadData, MissingInput) as error:
        # One result for each folder: the first damaged artifact must not hide the next.
        return CheckResult(folder, 0, str(error))


def _kind(file: Path) -> str:
    """The kind in a manifest; empty if it cannot be read."""
    try:
        return str(manifest.read_json(file)["kind"])
    except (BadData, KeyError, TypeError, PermissionError):
        # Without a readable kind a folder is checked as an artifact, and that says what is wrong.
        return ""
