"""One self-contained HTML page about a dataset: no script, font or picture is loaded from anywhere."""

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from wm.episodes.schema import Episode

Frames = NDArray[np.uint8]
STRIP = 12  # frames of the film strip
PAGE_FRAMES = 12_000  # of all players: twelve episodes of 1,000 frames are 1.4 MB of Pong, 15 MB of CarRacing
LEAST_FRAMES = 96  # of a player, however many episodes a page has
MOST_FRAMES = 4096  # of a player: a square sheet, which every browser takes up to 16,384 pixels a side
COLUMNS = 64  # of that sheet


@dataclass(frozen=True)
class EpisodeCard:
    """An episode on the page; `ending` is terminated or truncated."""

    index: int
    seed: int
    frames: Frames
    rewards: NDArray[np.float32]
    ending: str

    @classmethod
    def of(cls, episode: Episode) -> "EpisodeCard":
        """The card owns its arrays: the part's may be replaced."""
        ending = "terminated" if episode.terminated else "truncated"
        return cls(episode.index, episode.seed, episode.frames.copy(), episode.rewards.copy(), ending)

    @property
    def total(self) -> float:
        """The return."""
        return float(self.rewards.sum(dtype=np.float64))


def _png(frames: Frames, gap: int = 0) -> str:
    """Frames side by side, `gap` transparent pixels between them, as a data address."""
    colored = np.repeat(frames, 3, axis=-1) if frames.shape[-1] == 1 else frames
    if gap:
        colored = np.pad(colored, ((0, 0), (0, 0), (0, gap), (0, 1)))
        colored[:, :, : frames.shape[2], 3] = 255
    return _address(np.concatenate(list(colored), axis=1))


def _sheet(frames: Frames) -> str:
    """Frames in rows of `COLUMNS`, black after the last one, as a data address."""
    colored = np.repeat(frames, 3, axis=-1) if frames.shape[-1] == 1 else frames
    missing = -len(frames) % COLUMNS
    rows = np.pad(colored, ((0, missing), (0, 0), (0, 0), (0, 0))).reshape(-1, COLUMNS, *colored.shape[1:])
    count, _, height, width, channels = rows.shape
    return _address(rows.transpose(0, 2, 1, 3, 4).reshape(count * height, COLUMNS * width, channels))


