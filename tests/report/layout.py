"""What is wrong with a page as a browser lays it out."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from benchmarks.browser import Browser

WIDTHS, SCHEMES = (400, 1280), ("light", "dark")  # a phone and a laptop
CONTRAST = 4.5  # of text and what is behind it (WCAG 2.2, AA)
FAULTS = f"""(() => {{
  const found = [], width = innerWidth, text = e => e.textContent.trim().replace(/\\s+/g, " ").slice(0, 40);
  const tell = (e, what) => found.push(`${{e.tagName.toLowerCase()}} "${{text(e)}}" ${{what}}`);
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {{
    const parts = channels(colour).slice(0, 3).map(c => c / 255);
    const linear = parts.map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * linear[0] + .7152 * linear[1] + .0722 * linear[2];
  }};
  const behind = e => {{
    for (; e; e = e.parentElement) {{
      const colour = getComputedStyle(e).backgroundColor, alpha = channels(colour)[3] ?? 1;
      if (alpha > .9) return colour;
    }}
    return "rgb(255, 255, 255)";
  }};
  const {{scrollWidth}} = document.documentElement;
  if (scrollWidth > width) found.push(`the page is ${{scrollWidth}} wide`);
  for (const e of document.querySelectorAll("body *")) {{
    const style = getComputedStyle(e), {{left, right, width: wide, height}} = e.getBoundingClientRect();
    if (wide <= 1 || height <= 1 || style.visibility === "hidden" || e.closest("dialog, thead, script")) continue;
    if (left < -.5 || right > width + .5) tell(e, `lies from ${{left}} to ${{right}} of ${{width}}`);
    const inside = style.display !== "inline" && !(e instanceof SVGElement) && e.clientWidth > 1;
    if (inside && e.scrollWidth > e.clientWidth + 1) tell(e, `is ${{e.scrollWidth}} wide in ${{e.clientWidth}}`);
    if (![...e.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    const colours = [e instanceof SVGElement ? style.fill : style.color, behind(e)];
    const [less, more] = colours.map(light).sort((a, b) => a - b), ratio = (more + .05) / (less + .05);
    if (ratio < {CONTRAST}) tell(e, `has a contrast of ${{ratio.toFixed(1)}}`);
  }}
  return found;
}})()"""


def faults(browser: Browser, page: Path, ready: str) -> Iterator[str]:
    """The faults of a page at every width, light and dark: what is cut or beyond its sides, and text that can hardly be
    read. `ready` is a script after which the page is complete."""
    for width, scheme in product(WIDTHS, SCHEMES):
        browser.open(page, width, prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
        browser.evaluate(ready)
        for fault in browser.evaluate(FAULTS):
            yield f"{width} {scheme}: {fault}"
