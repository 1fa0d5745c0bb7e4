"""Styles and scripts of pages, which stand in files of their own, and the colours of light and dark."""

from importlib import resources

from wm.report.plots import COLOURS

POLICY = "default-src 'none'; img-src data: file: 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def head(title: str, styles: str) -> str:
    """The head of a page, which loads nothing but pictures beside it. `title` is HTML, `styles` names of CSS files."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{title}</title><style>{colours()}{read(*styles.split())}</style></head>"""


def scripts(names: str) -> str:
    """A script element for each of these files."""
    return "\n".join(f"<script>\n{read(name)}</script>" for name in names.split())


def colours() -> str:
    """CSS variables: the light colours, and the dark ones for those who prefer them."""
    light, dark = ("".join(f"--{name}:{pair[mode]};" for name, pair in COLOURS.items()) for mode in (0, 1))
    return f":root{{color-scheme:light dark;{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def read(*names: str) -> str:
    """The text of files of this package, one after another."""
    return "".join(resources.files(__package__).joinpath(name).read_text(encoding="utf-8") for name in names)
