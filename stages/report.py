"""`wm report`: runs as one HTML page and as Markdown."""

import signal
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages import console
from stages.options import strict_option, tell_damaged
from stages.parameter_types import ExistingPath, Number, PagePath
from wm.errors import Stopped, UsageProblem, WmError

if TYPE_CHECKING:
    from wm.report.run_summary import RunSummary

EVERY = 10  # seconds between two pages with --live
# Seconds; it only bounds how late Ctrl-C is noticed.
_TICK = 0.2  # seconds between two looks at whether a signal has arrived


@click.command(name="report")
@click.argument("paths", type=ExistingPath(), nargs=-1)
@click.option("--out", type=PagePath(), default=None, help="The page  [default: in the run].")
@click.option(
    "--film/--no-film", default=True, help="Play two test episodes of C again and show them  [default: film]."
)
@click.option("--env", "envs", multiple=True, metavar="ID", help="An environment module:id to film, which is imported.")
@click.option("--live", is_flag=True, help="Write the page again and again until the runs are evaluated, or Ctrl-C.")
@click.option("--every", type=Number(low=1), default=None, metavar="N", help=f"Seconds between two writes.  [{EVERY}]")
@strict_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(
    paths: tuple[Path, ...], out: Path | None, film: bool, envs: tuple[str, ...], live: bool, every: int | None,
    strict: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write one HTML page and a Markdown summary of runs, finished or not  [default: all in runs].

    Example: wm report runs/Pong
    """
    paths = paths or (Path("runs"),)
    if envs and not film:
        raise UsageProblem(f"--env is {envs[0]}, which means nothing with --no-film; leave one of them out.")
    if named := [env for env in envs if ":" not in env]:
        raise UsageProblem(
            f"--env is {named[0]}; expected module:id, an environment whose module is imported for its film. The page "
            "of one run is `wm report` with its folder, such as runs/Pong."
        )
    _require_of_a_run(envs, paths)
    if live:
        _follow(paths, out, every or EVERY)
    elif every is not None:
        raise UsageProblem(f"--every is {every}, which means nothing without --live; add it, or leave --every out.")
    pages, damaged = report(paths, out, film, envs)
    if as_json:
        console.print_json({"html": str(pages[0]), "markdown": str(pages[1]), "damaged": damaged})
    else:
        console.echo("\n".join(console.visible(str(page), keep="") for page in pages))
    tell_damaged(damaged, strict)


def _follow(paths: tuple[Path, ...], out: Path | None, every: int) -> None:
    """Write a page that renews itself, until every run is evaluated and nothing is unfinished, or a signal arrives."""
    from wm.report.run_summary import all_evaluated

    stop, announced = console.Stop(), False
    handlers = {number: signal.getsignal(number) for number in console.stop_signals()}
    stop.install()
    while not stop():
        began = time.monotonic()
        try:
            pages, _ = report(paths, out, film=False, refresh=every)
            if all_evaluated(paths):
                break
        except (WmError, OSError) as error:  # a stage may be renaming what is read; the next page has it
            console.say(f"no page this time: {error}")
        else:
            if not announced:
                console.say(f"{pages[0]} is renewed every {every} s; Ctrl-C ends that")
            announced = True
        while not stop() and time.monotonic() < began + every:
            time.sleep(_TICK)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def report(
    paths: tuple[Path, ...], out: Path | None, film: bool = True, envs: Collection[str] = (), refresh: int = 0
) -> tuple[tuple[Path, Path], list[str]]:
    """Write the page and the Markdown beside it; returns both paths, and a sentence for each thing that was left out
    because it is damaged. `envs` are those whose modules may be imported to play a film."""
    from wm.artifacts import durable
    from wm.report.document import Block, Paragraph, to_html, to_markdown
    from wm.report.run_chapter import chapter
    from wm.report.run_summary import LEGEND, RunSummary, find_runs, fit_films, overview

    folders = find_runs(paths)
    summaries = fit_films(film_runs(folders, envs) if film else [RunSummary.of(folder) for folder in folders])
    page = out or (folders[0] if len(folders) == 1 else folders[0].parent) / "report.html"
    title = f"World models: {', '.join(summary.title for summary in summaries)}"
    blocks: list[Block] = [overview(summaries), Paragraph(LEGEND)]
    blocks += [block for summary in summaries for block in chapter(summary)]
    made = f"Made on {time.strftime('%Y-%m-%d at %H:%M:%S')}." + (f" Renewed every {refresh} s." if refresh else "")
    durable.make_folder(page.parent)
    durable.write_bytes(page, to_html(title, blocks, page.parent, made, refresh))
    markdown = page.with_suffix(".md")
    durable.write_bytes(markdown, to_markdown(title, blocks, page.parent))
    return (page, markdown), [sentence for summary in summaries for sentence in summary.damaged]


def _require_of_a_run(envs: Collection[str], paths: tuple[Path, ...]) -> None:
    """Raise UsageProblem for an environment of which no run of the page is."""
    from wm.report.run_summary import RunSummary, find_runs

    known = {env for folder in find_runs(paths) for env in RunSummary.of(folder).envs} if envs else set()
    if unknown := [env for env in envs if env not in known]:
        expected = f"expected one of {', '.join(sorted(known))}, or leave it out" if known else "leave it out"
        raise UsageProblem(f"--env is {unknown[0]} but no run of the page is of it; {expected}.")


def film_runs(folders: Collection[Path], envs: Collection[str]) -> list["RunSummary"]:
    """The summaries of these runs, with films of their agents. `envs` are as in `report`."""
    from wm.report.run_summary import RunSummary

    return [_filmed(RunSummary.of(folder), envs) for folder in folders]


def _filmed(summary: "RunSummary", envs: Collection[str]) -> "RunSummary":
    """The summary with films of its agent's test episodes: those that the run has, or new ones. It says why where there
    are none."""
    from stages.session import Session
    from wm.pipeline.film import film
    from wm.report.run_summary import RunSummary

    evaluation = summary.evaluation
    if evaluation is None or summary.films:
        return summary
    try:
        film(Session(env=summary.env_to_film(envs), run=summary.run, workers=1), summary.title, evaluation)
    except Stopped:
        raise
    except (WmError, OSError) as error:
        # The page is written without a film, and says why.
        note = f"The film is left out: {str(error).rstrip('.')}."
        console.say(f"{summary.title}: {note}")
        return replace(summary, film_note=note)
    return RunSummary.of(summary.run)
