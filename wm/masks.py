"""What frames can hide, as a text: `none`, `flicker`, or rows in percent of the height such as `12-88`.

A mask takes what an agent then has to remember, or rows that look otherwise in random play than in a good player's.
"""

import re

_ROWS = re.compile(r"([0-9]{1,2})-([0-9]{1,3})")


def masked_rows(mask: str) -> tuple[int, int] | None:
    """The rows that a mask hides, in percent of the height from the top, `12-88`; None for `none` and `flicker`. Raises
    ValueError for another text."""
    if mask in ("none", "flicker"):
        return None
    if not (rows := _ROWS.fullmatch(mask)) or not int(rows[1]) < int(rows[2]) <= 100:
        raise ValueError(mask)
    return int(rows[1]), int(rows[2])


def describe_mask(mask: str) -> str:
    """What the agent sees; empty without a mask."""
    if mask == "flicker":
        return "nothing in half of the frames, at random"
    rows = masked_rows(mask)
    return f"nothing between {rows[0]} and {rows[1]} % of the height" if rows else ""
