"""`wm collect`: an environment and a policy -> episodes."""

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from stages import console
from stages.players import Player, build_agent, find_player
from stages.session import Plan, Result, Session
from wm.actions import ActionSpace
from wm.artifacts import durable, locks, manifest
from wm.artifacts.recipe import differences
from wm.envs.catalogue import EnvRecipe, EnvSpec
from wm.envs.pixels import PixelEnv
from wm.episodes.dataset import Dataset, fingerprint_of
from wm.episodes.schema import Episode, PackedEpisode
from wm.episodes.writer import Writer, create
from wm.errors import DiskProblem, RecipeMismatch, UsageProblem
from wm.executors import Workers
from wm.policies import BLIND, pick_policy
from wm.rollouts import Agent, Job, record
from wm.seeding import episode_seed
from wm.settings import CollectSettings

MARGIN = 1.3
PROBE_STEPS = 200
PROVENANCE = "provenance.jsonl"


@dataclass(frozen=True)
class Collection:
    """What a worker needs to play any episode of a dataset."""

    env: EnvRecipe
    policy: str
    seed: int
    max_steps: int
    player: Player | None = None


@lru_cache(maxsize=1)
def _set_up(collection: Collection) -> tuple[PixelEnv, Agent, ActionSpace]:
    env = collection.env.make(labelled=True)
    space = ActionSpace.of(env.action_space)
    if collection.player is not None:
        return env, build_agent(collection.player, slots=1), space
    return env, BLIND[collection.policy](space), space


def play_episode(collection: Collection, index: int) -> PackedEpisode:
    """Play episode `index`: a function of the collection's recipe, its seed and the index alone. Runs in a worker."""
    env, agent, space = _set_up(collection)
    seed = episode_seed("train", collection.seed, "collect", index)
    played = record(agent, env, Job(index, seed), space.column, collection.max_steps)
    return Episode(
        index, seed, played.frames, played.actions, played.rewards, played.labels, played.terminated, played.truncated
    ).pack()


def _describe(session: Session, settings: CollectSettings) -> tuple[Collection, dict[str, Any], EnvSpec]:
    """The collection and the dataset's recipe. Builds the environment once, which checks that it can be built."""
    recipe = EnvRecipe(session.env, settings.size, settings.gray, settings.actions, settings.render)
    spec = recipe.spec()
    env = recipe.make(labelled=True)
    space = ActionSpace.of(env.action_space)
    policy = pick_policy(settings.policy, space)
    player = find_player(session) if policy == "controller" else None
    if policy == "brownian":
        BLIND[policy](space)
    env.reset(seed=0)
    described = {
        "env": asdict(recipe),
        "env_id": spec.env_id,
        "crop": None,
        "frame_skip": 4 if spec.env_id.startswith("ALE/") else 1,
        "action_space": space.as_json(),
        "labels": list(env.label_names),
        "policy": policy if player is None else f"controller {player.fingerprint[:16]}",
        "max_steps": settings.max_steps,
        "seed": session.seed,
        "packages": _packages(spec),
    }
    env.close()
    return Collection(recipe, policy, session.seed, settings.max_steps, player), described, spec


def _packages(spec: EnvSpec) -> dict[str, str]:
    from importlib.metadata import version

    names = ["gymnasium", "ale-py"] if spec.env_id.startswith("ALE/") else ["gymnasium"]
    return {name: version(name) for name in names}


def _expected_bytes(spec: EnvSpec, settings: CollectSettings, collection: Collection, episodes: int) -> tuple[int, int]:
    """(bytes, rows) that `episodes` more will take: from the catalogue, or from a short probe of an unknown one."""
    per_frame, rows = spec.bytes_per_frame, spec.rows_per_episode
    if per_frame is None:
        probe = Collection(collection.env, collection.policy, collection.seed, PROBE_STEPS, collection.player)
        played = play_episode(probe, 0)
        per_frame = (len(played.packed) + played.rows * 16) / played.rows * (64 / settings.size) ** 2
        rows = played.rows if played.rows < PROBE_STEPS else spec.rows_per_episode
    if settings.max_steps:
        rows = min(rows, settings.max_steps + 1)
    scale = (settings.size / 64) ** 2 * (0.6 if settings.gray else 1.0)
    return int(per_frame * scale * rows * episodes * MARGIN) + 20_000, rows * episodes


def plan(session: Session, settings: CollectSettings) -> Plan:
    """What `collect` would do, with the time of a short probe."""
    collection, described, spec = _describe(session, settings)
    have = _episodes_at(session.data_path, described)
    missing = max(settings.episodes - have, 0)
    size, rows = _expected_bytes(spec, settings, collection, missing)
    probe = Collection(collection.env, collection.policy, collection.seed, PROBE_STEPS, collection.player)
    play_episode(probe, 0)
    began = time.monotonic()
    played = play_episode(probe, 1)
    rate = played.rows / (time.monotonic() - began) * min(session.open_workers().count, missing or 1)
    row = settings.size**2 * (1 if settings.gray else 3)
    return Plan(
        "collect",
        session.data_path,
        f"{missing} episodes to play, {have} there" if missing else f"up to date with {have} episodes",
        size if missing else 0,
        250_000_000 + 3 * 8192 * row,
        (rows / rate, rows / rate),
    )


