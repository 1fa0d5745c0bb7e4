"""Characters of names and texts that are no text, in pages, Markdown and pictures."""

import re

# Controls besides line feed and tab, other ends of lines, and what turns the direction of the text beside it.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """`text` with each control character as its escape, such as \\x1b; line feeds and tabs stay. Names in a copied
    folder may hold any character."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def drawable(text: str) -> str:
    """`text` for a picture: bytes of a name that are no UTF-8 become escapes too."""
    return visible(text).encode(errors="backslashreplace").decode()
