"""`wm memory`: whether the memory of a training grew, where and why."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stages import console
from stages.options import strict_option, tell_damaged
from stages.parameter_types import ExistingPath
from wm.units import format_size

STYLES = {"leaking": "bad", "fragmenting": "bad", "at capacity": "warning", "flat": "good"}


@click.command(name="memory")
@click.argument("paths", type=ExistingPath(), nargs=-1)
@strict_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(paths: tuple[Path, ...], strict: bool, as_json: bool) -> None:
    """Show whether the memory of a training grew, where and why, with a plot beside its metrics  [default: runs].

    Example: wm memory runs/Pong
    """
    from wm.report.memory import memory_facts

    judged = [memory_facts(path) for path in paths or (Path("runs"),)]
    facts = [fact for listed, _ in judged for fact in listed]
    damaged = [sentence for _, listed in judged for sentence in listed]
    if as_json:
        console.print_json({"trainings": facts, "damaged": damaged})
    else:
        console.echo("\n\n".join(map(_text, facts)))
    tell_damaged(damaged, strict)


def _text(training: dict[str, Any]) -> str:
    word = console.color(training["verdict"], STYLES.get(training["verdict"], "faint"))
    lines = [f"{console.visible(training['training'], keep='')}: {word}", console.wrap(training["reason"])]
    rows = [_row(trend) for trend in training["trends"]]
    lines.append(console.table(["phase", "column", "n", "kB a step", "95 % interval", "MB in all", "rank corr."], rows))
    for grown in training["growth"]:
        lines.append(console.wrap(f"grew by {format_size(grown['bytes'])}: {grown['what']}, {grown['count']:+d}"))
    plot = f"plot: {training['plot']}" if training["plot"] else "no plot: nothing may be written beside its metrics"
    return "\n".join([*lines, console.visible(plot, keep="")])


def _row(trend: dict[str, Any]) -> Sequence[str]:
    from wm.telemetry.trend import format_interval, format_slope

    return [
        trend["phase"],
        trend["column"].removesuffix("_mb"),
        f"{trend['points']}",
        format_slope(trend["slope"]),
        format_interval(trend["low"], trend["high"]),
        f"{trend['drift']:+.1f}",
        f"{trend['correlation']:+.2f}",
    ]
