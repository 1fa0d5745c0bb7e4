"""`wm compare`: runs side by side, in a table and in one plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from stages import console
from stages.options import strict_option, tell_damaged
from stages.parameter_types import ExistingPath, FilePath


@click.command(name="compare")
@click.argument("paths", type=ExistingPath(), nargs=-1, required=True)
@click.option("--out", type=FilePath(".png"), default=Path("compare.png"), show_default=True, help="The plot.")
@strict_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(paths: tuple[Path, ...], out: Path, strict: bool, as_json: bool) -> None:
    """Put runs side by side: a table, the settings in which they differ, and a plot of their searches.

    Example: wm compare runs/Pong runs/Pong.round2
    """
    from wm.artifacts import durable
    from wm.report.comparison import compare, different_settings, plot_searches
    from wm.report.run_summary import RunSummary, find_runs

    summaries = [RunSummary.of(run) for run in find_runs(paths)]
    damaged = [sentence for summary in summaries for sentence in summary.damaged]
    facts = compare(summaries)
    if not as_json:
        console.echo(_table(facts))
        if rows := different_settings(facts):
            console.echo("\n" + console.visible(f"settings, {facts[0]['name']} -> other run", keep=""))
            console.echo(console.table(["run and stage", "settings"], rows))
        for run in facts:
            if run["older"]:
                text = f"older, {run['name']}: {', '.join(run['older'])} than the run has now"
                console.echo("\n" + console.visible(text, keep=""))
    # After the table, which stands where the plot cannot be written.
    if plot := plot_searches(summaries):
        durable.make_folder(out.parent)
        durable.write_bytes(out, plot)
    if as_json:
        console.print_json({"runs": facts, "plot": str(out) if plot else None, "damaged": damaged})
    else:
        plotted = f"plot: {out}" if plot else "no plot: C was not validated in any of them"
        console.echo("\n" + console.visible(f"{plotted}; terms: docs/glossary.md", keep=""))
    tell_damaged(damaged, strict)


def _table(facts: Sequence[dict[str, Any]]) -> str:
    """A column for every run; where they do not fit the terminal, several tables of as many runs as do."""
    figures = _in_order([list(run["figures"]) for run in facts])
    columns = [[run["name"], *(str(run["figures"].get(figure, "–")) for figure in figures)] for run in facts]
    room = console.width() - max(map(len, figures), default=0)
    count = max(room // (2 + max(len(cell) for column in columns for cell in column)), 1)
    groups = [columns[start : start + count] for start in range(0, len(columns), count)]
    tables = []
    for group in groups:
        header, *rows = zip(["", *figures], *group, strict=True)
        tables.append(console.table(header, rows))
    return "\n\n".join(tables)


def _in_order(lists: Sequence[Sequence[str]]) -> list[str]:
    """The names of all lists, each once. One that earlier lists lack follows what it follows in its own."""
    merged: list[str] = []
    for names in lists:
        place = 0
        for name in names:
            if name not in merged:
                merged.insert(place, name)
            place = merged.index(name) + 1
    return merged
