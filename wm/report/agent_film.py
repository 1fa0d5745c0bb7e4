"""Films of an agent's test episodes: as an artifact, and as players on a page. wm/report/filming.py records them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wm.actions import ActionSpace
from wm.artifacts import durable, json_reader, manifest, schemas
from wm.artifacts.json_reader import COUNT, FLAG, INTEGER, NUMBER, TEXT, Mismatch, between, list_of, one_of, table
from wm.artifacts.runs import Artifact
from wm.errors import BadData
from wm.report.page.player import Played, Reel, Screen, action_track, reward_track

FILMS = "films.json"
FILM = "film"  # the name of the artifact, and its kind
LARGEST = 8_000_000  # bytes of one of its files
_MOST = 1000  # frames, words and dimensions in a file that anyone may have written
_FILM = table(
    {
        "name": one_of("median", "worst"),
        "episode": COUNT,
        "seed": INTEGER,
        "episode_return": NUMBER,
        "length": COUNT,
        "terminated": FLAG,
        "every": between(1, _MOST),
        "rate": between(1, _MOST),
        **dict.fromkeys(("width", "height", "side", "columns"), between(1, 8192)),
        "sizes": list_of(COUNT),
        "parts": list_of(TEXT),
        "space": schemas.action_space,
        "action_names": list_of(TEXT),
        "actions": list_of(json_reader.ANYTHING),
        "rewards": list_of(NUMBER),
    }
)
_FILMS = list_of(_FILM)


@dataclass(frozen=True)
class Film:
    """A test episode of `length` actions: frame k is that of step `every` k. `screen` are WebP images one after another
    of these `sizes` in bytes, `width` x `height` pixels each. `beside` is a WebP sheet in rows of `columns` frames,
    each with one square of `side` pixels for each of `parts`. `actions` and `rewards` are those of every step up to the
    last frame, `rate` is the pace in steps a second."""

    name: str
    episode: int
    seed: int
    episode_return: float
    length: int
    terminated: bool
    every: int
    rate: int
    width: int
    height: int
    side: int
    columns: int
    sizes: list[int]
    parts: list[str]
    space: dict[str, Any]
    action_names: list[str]
    actions: list[Any]
    rewards: list[float]
    screen: bytes
    beside: bytes

    @property
    def last_step(self) -> int:
        """The step of the last frame."""
        return self.every * (len(self.sizes) - 1)

    def first(self, size: int) -> "Film":
        """Its first frames, as many as fit into so many bytes of `screen`; one at least."""
        count = max(int(np.searchsorted(np.cumsum(self.sizes), size, side="right")), 1)
        if count >= len(self.sizes):
            return self
        last_step = self.every * (count - 1)
        actions, rewards = self.actions[:last_step], self.rewards[:last_step]
        sizes = self.sizes[:count]
        return replace(self, sizes=sizes, screen=self.screen[: sum(sizes)], actions=actions, rewards=rewards)

    def describe(self) -> str:
        """What it shows, in a sentence."""
        ending = "terminated" if self.terminated else "truncated"
        part = "all" if self.last_step + self.every > self.length else f"the first {self.last_step:,}"
        every = "" if self.every == 1 else ", every second frame"
        return (
            f"Test episode {self.episode} (seed {self.seed}): return {self.episode_return:.1f} in {self.length:,} "
            f"steps, {ending}. The film shows {part} of them{every}."
        )

    def played(self) -> Played:
        """What a player shows of it."""
        screens = [Screen("the screen", large=True)]
        screens += [Screen(label, 1, number, len(self.parts)) for number, label in enumerate(self.parts)]
        reels = [Reel.of_joined(self.screen, self.sizes, self.width, self.height)]
        if self.parts:
            width = self.side * len(self.parts)
            reels.append(Reel.of_image(self.beside, "webp", width, self.side, self.columns))
        space = ActionSpace.from_json(self.space)
        tracks = [reward_track(self.rewards), action_track(np.array(self.actions), space, self.action_names)]
        title = f"the {self.name} test episode"
        return Played(title, screens, reels, len(self.sizes), self.length, tracks, self.rate, self.every)


def scored_episodes(evaluation: Artifact) -> tuple[list[float], int]:
    """The returns of the test episodes, and the limit in actions that was asked for (0: none). Raises BadData for an
    evaluation without them."""
    source = str(evaluation.folder / manifest.NAME)
    json_reader.validate(evaluation.metrics, source, table({"returns": list_of(NUMBER)}, others=json_reader.ANYTHING))
    json_reader.validate(evaluation.settings, source, table({}, {"max_steps": COUNT}, others=json_reader.ANYTHING))
    returns: list[float] = evaluation.metrics["returns"]
    if not returns:
        raise BadData(f"{source}: metrics.returns is empty; run `wm evaluate` again.")
    return returns, evaluation.settings.get("max_steps", 0)


def choose_episodes(returns: Sequence[float]) -> dict[str, int]:
    """The number of the episode with the median return (the lower one of two) and of that with the worst."""
    order = np.argsort(returns, kind="stable")
    # The lower of two medians, so that it is an episode that was played.
    return {"median": int(order[(len(order) - 1) // 2]), "worst": int(order[0])}


def difference(film: Film, recorded: float) -> str:
    """Why a film is none of the episode that was scored, in a sentence; empty if it is."""
    # A millionth: a return of thousands of rewards is rounded in its last digits.
    if math.isclose(film.episode_return, recorded, rel_tol=1e-6, abs_tol=1e-6):
        return ""
    return (
        f"test episode {film.episode} returned {recorded:g} when it was scored and {film.episode_return:g} when it was "
        "played again, so this machine plays another episode; run `wm evaluate` again"
    )


def save_films(folder: Path, films: Sequence[Film]) -> None:
    """Write films into the folder of an artifact."""
    described = []
    for film in films:
        fields = asdict(film)
        for part in ("screen", "beside"):
            durable.write_bytes(folder / f"{film.name}.{part}", fields.pop(part))
        described.append(fields)
    durable.write_json(folder / FILMS, described)


def read_films(artifact: Artifact) -> list[Film]:
    """The films of an artifact. Raises BadData naming what is wrong."""
    source, way_out = str(artifact.folder / FILMS), f"remove {artifact.folder} and run `wm report` again"
    described = artifact.read_json(FILMS, _films, way_out)
    films = []
    for fields in described:
        screen, beside = (artifact.read_bytes(f"{fields['name']}.{part}", LARGEST) for part in ("screen", "beside"))
        if sum(fields["sizes"]) != len(screen):
            raise BadData(f"{source}: sizes add up to {sum(fields['sizes'])}; expected {len(screen)}, so {way_out}.")
        films.append(Film(**fields, screen=screen, beside=beside))
    return films


def _films(value: Any, key: str) -> None:
    _FILMS(value, key)
    for number, film in enumerate(value):
        _film(film, f"{number}")


def _film(film: Mapping[str, Any], key: str) -> None:
    """That what belongs together has the same length."""
    frames = len(film["sizes"])
    if not 0 < frames <= _MOST:
        raise Mismatch(f"{key}.sizes", f"of {frames} frames", f"1 to {_MOST}")
    last_step = film["every"] * (frames - 1)
    for name in ("actions", "rewards"):
        if len(film[name]) != last_step:
            raise Mismatch(f"{key}.{name}", f"of {len(film[name])} steps", f"{last_step}, up to the last frame")
    space = film["space"]
    action = between(0, max(space["count"] - 1, 0)) if space["count"] else list_of(NUMBER, len(space["low"]))
    list_of(action)(film["actions"], f"{key}.actions")
    if len(film["parts"]) > _MOST or len(film["action_names"]) > max(space["count"], len(space["low"])):
        raise Mismatch(f"{key}.action_names", f"{len(film['action_names'])} names", "one for each action at most")