def _address(pixels: Frames) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _spread(count: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _trace(rewards: NDArray[np.float32], title: str) -> str:
    """Rewards as bars, their running sum as a line, over the steps; as SVG."""
    steps, wide, tall = max(len(rewards) - 1, 1), 600, 90
    running = np.concatenate([[0.0], np.cumsum(rewards[:-1], dtype=np.float64)])
    low, high = min(running.min(), 0.0), max(running.max(), 0.0)
    span = (high - low) or 1.0

    def y(value: float) -> float:
        return 5 + (tall - 10) * (high - value) / span

    kept = _spread(len(running), 600)
    line = " ".join(f"{wide * k / steps:.1f},{y(running[k]):.1f}" for k in kept)
    largest = float(np.abs(rewards).max()) or 1.0
    busy = np.flatnonzero(np.abs(rewards[:-1]) > 0.25 * largest)
    busy = busy[_spread(len(busy), 300)] if len(busy) else busy
    bars = "".join(
        f'<line x1="{wide * k / steps:.1f}" x2="{wide * k / steps:.1f}" y1="{y(0):.1f}" '
        f'y2="{np.clip(y(0) - rewards[k] / largest * 30, 2, tall - 2):.1f}"/>'
        for k in busy
    )
    return (
        f'<svg viewBox="0 0 {wide} {tall}" preserveAspectRatio="none" role="img" aria-label="{html.escape(title)}">'
        f'<line class="zero" x1="0" x2="{wide}" y1="{y(0):.1f}" y2="{y(0):.1f}"/><g class="bars">{bars}</g>'
        f'<polyline points="{line}"/><line class="now" x1="0" x2="0" y1="0" y2="{tall}"/></svg>'
        f'<div class="scale"><span>{high:.1f}</span><span>{low:.1f}</span></div>'
    )


def _card(card: EpisodeCard, most: int) -> str:
    count = len(card.frames)
    played = min(count, most)
    bound = f" · plays the first {played:,} of {count:,} frames" if played < count else ""
    title = f"episode {card.index}: return {card.total:.2f} in {count - 1} steps"
    strip = card.frames[_spread(count, STRIP)]
    ending, seed = html.escape(card.ending), html.escape(str(card.seed))
    return f"""<section data-return="{card.total:.6f}" data-length="{count - 1}" data-index="{card.index}">
<h2>Episode {card.index}</h2>
<p><b>{card.total:.2f}</b> return · {count - 1} steps · {ending} · seed {seed}{bound}</p>
<img class="strip" src="{_png(strip, gap=2)}" alt="film strip of {html.escape(title)}">
<div class="play">
<div class="screen" data-last="{count - 1}" style="background-image:url({_sheet(card.frames[:played])});
background-size:{COLUMNS * 192}px {-(-played // COLUMNS) * 192}px"></div>
<div class="trace">{_trace(card.rewards, title)}
<input type="range" min="0" max="{played - 1}" value="0" aria-label="frame of episode {card.index}">
<output>step 0 of {count - 1}</output></div></div></section>"""


def episodes_page(title: str, facts: Sequence[tuple[str, str]], cards: Sequence[EpisodeCard], of: int) -> bytes:
    """The page: facts about the dataset, and a card for every selected one of its `of` episodes."""
    rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts)
    note = f"{len(cards)} of {of} episodes" if len(cards) < of else f"all {of} episodes"
    most = min(max(PAGE_FRAMES // max(len(cards), 1), LEAST_FRAMES), MOST_FRAMES)
    note += f", up to {most:,} frames of each, every frame in order"
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{html.escape(title)}</h1><table>{rows}</table>
<p class="sort">{note}; by <button data-by="index">number</button> <button data-by="return">return</button>
<button data-by="length">length</button></p>
<main>{"".join(_card(card, most) for card in cards)}</main><script>{_SCRIPT}</script></body></html>
"""
    return page.encode(errors="xmlcharrefreplace")


_STYLE = """
:root{--paper:#fafaf8;--ink:#282828;--line:#d9d9d2;--accent:#2f6f9f;--soft:#b8863b}
@media(prefers-color-scheme:dark){:root{--paper:#191a1b;--ink:#e6e6e2;--line:#3a3b3d;--accent:#6fb1e0;--soft:#d9a75a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;
padding:0 1rem}h1{font-size:1.5rem}h2{font-size:1.05rem;margin:0}section{border-top:1px solid var(--line);
padding:1rem 0}p{margin:.2rem 0 .6rem}table{border-collapse:collapse;margin:1rem 0}
th{text-align:left;font-weight:500;padding:.1rem 1.2rem .1rem 0;opacity:.7;vertical-align:top}
td{overflow-wrap:anywhere}
.strip,.screen{image-rendering:pixelated}.strip{width:100%;display:block;border-radius:3px}
.play{display:flex;gap:1rem;margin-top:.6rem;flex-wrap:wrap}.screen{width:192px;height:192px;border-radius:3px;
flex:none}.trace{flex:1;min-width:16rem;position:relative;padding-right:3.4rem}svg{width:100%;height:120px;background:none;
border-bottom:1px solid var(--line)}svg polyline{fill:none;stroke:var(--accent);stroke-width:2;
vector-effect:non-scaling-stroke}.zero{stroke:var(--line)}.bars line{stroke:var(--soft);opacity:.6}
.now{stroke:var(--ink);vector-effect:non-scaling-stroke}.scale{position:absolute;right:0;top:0;height:120px;
display:flex;flex-direction:column;justify-content:space-between;font-size:.75rem;opacity:.6}
input{width:100%}output{font-size:.85rem;opacity:.8}button{font:inherit;color:inherit;background:none;
border:1px solid var(--line);border-radius:3px;cursor:pointer}
"""

_SCRIPT = """
for (const section of document.querySelectorAll('section')) {
  const screen = section.querySelector('.screen'), slider = section.querySelector('input');
  const last = Number(screen.dataset.last), frames = Number(slider.max) + 1, columns = COLUMNS;
  const now = section.querySelector('.now'), label = section.querySelector('output');
  const show = () => {
    const k = Number(slider.value);
    screen.style.backgroundPosition = `${-192 * (k % columns)}px ${-192 * Math.floor(k / columns)}px`;
    now.setAttribute('x1', 600 * k / last); now.setAttribute('x2', 600 * k / last);
    label.textContent = `step ${k} of ${last}`;
  };
  slider.addEventListener('input', show);
  let timer = null;
  screen.title = 'click to play'; screen.style.cursor = 'pointer';
  screen.addEventListener('click', () => {
    if (timer) { clearInterval(timer); timer = null; return; }
    timer = setInterval(() => { slider.value = (Number(slider.value) + 1) % frames; show(); }, 80);
  });
  show();
}
for (const button of document.querySelectorAll('button')) button.addEventListener('click', () => {
  const by = button.dataset.by, sign = by === 'index' ? 1 : -1, main = document.querySelector('main');
  [...main.children].sort((a, b) => sign * (a.dataset[by] - b.dataset[by])).forEach(s => main.append(s));
});
document.body.dataset.ready = document.querySelectorAll('section').length;
""".replace("COLUMNS", str(COLUMNS))
