import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from wm.report import document
from wm.report.document import Chart, Commands, Heading, Link, Paragraph, Picture, Table, to_html, to_markdown

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Outline(HTMLParser):
    """Every start tag with its attributes; complains about tags that do not close."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(page.decode())
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "line", "circle", "polyline"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "strip.png").write_bytes(PIXEL)
    return Picture(tmp_path / "run" / "strip.png", 'a "strip"', "The strip.")


def test_the_page_loads_nothing_and_every_picture_has_words(tmp_path: Path, picture: Picture) -> None:
    blocks = [
        Heading(2, "Pong"),
        Chart('<svg role="img" aria-label="x"></svg>', "A chart."),
        picture,
        Commands(["wm ls"]),
    ]
    page = to_html("Title", blocks, tmp_path)
    outline = Outline(page)
    assert not re.search(rb'(src|href)="(?!data:|#)', page)
    assert [attributes["alt"] for tag, attributes in outline.tags if tag == "img"] == ['a "strip"']
    assert b'href="#pong"' in page
    assert b'id="pong"' in page


def test_what_people_name_cannot_become_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    blocks = [Heading(2, evil), Paragraph(evil, evil), Table([evil], [[evil]]), Commands([evil])]
    page = to_html(evil, blocks, tmp_path)
    assert b"<script>alert" not in page
    assert page.count(b"<script") == to_html("t", [], tmp_path).count(b"<script")


def test_contents_list_chapters_and_their_sections_once(tmp_path: Path) -> None:
    blocks = [Heading(2, "Pong"), Heading(3, "Pong: <V>"), Heading(3, "Pong: M"), Heading(2, "Catch")]
    page = to_html("Title", blocks, tmp_path).decode()
    contents = page[page.index("<nav>") : page.index("</nav>")]
    assert re.findall(r'<a href="#([^"]+)">([^<]+)</a>', contents) == [
        ("pong", "Pong"),
        ("pong---v-", "&lt;V&gt;"),
        ("pong--m", "M"),
        ("catch", "Catch"),
    ]
    Outline(contents[len("<nav>") :].encode())


def test_a_page_renews_itself_only_if_it_is_asked_to(tmp_path: Path) -> None:
    assert b'data-refresh="7"' in to_html("Title", [], tmp_path, "Made <now>", refresh=7)
    page = to_html("Title", [], tmp_path, "Made <now>")
    assert b"data-refresh=" not in page
    assert b"Made &lt;now&gt;" in page


def test_pictures_beyond_the_page_s_size_are_linked(
    tmp_path: Path, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "EMBEDDED", len(PIXEL))
    page = to_html("Title", [picture, picture], tmp_path).decode()
    assert page.count("data:image/png;base64,") == 1
    assert 'src="run/strip.png"' in page


def test_markdown_has_the_tables_and_links_the_pictures(tmp_path: Path, picture: Picture) -> None:
    blocks = [Heading(2, "Pong"), Paragraph("lost.", "Return"), Table(["a", "b"], [["1|2", "3"]]), picture]
    text = to_markdown("Title", [*blocks, Chart("<svg/>", "c"), Commands(["wm ls"])], tmp_path).decode()
    assert text.startswith("# Title\n\n## Pong\n\n**Return** lost.\n\n| a | b |\n| --- | ---: |\n| 1\\|2 | 3 |\n")
    assert '![a "strip"](run/strip.png)' in text
    assert "```sh\nwm ls\n```" in text
    assert "svg" not in text


def test_names_are_text_in_markdown_too(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) ![](y) `a` *b* | c"
    blocks = [Heading(2, evil), Paragraph(evil, evil), Table([evil], [[evil], ["# a\n\n# b"]]), Paragraph("- a")]
    text = to_markdown(evil, blocks, tmp_path).decode()
    assert not re.search(r"<|(?<!\\)[\[`*]", text.replace("**", ""))
    assert "| # a" not in text
    assert "\n# b" not in text
    assert "\n\\- a\n" in text


def test_commands_cannot_end_their_block_of_code(tmp_path: Path) -> None:
    text = to_markdown("t", [Commands(["wm ls", "```", "<b>"])], tmp_path).decode()
    assert "\n````sh\nwm ls\n```\n<b>\n````\n" in text


def test_a_path_is_one_attribute_and_one_link(
    tmp_path: Path, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "EMBEDDED", 0)
    path = tmp_path / 'a"onerror="b) <c>' / "strip.png"
    path.parent.mkdir()
    path.write_bytes(PIXEL)
    blocks = [Picture(path, "alt", "caption")]
    (image,) = [attributes for tag, attributes in Outline(to_html("t", blocks, tmp_path)).tags if tag == "img"]
    assert image == {"src": "a%22onerror%3D%22b%29%20%3Cc%3E/strip.png", "alt": "alt"}
    assert "](a%22onerror%3D%22b%29%20%3Cc%3E/strip.png)" in to_markdown("t", blocks, tmp_path).decode()


def test_names_that_are_no_unicode_do_not_end_a_report(tmp_path: Path) -> None:
    assert b"&#56448;" in to_html("a\udc80", [], tmp_path)
    assert b"\\udc80" in to_markdown("a\udc80", [], tmp_path)


def test_control_characters_become_visible_in_a_page_and_in_markdown(tmp_path: Path) -> None:
    evil = "a\x1b[31mb\x00\x9b\u202ec\u200f\u2028"
    blocks = [Heading(2, evil), Paragraph(evil, evil), Table([evil], [[evil]], words=True), Commands([f"{evil}\n\twm"])]
    page, text = to_html(evil, blocks, tmp_path).decode(), to_markdown(evil, blocks, tmp_path).decode()
    for output in (page, text):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200f\u2028\u202e]", output)
        assert "a\\x1b" in output
        assert "\n\twm" in output
    assert "a\\x1b[31mb\\x00\\x9b\\u202ec\\u200f\\u2028" in page


def test_a_link_to_a_page_is_relative_and_whatever_its_name_only_a_link(tmp_path: Path) -> None:
    blocks = [Link(tmp_path / "run" / 'a">b.html', "<b>Play</b> [x](y)")]
    page, text = to_html("Title", blocks, tmp_path).decode(), to_markdown("Title", blocks, tmp_path).decode()
    assert '<a href="run/a%22%3Eb.html">&lt;b&gt;Play&lt;/b&gt; [x](y)</a>' in page
    assert "[&lt;b&gt;Play&lt;/b&gt; \\[x\\](y)](run/a%22%3Eb.html)" in text
