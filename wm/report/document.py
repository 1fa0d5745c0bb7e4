"""A document of headings, paragraphs, tables and pictures, written as one self-contained HTML page or as Markdown."""

import base64
import html
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from wm.artifacts import durable
from wm.report.plots import COLOURS

EMBEDDED = 10_500_000  # bytes of pictures in a page, which base64 makes a third larger; the others are linked
_KINDS = {".png": "image/png", ".gif": "image/gif"}


@dataclass(frozen=True)
class Heading:
    """`level` 2 begins a chapter, 3 a section."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Text; `strong` is set apart at its beginning."""

    text: str
    strong: str = ""


@dataclass(frozen=True)
class Table:
    """Cells as text; columns after the first are numbers unless `words`."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: bool = False


@dataclass(frozen=True)
class Chart:
    """An SVG; Markdown leaves it out."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Picture:
    """A PNG or GIF on disk, `alt` for those who cannot see it."""

    path: Path
    alt: str
    caption: str


@dataclass(frozen=True)
class Link:
    """A page on disk, and what is found there."""

    path: Path
    text: str


@dataclass(frozen=True)
class Commands:
    """Command lines, as they were typed."""

    lines: Sequence[str]


Block = Heading | Paragraph | Table | Chart | Picture | Link | Commands


def anchor(text: str) -> str:
    """The name by which a heading is linked."""
    return "".join(c if c.isalnum() else "-" for c in text.lower())