def _episodes_at(path: Path, recipe: dict[str, Any]) -> int:
    if not path.exists():
        return 0
    if not (path / manifest.NAME).is_file():
        raise UsageProblem(f"{path} exists and is not a dataset; give another place with --data.")
    dataset = Dataset.open(path)
    return dataset.episodes if fingerprint_of(dataset.recipe) == fingerprint_of(recipe) else 0


def collect(session: Session, settings: CollectSettings) -> Result:
    """Play what is missing and commit it part by part. Raises DiskProblem before anything is written, or when the
    budget is reached, with everything committed so far usable."""
    began = time.monotonic()
    path = session.data_path
    collection, recipe, spec = _describe(session, settings)
    there = _episodes_at(path, recipe)
    if there < settings.episodes:
        need, _ = _expected_bytes(spec, settings, collection, settings.episodes - there)
        used = durable.folder_size(path) if there else 0
        session.budget(path).require(need, used, f"collecting {settings.episodes - there} episodes of {session.env}")
    with locks.exclusive(path):
        _make_room(path, recipe, session)
        have = Dataset.open(path).episodes if path.exists() else 0
        if have >= settings.episodes:
            return _result(path, settings.episodes, "up to date")
        if not path.exists():
            create(path, recipe)
        with session.open_workers() as workers, Writer(path, recipe) as writer:
            _play_missing(session, settings, collection, workers, writer)
        durable.append_line(path / PROVENANCE, json.dumps({"episodes": settings.episodes, **session.provenance(began)}))
    return _result(path, settings.episodes, "resumed" if have else "made")


def _make_room(path: Path, recipe: dict[str, Any], session: Session) -> None:
    """Archive a dataset of another recipe, or refuse; bring the wanted one back if the archive has it."""
    wanted = fingerprint_of(recipe)
    archive = path.parent / "archive"
    if path.exists():
        old = Dataset.open(path).recipe
        if fingerprint_of(old) == wanted:
            return
        why = ", ".join(differences({"settings": old}, {"settings": recipe}))
        if session.keep_current:
            raise RecipeMismatch(
                f"{path} was collected by another recipe ({why}) and --keep-current is given; "
                "drop the option to archive it, or give another place with --data."
            )
        durable.make_folder(archive)
        aside = archive / f"{path.stem}-{fingerprint_of(old)[:8]}.zarr"
        console.say(f"episodes: {why}; the old ones move to {aside}")
        os.rename(path, aside)
    archived = archive / f"{path.stem}-{wanted[:8]}.zarr"
    if archived.exists():
        console.say(f"episodes: found in the archive, moved back from {archived}")
        os.rename(archived, path)


def _play_missing(
    session: Session, settings: CollectSettings, collection: Collection, workers: Workers, writer: Writer
) -> None:
    first = writer.next
    indices = range(first, settings.episodes)
    budget = session.budget(writer.path)
    ready: dict[int, PackedEpisode] = {}
    rows = 0
    # Workers keep `ahead` episodes under way; those that finish early wait here, compressed, for their turn.
    tasks = [(collection, index) for index in indices]
    with console.progress(f"collect {session.env}", settings.episodes, "episodes", first) as progress:
        began = time.monotonic()
        for number, episode in workers.map(play_episode, tasks):
            ready[first + number] = episode
            rows += episode.rows
            while writer.next in ready:
                if writer.add(ready.pop(writer.next)):
                    _check_budget(budget.available(durable.folder_size(writer.path)), writer)
            speed = f"{rows / (time.monotonic() - began):,.0f}/s"
            progress.update(writer.next + len(ready), frames=speed)


def _check_budget(available: int, writer: Writer) -> None:
    if available < 0:
        raise DiskProblem(
            f"the disk budget at {writer.path} is used up after {writer.committed} episodes, which are kept; "
            "free some space or raise --disk-budget, and run the same command again."
        )


def _seconds(path: Path) -> float:
    """What all goes of collecting took that came to an end."""
    try:
        lines = (path / PROVENANCE).read_text(encoding="utf-8").splitlines()
        return float(sum(json.loads(line)["wall_seconds"] for line in lines))
    except (OSError, ValueError, KeyError):
        return 0.0


def _result(path: Path, episodes: int, status: str) -> Result:
    dataset = Dataset.open(path)
    used = Dataset.open(path, min(episodes, dataset.episodes))
    size = sum(durable.folder_size(part.folder) for part in dataset.parts)
    rows = sum(part.rows for part in dataset.parts)
    metrics = {
        "episodes": used.episodes,
        "rows": used.rows,
        "mean_return": float(used.table["return"].mean()),
        "bytes": size,
        "bytes_per_frame": round(size / rows, 1),
    }
    summary = (
        f"{used.episodes} episodes, {used.rows:,} frames, mean return {metrics['mean_return']:.1f}, "
        f"{size / 1e6:.2f} MB ({metrics['bytes_per_frame']} bytes a frame)"
    )
    return Result("collect", status, path, used.fingerprint, metrics, summary, _seconds(path))
