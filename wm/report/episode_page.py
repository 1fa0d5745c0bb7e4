"""One self-contained HTML page about a dataset: no script, font or picture is loaded from anywhere."""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.episodes.schema import Episode
from wm.report.characters import visible
from wm.report.page import resources
from wm.report.page.player import Line, Played, Reel, Screen, Track, action_track, encode, player_html, reward_track
from wm.report.play.controls import action_names

Frames = NDArray[np.uint8]
STRIP = 12  # frames of the film strip
PAGE_FRAMES = 12_000  # of all players: twelve episodes of 1,000 frames are 1.4 MB of Pong, 15 MB of CarRacing
LEAST_FRAMES = 96  # of a player, however many episodes a page has
MOST_FRAMES = 4096  # of a player: a square sheet, which every browser takes up to 16,384 pixels a side
COLUMNS = 64  # of that sheet


@dataclass(frozen=True)
class EpisodeCard:
    """An episode on the page, or a replay's piece of one; `ending` is terminated, truncated, or that it goes on."""

    index: int
    seed: int
    frames: Frames
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    labels: NDArray[np.float32]
    ending: str

    @classmethod
    def of(cls, episode: Episode) -> "EpisodeCard":
        """The card owns its arrays: the part's may be replaced."""
        goes_on = "truncated" if episode.truncated else "its episode goes on"
        ending = "terminated" if episode.terminated else goes_on
        return cls(
            episode.index,
            episode.seed,
            # Copies: the arrays are views of a part, all of whose frames would stay in memory.
            episode.frames.copy(),
            episode.actions.copy(),
            episode.rewards.copy(),
            episode.labels.copy(),
            ending,
        )

    @property
    def total(self) -> float:
        """The return."""
        # float64, so that the sum on the page is that of the dataset's table.
        return float(self.rewards.sum(dtype=np.float64))


@dataclass(frozen=True)
class DatasetPage:
    """What a page says of the dataset: a title, facts, and how its actions, labels and episodes are called."""

    title: str
    facts: Sequence[tuple[str, str]]
    env: str
    space: ActionSpace
    labels: Sequence[str]
    episodes: int
    unit: str = "episode"

    def render(self, cards: Sequence[EpisodeCard]) -> bytes:
        """The page, with a card for every selected episode."""
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in self.facts
        )
        shown = f"{len(cards)} of {self.episodes}" if len(cards) < self.episodes else f"All {len(cards)}"
        note = f"{shown} {self.unit}s"
        most = min(max(PAGE_FRAMES // max(len(cards), 1), LEAST_FRAMES), MOST_FRAMES)
        note += f", up to {most:,} frames of each, every frame in order"
        title = html.escape(self.title)
        page = f"""{resources.head(title, "base.css player.css episodes.css")}<body>
<h1>{title}</h1><table>{rows}</table>
<p class="sort">{note}. Sort by <button data-by="index">number</button> <button data-by="return">return</button>
<button data-by="length">length</button></p>
<p>Click a picture to play it. Keys: space, arrows, Home, End; + and − for the speed.</p>
<main>{"".join(self._card(card, most) for card in cards)}</main>
{resources.scripts("player.js episodes.js")}</body></html>
"""
        return visible(page).encode(errors="xmlcharrefreplace")

    def _card(self, card: EpisodeCard, most: int) -> str:
        count = len(card.frames)
        played = min(count, most)
        bound = f" · plays the first {played:,} of {count:,} frames" if played < count else ""
        title = f"{self.unit} {card.index}: return {card.total:.2f} in {count - 1} steps"
        strip = _strip(card.frames[np.unique(np.linspace(0, count - 1, min(count, STRIP)).round().astype(np.int64))])
        ending, seed = html.escape(card.ending), html.escape(str(card.seed))
        return f"""<section data-return="{card.total:.6f}" data-length="{count - 1}" data-index="{card.index}">
<h2>{self.unit.capitalize()} {card.index}</h2>
<p><b>{card.total:.2f}</b> return · {count - 1} steps · {ending} · seed {seed}{bound}</p>
<img class="film" src="{strip}" alt="film strip of {html.escape(title)}">
{player_html(self._player(card, title, played))}</section>"""

    def _player(self, card: EpisodeCard, title: str, count: int) -> Played:
        """The first `count` frames; the last row's action and reward are none."""
        steps = min(count, len(card.frames) - 1)
        tracks = [
            reward_track(card.rewards[:steps]),
            action_track(card.actions[:steps], self.space, action_names(self.env, self.space)),
        ]
        if self.labels:
            columns = card.labels[:count].T
            lines = [Line(name, column) for name, column in zip(self.labels, columns, strict=True)]
            # Pixels of a track of several lines.
            tracks.append(Track(lines, height=56))
        screens = [Screen("what V sees")]
        reel = Reel.of_frames(card.frames[:count], COLUMNS)
        return Played(title, screens, [reel], count, len(card.frames) - 1, tracks)


def _strip(frames: Frames, gap: int = 2) -> str:
    """Frames side by side, `gap` transparent pixels between them, as a data address."""
    colored = np.repeat(frames, 3, axis=-1) if frames.shape[-1] == 1 else frames
    colored = np.pad(colored, ((0, 0), (0, 0), (0, gap), (0, 1)))
    # Opaque where a frame is, transparent in the gaps.
    colored[:, :, : frames.shape[2], 3] = 255
    image = encode(np.concatenate(list(colored), axis=1), "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"
