"""Bytes and durations as text for people, and back."""

import re

from wm.errors import UsageProblem, shown

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
LARGEST_SIZE = 10**18  # bytes: sums of such sizes fit 64 bits


def parse_size(text: str, name: str = "size") -> int:
    """`500MB`, `1.5 GB`, `2000000` -> bytes. A UsageProblem calls it `name`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", text.upper())
    if match is None:
        raise UsageProblem(f"{name} is {shown(text)}; expected a number with a unit, such as 500MB or 2GB.")
    size = float(match.group(1)) * _UNITS[match.group(2)]
    if size > LARGEST_SIZE:
        raise UsageProblem(f"{name} is {text[:40]!r}; expected at most {LARGEST_SIZE // _UNITS['T']:,} TB.")
    return int(size)


def format_size(size: float) -> str:
    """Bytes for people: 1.5 GB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{int(size)} B"


def format_rate(count: float) -> str:
    """Events in 1,000 steps, with three digits: 0.123, 45.6, 1,000; below 0.001."""
    if 0 < count < 0.001:
        return "below 0.001"
    return f"{count:.3g}" if count < 999.5 else f"{count:,.0f}"


def format_duration(seconds: float) -> str:
    """Seconds for people: 42 s, 3 min 5 s, 2 h 10 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
