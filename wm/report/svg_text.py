"""The SVG that matplotlib writes, made small and fit for a page."""

import hashlib
import html
import re
from collections.abc import Mapping


def for_page(svg: str, colours: Mapping[str, str], size: tuple[int, int], description: str, data: str) -> str:
    """The element of an SVG of matplotlib's, with a description, and what charts.js needs as `data`. It is the element
    alone: names of `colours` instead of values, ids of its own, the page's font, and no more digits than can be seen.
    A third of what matplotlib writes remains."""
    svg = svg[svg.index("<svg") :]
    for value, name in colours.items():
        svg = svg.replace(value, f"var(--{name})")
    prefix = "p" + hashlib.sha256(svg.encode()).hexdigest()[:8]
    referenced = set(re.findall(r'(?:xlink:href="|url\()#([^")]+)', svg))
    svg = re.sub(r' id="([sn]\d+)"', r' class="\1"', svg)  # of series and of legends: several elements have the same
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in referenced else "", svg)
    svg = svg.replace('xlink:href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    svg = re.sub(r"<[^>]+>", _short_tag, svg)
    svg = re.sub(r">\s+<", "><", svg)
    svg = re.sub(r"<defs>(<style[^>]*>[^<]*</style>)?</defs>|<g/>|<!--.*?-->", "", svg)
    svg = _without_bare_groups(svg)
    words = f'aria-label="{html.escape(description, quote=True)}" data-plot="{html.escape(data, quote=True)}"'
    head = f'<svg class="chart" viewBox="0 0 {size[0]} {size[1]}" role="img" {words}>'
    return head + svg[svg.index(">") + 1 :].strip()


def _without_bare_groups(svg: str) -> str:
    """Groups without attributes do nothing."""
    has_attributes = list[bool]()

    def tag(match: re.Match[str]) -> str:
        if match[0] == "</g>":
            return match[0] if has_attributes.pop() else ""
        has_attributes.append(match[0] != "<g>")
        return match[0] if has_attributes[-1] else ""

    return re.sub("</?g(?: [^>]*)?>", tag, svg)


def _short_tag(match: re.Match[str]) -> str:
    tag = re.sub(r"\s+", " ", match[0]).replace(" />", "/>").replace(' "', '"')
    tag = re.sub(r'font(-size|-family)?: [^;]+; ?| transform="rotate\(-0 [^"]+"', "", tag)
    tag = re.sub(r"; stroke-linecap: square|; stroke-dashoffset: 0|; stroke-linejoin: miter", "", tag)
    return re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), tag)
