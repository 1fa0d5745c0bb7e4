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
from wm.report.characters import visible
from wm.report.page import resources
from wm.report.page.player import Played, player_html

EMBEDDED = 4_500_000  # bytes of pictures in a page, which base64 makes a third larger; the others are linked
NARROW = 52  # characters in a line of a table on a phone, 400 pixels wide
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
class Player:
    """An episode that can be played; Markdown leaves it out."""

    played: Played


@dataclass(frozen=True)
class Link:
    """A page on disk, and what is found there."""

    path: Path
    text: str


@dataclass(frozen=True)
class Commands:
    """Command lines, as they were typed."""

    lines: Sequence[str]


Block = Heading | Paragraph | Table | Chart | Picture | Player | Link | Commands


def anchor(text: str) -> str:
    """The name by which a heading is linked."""
    return "".join(c if c.isalnum() else "-" for c in text.lower())


def to_html(title: str, blocks: Sequence[Block], folder: Path, made: str = "", refresh: int = 0) -> bytes:
    """The page. It loads nothing; pictures that would make it too large are linked, relative to `folder`. `made` says
    when it was made. It loads itself again every `refresh` seconds (0: never)."""
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
    name = html.escape(title)
    page = f"""{resources.head(name, "base.css document.css player.css")}
<body{f' data-refresh="{refresh}"' if refresh else ""}>
<nav>{_contents([block for block in blocks if isinstance(block, Heading)])}</nav>
<main><h1>{name}</h1><p class="made">{html.escape(made)}</p>
{"".join(body)}
</main>
{resources.scripts("player.js charts.js document.js")}</body></html>
"""
    return visible(page).encode(errors="xmlcharrefreplace")  # names of files may have bytes that are no UTF-8


def _contents(headings: Sequence[Heading]) -> str:
    """Links to chapters, and below each to its sections without the chapter's name."""
    chapters: list[tuple[str, list[str]]] = []
    for heading in headings:
        if heading.level == 2:
            chapters.append((heading.text, []))
        elif chapters:
            chapters[-1][1].append(heading.text)
    items = ""
    for chapter, sections in chapters:
        below = "".join(f"<li>{_jump(text, text.removeprefix(f'{chapter}: '))}</li>" for text in sections)
        items += f"<li>{_jump(chapter, chapter)}<ul>{below}</ul></li>"
    return f'<details class="contents" open><summary>Contents</summary><ul>{items}</ul></details>'


def _jump(heading: str, text: str) -> str:
    return f'<a href="#{anchor(heading)}">{html.escape(text)}</a>'


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
            case Chart() | Player():
                pass
    return (visible("\n\n".join(parts)) + "\n").encode(errors="backslashreplace")


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
    # Three are Markdown's least.
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 3)
    return f"{fence}sh\n{text}\n{fence}"


def _html_block(block: Heading | Paragraph | Table | Player | Link | Commands, folder: Path) -> str:
    match block:
        case Heading(level, text):
            return f'<h{level} id="{anchor(text)}">{html.escape(text)}</h{level}>'
        case Paragraph(text, strong):
            lead = f"<b>{html.escape(strong)}</b> " if strong else ""
            return f"<p>{lead}{html.escape(text)}</p>"
        case Table(header, rows, words):
            head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
            named = f' data-column="{html.escape(header[0], quote=True)}"' if header[0] else ""
            lines = "".join(
                f"<tr><th{named}>{html.escape(row[0])}</th>"
                + "".join(
                    f'<td data-column="{html.escape(column, quote=True)}">{html.escape(cell)}</td>'
                    for column, cell in zip(header[1:], row[1:], strict=True)
                )
                + "</tr>"
                for row in rows
            )
            body = f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody>"
            kind = "words" if words else "numbers narrow" if _is_narrow(header, rows) else "numbers"
            return f'<div class="wide"><table class="{kind}">{body}</table></div>'
        case Player(played):
            return player_html(played)
        case Link(path, text):
            return f'<p><a href="{html.escape(_address(path, folder))}">{html.escape(text)}</a></p>'
        case Commands(lines):
            return f"<pre>{html.escape(chr(10).join(lines))}</pre>"


def _is_narrow(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a table fits a phone as it is: the longest words of its columns, with a gap after each."""
    columns = zip(header, *rows, strict=True)
    return sum(1 + max(len(word) for cell in column for word in cell.split() or [""]) for column in columns) <= NARROW


def _picture(block: Picture, data: bytes | None, folder: Path) -> str:
    source = html.escape(_address(block.path, folder))
    if data is not None:
        source = f"data:{_KINDS[block.path.suffix]};base64,{base64.b64encode(data).decode()}"
    alt, caption = html.escape(block.alt, quote=True), html.escape(block.caption)
    kind = "moving" if block.path.suffix == ".gif" else "still"
    return f'<figure class="{kind}"><img src="{source}" alt="{alt}"><figcaption>{caption}</figcaption></figure>'


def _address(path: Path, folder: Path) -> str:
    """A path as a link relative to `folder`; other characters than letters, digits and a few marks as %xx."""
    return quote(Path(os.path.relpath(path, folder)).as_posix(), errors="surrogateescape")
