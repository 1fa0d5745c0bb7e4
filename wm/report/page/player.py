"""A player of episodes for pages: pictures, and what was done and earned at every step."""

import base64
import html
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from wm.actions import ActionSpace

Frames = NDArray[np.uint8]
_SPEEDS = (0.1, 0.25, 0.5, 1, 2, 4, 8)  # times the environment's pace, as in player.js
_COLOURS = 5  # of lines: the variables k0 to k4 of a page


@dataclass(frozen=True)
class Reel:
    """Numbered pictures of `width` x `height`: one image of them in rows of `columns` as a data address without its
    `data:image/`, or without `columns` WebP images one after another in base64, of these `sizes` in bytes."""

    data: str
    width: int
    height: int
    columns: int = 0
    sizes: Sequence[int] = ()

    @classmethod
    def of_joined(cls, images: bytes, sizes: Sequence[int], width: int, height: int) -> "Reel":
        """WebP images one after another, of these sizes."""
        return cls(base64.b64encode(images).decode(), width, height, sizes=sizes)

    @classmethod
    def of_image(cls, image: bytes, kind: str, width: int, height: int, columns: int) -> "Reel":
        """A sheet that is an image of this kind already: png or webp."""
        return cls(f"{kind};base64,{base64.b64encode(image).decode()}", width, height, columns)

    @classmethod
    def of_frames(cls, frames: Frames, columns: int) -> "Reel":
        """(N, H, W, C) frames, as one PNG."""
        image = encode(sheet(frames, columns), "PNG", optimize=True)
        return cls.of_image(image, "png", frames.shape[2], frames.shape[1], columns)


def sheet(frames: Frames, columns: int) -> Frames:
    """(N, H, W, C) frames in rows of `columns`, black after the last one."""
    colored = np.repeat(frames, 3, axis=-1) if frames.shape[-1] == 1 else frames
    missing = -len(frames) % columns
    rows = np.pad(colored, ((0, missing), (0, 0), (0, 0), (0, 0))).reshape(-1, columns, *colored.shape[1:])
    many, _, height, width, channels = rows.shape
    return rows.transpose(0, 2, 1, 3, 4).reshape(many * height, columns * width, channels)


def encode(pixels: Frames, kind: str, **options: Any) -> bytes:
    """An (H, W, 3) picture as an image file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


@dataclass(frozen=True)
class Screen:
    """A part of a reel's pictures that is shown with a label: the `part`-th of equal `parts` side by side. A large one
    stands first; small ones show their pixels."""

    label: str
    reel: int = 0
    part: int = 0
    parts: int = 1
    large: bool = False


@dataclass(frozen=True)
class Line:
    """A value for every step; with `words`, values are numbers of these. NaN is no value."""

    name: str
    values: Sequence[float] | NDArray[Any]
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Track:
    """Lines of one strip, `height` pixels high: `bars` are bars from zero and then lines, `lines` have each a range of
    its own."""

    lines: Sequence[Line]
    kind: str = "lines"
    height: int = 40


@dataclass(frozen=True)
class Played:
    """What a player shows. Frame k is that of step `every` k; `last` is the episode's last step, which may not be
    shown. `rate` is the environment's pace in steps a second."""

    title: str
    screens: Sequence[Screen]
    reels: Sequence[Reel]
    frames: int
    last: int
    tracks: Sequence[Track]
    # Steps a second where the environment names none.
    rate: float = 20.0
    every: int = 1
    first: int = field(default=0, init=False)


def reward_track(rewards: Sequence[float] | NDArray[Any]) -> Track:
    """Rewards as bars; the return before each step is written, not drawn."""
    before = np.concatenate([[0.0], np.cumsum(rewards, dtype=np.float64)])[: len(rewards)]
    return Track([Line("reward", rewards), Line("return so far", before)], "bars", 56)


def action_track(actions: NDArray[Any], space: ActionSpace, names: Sequence[str] = ()) -> Track:
    """Discrete actions (T,) as dashes in rows, one of a box (T, D) as lines; `names` are those of actions or of
    dimensions."""
    if space.discrete:
        words = [*names, *(str(number) for number in range(len(names), space.count))]
        return Track([Line("action", actions.tolist(), words)], height=min(8 * space.count, 64) + 8)
    columns = actions.reshape(len(actions), -1).T
    titles = names if len(names) == len(columns) else [f"action {number}" for number in range(len(columns))]
    return Track([Line(name, column) for name, column in zip(titles, columns, strict=True)], height=48)


def player_html(played: Played) -> str:
    """The section of a player; its script and style are those of the page."""
    tracks = _described(played.tracks)
    content = {
        "first": played.first,
        "every": played.every,
        "frames": played.frames,
        "last": played.last,
        "rate": played.rate,
        "tracks": tracks,
        "reels": [vars(reel) for reel in played.reels],
    }
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    title = html.escape(played.title, quote=True)
    large = "".join(_canvas(screen, played) for screen in played.screens if screen.large)
    small = "".join(_canvas(screen, played) for screen in played.screens if not screen.large)
    speeds = "".join(
        f'<option value="{speed}"{" selected" if speed == 1 else ""}>{speed:g}x</option>' for speed in _SPEEDS
    )
    height = sum(track.height for track in played.tracks)
    return f"""<section class="player" tabindex="0" aria-label="{title}">
<div class="screens">{large}<div class="beside">{small}</div></div>
<div class="bar"><button data-does="play">Play</button><button data-does="back" aria-label="a frame back">&lt;</button>
<button data-does="on" aria-label="a frame on">&gt;</button>
<input type="range" min="0" max="{played.frames - 1}" value="0" aria-label="frame of {title}">
<label>speed <select>{speeds}</select></label><output></output></div>
<canvas class="strip" style="height:{height}px" role="img" aria-label="rewards and actions of {title}"></canvas>
<dl class="values"></dl>
<script type="application/json">{text}</script></section>"""


def _canvas(screen: Screen, played: Played) -> str:
    reel, label = played.reels[screen.reel], html.escape(screen.label, quote=True)
    width = reel.width // screen.parts
    # Larger pictures are smoothed: their pixels are not what is to be seen.
    kind = "" if screen.large and width > 128 else "pixels"
    ratio = f"{width / reel.height:.3f}"
    place = f'data-reel="{screen.reel}" data-part="{screen.part}" role="img" aria-label="{label}"'
    canvas = f'<canvas class="{kind}" width="{width}" height="{reel.height}" {place}></canvas>'
    size = "large" if screen.large else "small"
    return f'<figure class="{size}" style="--ratio:{ratio}">{canvas}<figcaption>{label}</figcaption></figure>'


def _described(tracks: Sequence[Track]) -> list[dict[str, Any]]:
    number = count()
    return [
        {
            "kind": track.kind,
            "height": track.height,
            "lines": [
                {
                    "name": line.name,
                    "values": [_plain(value, bool(line.words)) for value in line.values],
                    "words": list(line.words) or None,
                    "colour": f"k{next(number) % _COLOURS}",
                }
                for line in track.lines
            ],
        }
        for track in tracks
    ]


def _plain(value: Any, word: bool) -> float | int | None:
    if word:
        return int(value)
    return float(f"{value:.5g}") if np.isfinite(value) else None
