"""Putting a run at a place for others."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from wm.artifacts import json_reader
from wm.artifacts.disk import DiskBudget
from wm.artifacts.workspace import env_slug
from wm.errors import BadData, UsageProblem
from wm.sharing import bundle
from wm.sharing.card import write_card
from wm.sharing.contents import CARD, MAX_BYTES, NAME, UNLISTED, Contents, parse, space_of
from wm.sharing.places import Place

UP_TO_DATE, PUBLISHED = "up to date", "published"


@dataclass(frozen=True)
class Published:
    """What lies at the place now, and whether it had to be put there."""

    status: str
    contents: Contents


def push(
    run: Path,
    place: Place,
    agent: str,
    data: Path | None,
    episodes: str,
    without: Collection[str],
    max_size: int,
    private: Sequence[str],
) -> Published:
    """Publish the artifacts of an agent of `run` with the first `episodes` (a number or `all`) of the dataset at `data`
    (None: where the environment's is by default). `private` are texts that must not travel.

    Raises UsageProblem for a place in the run or in the dataset, or around one of them, DiskProblem where the disk is
    too small, and what `bundle` and the place raise; nothing is at the place then that was not there before."""
    artifacts = bundle.choose(run, agent, without)
    env = bundle.env_of(artifacts, agent)
    path = data or run.parent.parent / "data" / f"{env_slug(env.name)}.zarr"
    if not place.address:
        _require_apart(Path(place.name), run, path)
    dataset, trained_on = bundle.open_episodes(path, artifacts, env, episodes)
    contents, files = bundle.bundle(artifacts, env.name, agent, dataset, trained_on, max_size)
    files |= {NAME: contents.as_bytes(), CARD: write_card(contents, artifacts, place.address)}
    bundle.require_private(files, private)
    if _holds(place, files):
        return Published(UP_TO_DATE, contents)
    _require_replaceable(place)
    if not place.address:
        # What is there already stays until the new files lie beside it.
        size, count = space_of(sum(map(len, files.values())), len(files))
        DiskBudget(Path(place.name)).require(size, 0, f"the run of {run}", count)
    place.publish(files, f"wm push: {agent} of {env.name}")
    return Published(PUBLISHED, contents)


def _require_apart(target: Path, *sources: Path) -> None:
    """Raise UsageProblem if a target on this machine is one of the sources, in one of them or around it: what others
    pull would stand in the run as part of it, and a push replaces what is at its target."""
    place = target.resolve()  # a link must not hide where it leads
    for source in sources:
        published = source.resolve()
        if published in (place, *place.parents):
            where = "is" if published == place else "is inside"
            raise UsageProblem(f"{target} {where} {source}, which is published; name a path outside of it.")
        if place in published.parents:
            raise UsageProblem(f"{target} has {source} in it, which is published; name a path beside it.")


def _holds(place: Place, files: dict[str, bytes]) -> bool:
    """Whether exactly these files are at the place."""
    try:
        present = {name: size for name, size in place.files().items() if name == CARD or name not in UNLISTED}
        if present != {name: len(data) for name, data in files.items()}:
            return False
        # The Hub keeps what was committed; files in a folder may have been damaged since.
        compared = (NAME, CARD) if place.address else files
        return all(b"".join(place.read(name)) == files[name] for name in compared)
    except BadData:
        # What cannot be read is another run's, so it is published again.
        return False


def _require_replaceable(place: Place) -> None:
    """Raise UsageProblem unless all that is at the place are the files of a shared run: a push removes them."""
    present = place.files()
    if present.keys() <= place.replaceable:
        return
    try:
        if present.get(NAME, MAX_BYTES) > json_reader.MAX_BYTES:
            raise BadData("larger than a list of files")
        known = {NAME, *UNLISTED, *parse(b"".join(place.read(NAME)), NAME).files}
    except BadData:
        raise UsageProblem(f"{place.name} exists and is no shared run; give another place.") from None
    if others := sorted(present.keys() - known):
        raise UsageProblem(f"{place.name} also holds {others[0]}, which a push would remove; give another place.")