def to_html(title: str, blocks: Sequence[Block], folder: Path) -> bytes:
    """The page. It loads nothing; pictures that would make it too large are linked, relative to `folder`."""
    body: list[str] = []
    room = EMBEDDED
    figures: list[str] = []

    def flush() -> None:
        if figures:
            body.append(f'<div class="figures">{"".join(figures)}</div>')
            figures.clear()

    for block in blocks:
        if isinstance(block, Chart):
            if block.svg:
                figures.append(f"<figure>{block.svg}<figcaption>{html.escape(block.caption)}</figcaption></figure>")
            continue
        if isinstance(block, Picture):
            data = durable.read_bytes(block.path)
            room -= len(data)
            picture = _picture(block, data if room >= 0 else None, folder)
            if block.path.suffix == ".gif":  # in the grid of charts; a strip has the page's width
                figures.append(picture)
            else:
                flush()
                body.append(picture)
            continue
        flush()
        body.append(_html_block(block, folder))
    flush()
    chapters = [block.text for block in blocks if isinstance(block, Heading) and block.level == 2]
    links = " · ".join(f'<a href="#{anchor(text)}">{html.escape(text)}</a>' for text in chapters)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{html.escape(title)}</h1><nav>{links}</nav>
{"".join(body)}
</body></html>
"""
    return page.encode(errors="xmlcharrefreplace")  # names of files may have bytes that are no UTF-8


def to_markdown(title: str, blocks: Sequence[Block], folder: Path) -> bytes:
    """Headings, paragraphs, tables and commands; pictures are linked, relative to `folder`."""
    parts = [f"# {_markdown(title)}"]
    for block in blocks:
        match block:
            case Heading(level, text):
                parts.append(f"{'#' * level} {_markdown(text)}")
            case Paragraph(text, strong):
                parts.append(f"**{_markdown(strong)}** {_markdown(text)}" if strong else _markdown(text))
            case Table(header, rows, words):
                rule = ["---"] + ["---" if words else "---:"] * (len(header) - 1)
                lines = [list(map(_markdown, header)), rule, *[list(map(_markdown, row)) for row in rows]]
                parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
            case Picture(path, alt, caption):
                parts.append(f"![{_markdown(alt)}]({_address(path, folder)})\n\n{_markdown(caption)}")
            case Link(path, text):
                parts.append(f"[{_markdown(text)}]({_address(path, folder)})")
            case Commands(lines):
                parts.append(_fenced("\n".join(lines)))
            case Chart():
                pass
    return ("\n\n".join(parts) + "\n").encode(errors="backslashreplace")


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is: no HTML, link, emphasis, cell, heading or list begins in it."""
    line = re.sub(r"([\\`*\[\]|]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split("\n")).replace("\r", " "))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"^(\s*)([#=~]|[-+](?=[-+\s]|$)|\d+(?=[.)](?:\s|$)))", _escape_first, line)


def _escape_first(match: re.Match[str]) -> str:
    """The beginning of a line without its meaning: `\\# text`; a number is no list without its full stop."""
    space, first = match.groups()
    return f"{space}\\{first}" if not first[0].isdigit() else f"{space}{first}\\"


def _fenced(text: str) -> str:
    """Commands as a block of code, whose fence is longer than any in them."""
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 3)
    return f"{fence}sh\n{text}\n{fence}"


def _html_block(block: Heading | Paragraph | Table | Link | Commands, folder: Path) -> str:
    match block:
        case Heading(level, text):
            return f'<h{level} id="{anchor(text)}">{html.escape(text)}</h{level}>'
        case Paragraph(text, strong):
            lead = f"<b>{html.escape(strong)}</b> " if strong else ""
            return f"<p>{lead}{html.escape(text)}</p>"
        case Table(header, rows, words):
            head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
            lines = "".join(
                f"<tr><th>{html.escape(row[0])}</th>"
                + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
                + "</tr>"
                for row in rows
            )
            body = f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody>"
            return f'<div class="wide"><table class="{"words" if words else "numbers"}">{body}</table></div>'
        case Link(path, text):
            return f'<p><a href="{html.escape(_address(path, folder))}">{html.escape(text)}</a></p>'
        case Commands(lines):
            return f"<pre>{html.escape(chr(10).join(lines))}</pre>"


def _picture(block: Picture, data: bytes | None, folder: Path) -> str:
    source = html.escape(_address(block.path, folder))
    if data is not None:
        source = f"data:{_KINDS[block.path.suffix]};base64,{base64.b64encode(data).decode()}"
    alt = html.escape(block.alt, quote=True)
    return f'<figure><img src="{source}" alt="{alt}"><figcaption>{html.escape(block.caption)}</figcaption></figure>'


def _address(path: Path, folder: Path) -> str:
    """A path as a link relative to `folder`; other characters than letters, digits and a few marks as %xx."""
    return quote(Path(os.path.relpath(path, folder)).as_posix(), errors="surrogateescape")


_LIGHT, _DARK = ("".join(f"--{name}:{pair[mode]};" for name, pair in COLOURS.items()) for mode in (0, 1))
_STYLE = (
    f":root{{color-scheme:light dark;{_LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    """
body{font:15px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:2rem auto;
padding:0 1rem}h1{font-size:1.6rem;margin-bottom:.3rem}h2{font-size:1.35rem;margin:2.6rem 0 .6rem;padding-top:1rem;
border-top:2px solid var(--line)}h3{font-size:1.05rem;margin:1.6rem 0 .4rem}p{margin:.4rem 0;max-width:46rem}
nav{margin:.2rem 0 1rem}a{color:var(--k0)}.wide{overflow-x:auto}table{border-collapse:collapse;margin:.6rem 0;
font-size:.93rem}th,td{padding:.22rem .9rem .22rem 0;text-align:left;vertical-align:top}thead th{color:var(--faint);
font-weight:500;border-bottom:1px solid var(--line);white-space:nowrap}tbody th{font-weight:500;white-space:nowrap}
tbody tr+tr>*{border-top:1px solid var(--line)}.numbers td{font-variant-numeric:tabular-nums;white-space:nowrap}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,24rem),1fr));gap:1rem;margin:.8rem 0}
figure{margin:.6rem 0;min-width:0}figure img{max-width:100%;height:auto;border-radius:4px;background:#fafaf8}
figcaption{color:var(--faint);font-size:.88rem}pre{background:var(--panel);padding:.7rem .9rem;border-radius:4px;
overflow-x:auto;font-size:.85rem;line-height:1.5}
.chart{width:100%;height:auto;display:block;font:11px system-ui,sans-serif}
"""
)
