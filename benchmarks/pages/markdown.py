"""Markdown tables, and the markers in README that they are rendered between."""

from collections.abc import Iterable


def markdown_table(head: list[str], lines: Iterable[list[str]]) -> str:
    """A Markdown table."""
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def replaced(text: str, name: str, table: str) -> str:
    """The text with another table between its markers."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, rest = text.split(begin)
    return before + begin + table + end + rest.split(end)[1]
