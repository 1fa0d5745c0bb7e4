"""`wm info`: what a dataset or an artifact holds, and how it was made."""

import math
from pathlib import Path
from typing import Any

import click

from stages import console
from stages.parameter_types import DatasetPath
from wm.units import format_size

DIGITS = 12  # of a fingerprint; --json has all of them


@click.command(name="info")
@click.argument("path", type=DatasetPath())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(path: Path, as_json: bool) -> None:
    """Show what a dataset or an artifact holds, and how it was made.

    Example: wm info data/Pong.zarr
    """
    from wm.episodes.parts import ROOT_KIND as EPISODES
    from wm.report.inventory import describe

    facts = describe(path)
    if as_json:
        console.print_json(facts)
    else:
        console.echo(_dataset(facts) if facts["kind"] == EPISODES else _artifact(facts))


def _artifact(facts: dict[str, Any]) -> str:
    rows = [["kind", facts["kind"]], ["fingerprint", facts["fingerprint"][:DIGITS]]]
    rows += [["size", format_size(facts["bytes"])]]
    inputs = {name: text[:DIGITS] for name, text in facts["recipe"]["inputs"].items()}
    groups = {
        "metric": facts["metrics"],
        "setting": facts["recipe"]["settings"],
        "input": inputs,
        "provenance": facts["provenance"],
    }
    for group, values in groups.items():
        rows += [[f"{group} {name.rstrip('_')}", _text(value)] for name, value in values.items()]
    return f"{console.visible(facts['path'], keep='')}\n" + console.table(["what", "value"], rows)


def _text(value: Any) -> str:
    """A value in words; of nested values the outermost level, of long or nested lists the length."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_inner(item)}" for name, item in value.items())
    return _inner(value)


def _inner(value: Any) -> str:
    nested = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value))
    # More than eight numbers do not fit a line of 80 columns.
    if nested or (isinstance(value, list) and len(value) > 8):
        return f"({len(value)} value{'' if len(value) == 1 else 's'})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None or value == "" else str(value)


def _dataset(facts: dict[str, Any]) -> str:
    from wm.episodes.summary import Summary

    summary = Summary(**{name: facts[name] for name in Summary.__dataclass_fields__})
    made = "written" if summary.origin else "collected"
    code = facts["recipe"].get("packages", {}) | facts["recipe"].get("sources", {})
    rows = [[name, value[:DIGITS] if name == "fingerprint" else value] for name, value in summary.facts()]
    rows += [
        ["labels", ", ".join(facts["recipe"]["labels"]) or "none"],
        ["code", ", ".join(f"{name} {number}" for name, number in code.items())],
    ]
    rows += [
        [made, f"{_episodes(line['episodes'])} in all by {line.get('finished', '?')}, `{line.get('command', '?')}`"]
        for line in facts["provenance"]
        if line["episodes"]  # a replay tells its training alone
    ]
    text = f"{console.visible(summary.path, keep='')}\n" + console.table(["what", "value"], rows)
    heading = "returns" if summary.unit == "episode" else f"returns of {summary.unit}s"
    return f"{text}\n{heading}\n{_histogram(facts['returns'])}" if summary.episodes else text


def _episodes(count: int) -> str:
    return f"{count:,} episode{'' if count == 1 else 's'}"


def _histogram(returns: dict[str, list[float]]) -> str:
    counts, edges = returns["counts"], returns["edges"]
    most = max(counts)
    decimals = _decimals(edges[1] - edges[0])
    lines = []
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        # 40 characters for the longest bar, and a thin one for what rounds to none.
        bar = "█" * round(40 * count / most) or ("▏" if count else "")
        lines.append(f"  {_edge(low, decimals)} to {_edge(high, decimals)}  {bar} {int(count) or ''}".rstrip())
    return "\n".join(lines)


def _decimals(width: float) -> int:
    """Enough to tell the edges of intervals of this width apart, one at least and six at most."""
    return min(max(1, math.ceil(-math.log10(width))), 6) if 0 < width < math.inf else 1


def _edge(value: float, decimals: int) -> str:
    """With as many decimals, or with the exponent of a number that is too large for its column."""
    # Ten columns hold seven digits, sign and decimals.
    return f"{value:10.{decimals}f}" if abs(value) < 1e7 else f"{value:10.4g}"
