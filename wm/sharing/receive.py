"""Receiving a run that anybody may have made.

Nothing is believed: the list of files decides names, number and sizes before anything is copied; a file is read no
further than the list says and its digest is compared; then the artifacts and the episodes are opened as commands open
them, in a place that no command reads. Only after that they are renamed to where they are used, the episodes first.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from wm.artifacts import durable, json_reader, locks, manifest, runs
from wm.artifacts.disk import DiskBudget
from wm.artifacts.workspace import env_slug
from wm.envs.registry import EnvConfig
from wm.episodes import repair
from wm.episodes.dataset import Dataset, fingerprint_of, read_root
from wm.episodes.latents import decoded_bytes, read_latents
from wm.errors import BadData, MissingInput, RecipeMismatch, UsageProblem
from wm.pretrained import load_controller, load_dreamer, load_mdnrnn, load_vae
from wm.report.run_summary import RunSummary
from wm.runtime import Runtime
from wm.sharing import bundle
from wm.sharing.contents import EPISODES, NAME, UNLISTED, WAY_OUT, Contents, File, is_safe, parse, space_of
from wm.sharing.places import Place

UP_TO_DATE, RECEIVED = "up to date", "received"
MAX_DECODED = 1 << 31  # of latents in memory: zeros of any number compress to little; our largest take 50 MB


@dataclass(frozen=True)
class Received:
    """A run that arrived: what happened, its folder, the dataset (None if no episodes came along), and whether a
    dataset of the same recipe lay there before and was kept."""

    status: str
    contents: Contents
    run: Path
    data: Path | None
    kept_data: bool


def read_contents(place: Place) -> Contents:
    """The contents of the run at a place, compared with the files that are there.

    Raises MissingInput where there is no shared run, BadData for files that are not listed, missing or of another
    size."""
    present = place.files()
    if NAME not in present:
        private = ", or it is private: log in with `hf auth login`" if place.address.startswith("hf://") else ""
        problem = f"there is no {NAME} of `wm push`" if present else "it does not exist, or is empty"
        raise MissingInput(f"{place.name} is no shared run: {problem}{private}.")
    source = f"{place.name}/{NAME}"
    if present[NAME] > json_reader.MAX_BYTES:
        raise BadData(f"{source} is larger than {json_reader.MAX_BYTES} bytes; {WAY_OUT}.")
    contents = parse(_read(place, NAME, present[NAME]), source)
    if foreign := sorted(present.keys() - contents.files.keys() - UNLISTED - {NAME}):
        raise BadData(f"{place.name} has {foreign[0][:80]!r}, which {NAME} does not list; {WAY_OUT}.")
    for name, file in contents.files.items():
        if present.get(name) != file.size:
            actual = "missing" if name not in present else f"of {present[name]} bytes"
            raise BadData(f"{place.name}/{name} is {actual}; {NAME} says {file.size} bytes, so {WAY_OUT}.")
    return contents


def pull(place: Place, run: Path | None, data: Path | None, max_size: int, runtime: Runtime) -> Received:
    """Bring the run at a place to `run` (None: `runs/<Env>`), its episodes to `data` (`data/<Env>.zarr`).

    Raises UsageProblem where something else is there already, for a place inside another of the three, and for more
    than `max_size` bytes, DiskProblem where the disk is too small, BadData and RecipeMismatch for a run that is not
    sound; nothing is left behind then."""
    contents = read_contents(place)
    if contents.size > max_size:
        raise UsageProblem(
            f"{place.name} has {contents.size:,} bytes, more than --max-size {max_size:,}; raise it if you trust it."
        )
    slug = _slug(contents.env)
    folder = run or Path("runs") / slug
    dataset = (data or Path("data") / f"{slug}.zarr") if contents.episodes else None
    _require_apart(Path(place.name), folder, dataset)
    budget, files = space_of(contents.size, len(contents.files))
    for target in filter(None, (folder, dataset)):  # they may lie on different volumes
        DiskBudget(target).require(budget, 0, f"pulling {place.name}", files)
    with locks.exclusive(folder):
        here = _is_here(folder, contents)
        if here and (dataset is None or dataset.exists()):
            return Received(UP_TO_DATE, contents, folder, dataset, True)
        if dataset is None:
            return _pull(place, contents, folder, None, here, runtime)
        with locks.exclusive(dataset):
            return _pull(place, contents, folder, dataset, here, runtime)


def _pull(place: Place, contents: Contents, folder: Path, data: Path | None, here: bool, runtime: Runtime) -> Received:
    """Copy, check and rename what is not `here` yet. The locks are held."""
    staged = {target: durable.staging_path(target) for target in (folder, data) if target}
    try:
        for target in staged:
            durable.sweep(target.parent, target.name)  # of a pull that was killed
        with runtime.progress(f"pull {contents.env}", contents.size, "bytes") as progress:
            done = 0
            for name, file in contents.files.items():
                if data and _is_episode(name):
                    _copy(place, name, file, staged[data] / name.removeprefix(f"{EPISODES}/"))
                else:
                    _copy(place, name, file, staged[folder] / name)
                runtime.raise_if_stopped()
                progress.update(done := done + file.size)
        kept_data = _check(place, contents, staged[folder], staged[data] if data else None, data)
        if data and not kept_data:
            durable.commit_folder(staged[data], data)
        if not here:
            durable.commit_folder(staged[folder], folder)
    # What was not renamed is removed, whatever the error was.
    finally:
        for leftover in staged.values():
            durable.remove(leftover)
    return Received(RECEIVED, contents, folder, data, kept_data)


def _require_apart(source: Path, folder: Path, dataset: Path | None) -> None:
    """Raise UsageProblem for a target in the shared run, or for episodes in the folder of the run or around it."""
    around = {target: (target.resolve(), *target.resolve().parents) for target in (folder, dataset) if target}
    for target, (_, *parents) in around.items():
        if source.resolve() in parents:
            raise UsageProblem(f"{target} is inside {source}, which is read; name a path outside of it.")
    if dataset and (folder.resolve() in around[dataset] or dataset.resolve() in around[folder]):
        raise UsageProblem(f"--run is {folder} and --data {dataset}; expected two folders, neither in the other.")


def _slug(env: str) -> str:
    slug = env_slug(env)
    if not is_safe(slug):
        raise BadData(f"the run is one of {env!r}, which cannot name a folder; give one with --run and --data.")
    return slug


def _is_here(folder: Path, contents: Contents) -> bool:
    """Whether the folder holds the run. Raises UsageProblem if it holds anything else."""
    if not folder.exists():
        return False
    if not any(folder.iterdir()):
        durable.remove(folder)
        return False
    if all(_is_same(folder, name, file) for name, file in contents.files.items() if not _is_episode(name)):
        return True
    raise UsageProblem(f"{folder} exists and is another run; give another folder with --run, or move it away.")


def _is_episode(name: str) -> bool:
    return name.startswith(f"{EPISODES}/")


def _is_same(folder: Path, name: str, file: File) -> bool:
    path = manifest.locate(folder, name)
    return path.is_file() and path.stat().st_size == file.size and manifest.sha256_file(path) == file.sha256


def _read(place: Place, name: str, size: int) -> bytes:
    """The bytes of a file, which are so many."""
    data = bytearray()
    for piece in place.read(name):
        data += piece
        if len(data) > size:
            break
    if len(data) != size:
        raise BadData(f"{place.name}/{name} has not the {size} bytes that it should have; {WAY_OUT}.")
    return bytes(data)


def _copy(place: Place, name: str, file: File, target: Path) -> None:
    """Copy a file. Raises BadData as soon as it is longer than listed, and for another digest."""
    durable.make_folder(target.parent)
    digest, size = hashlib.sha256(), 0
    with durable.open_file(target, "wb") as opened:
        for piece in place.read(name):
            size += len(piece)
            if size > file.size:
                break
            digest.update(piece)
            opened.write(piece)
    if size != file.size or digest.hexdigest() != file.sha256:
        raise BadData(f"{place.name}/{name} is not what {place.name}/{NAME} says; {WAY_OUT}.")


def _check(place: Place, contents: Contents, staged: Path, episodes: Path | None, data: Path | None) -> bool:
    """Open everything as commands do. Returns whether a dataset of the same recipe lies at `data` already."""
    try:
        _check_artifacts(staged, contents)
        recipe = _check_episodes(episodes, contents) if episodes else {}
    except (BadData, MissingInput, RecipeMismatch) as error:
        text = str(error).replace(str(staged), place.name).replace(str(episodes), f"{place.name}/{EPISODES}")
        raise BadData(f"{text.partition(';')[0].rstrip('.')}; nothing was written, so {WAY_OUT}.") from None
    if data is None or not data.exists():
        return False
    if fingerprint_of(read_root(data)) != fingerprint_of(recipe):
        raise UsageProblem(f"{data} has episodes of another recipe; give another place for these with --data.")
    return True


def _check_artifacts(staged: Path, contents: Contents) -> None:
    artifacts = {name: runs.read_whole(staged / name, kind) for name, kind in contents.artifacts.items()}
    for name, artifact in artifacts.items():
        if {*artifact.manifest["files"], manifest.NAME} != contents.below(name).keys():
            raise BadData(f"{artifact.folder} has other files than its manifest lists")
    bundle.require_related(artifacts, contents.agent)
    loaders = {"vae": load_vae, "mdnrnn": load_mdnrnn, "controller": load_controller, "dreamer": load_dreamer}
    for name, kind in contents.artifacts.items():
        if load := loaders.get(kind):
            load(staged / name, "wm pull")
        elif kind == "latents":
            if decoded_bytes(staged / name) > MAX_DECODED:
                raise BadData(f"{staged / name} would take {decoded_bytes(staged / name):,} bytes of memory")
            read_latents(staged / name)
    if damaged := RunSummary.of(staged).damaged:  # logs and pictures, as a report shows them
        raise BadData(damaged[0])
    if (env := bundle.env_of(artifacts, contents.agent).name) != contents.env:
        raise RecipeMismatch(f"{staged} was trained on {env} but {NAME} says {contents.env}")


def _check_episodes(episodes: Path, contents: Contents) -> dict[str, object]:
    """The recipe of the dataset, of which every byte was read."""
    for result in repair.check(episodes):
        if result.problem:
            raise BadData(result.problem)
    dataset = Dataset.open(episodes)
    env = EnvConfig.of_recipe(dataset.recipe)
    if env.name != contents.env or dataset.episodes != contents.episodes:
        raise RecipeMismatch(f"{episodes} has {dataset.episodes} episodes of {env.name}, not those that {NAME} says")
    return dataset.recipe
