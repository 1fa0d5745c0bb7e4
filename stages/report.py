"""`wm report`: runs as one HTML page and as Markdown."""

from pathlib import Path

import click

from stages import console
from stages.options import strict_option, tell_damaged


@click.command(name="report")
@click.argument("paths", type=click.Path(path_type=Path, exists=True), nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="The page  [default: in the run].")
@strict_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(paths: tuple[Path, ...], out: Path | None, strict: bool, as_json: bool) -> None:
    """Write one HTML page and a Markdown summary of runs, finished or not  [default: all in runs].

    Example: wm report runs/Pong
    """
    pages, damaged = report(paths or (Path("runs"),), out)
    if as_json:
        console.print_json({"html": str(pages[0]), "markdown": str(pages[1]), "damaged": damaged})
    else:
        console.echo("\n".join(map(str, pages)))
    tell_damaged(damaged, strict)


def report(paths: tuple[Path, ...], out: Path | None) -> tuple[tuple[Path, Path], list[str]]:
    """Write the page and the Markdown beside it; returns both paths, and a sentence for each thing that was left out
    because it is damaged."""
    from wm.artifacts import durable
    from wm.report.document import Block, Paragraph, to_html, to_markdown
    from wm.report.run_summary import LEGEND, RunSummary, find_runs, overview

    folders = find_runs(paths)
    summaries = [RunSummary.of(folder) for folder in folders]
    page = out or (folders[0] if len(folders) == 1 else folders[0].parent) / "report.html"
    title = f"World models: {', '.join(summary.title for summary in summaries)}"
    blocks: list[Block] = [overview(summaries), Paragraph(LEGEND)]
    blocks += [block for summary in summaries for block in summary.blocks()]
    durable.make_folder(page.parent)
    durable.write_bytes(page, to_html(title, blocks, page.parent))
    markdown = page.with_suffix(".md")
    durable.write_bytes(markdown, to_markdown(title, blocks, page.parent))
    return (page, markdown), [sentence for summary in summaries for sentence in summary.damaged]
