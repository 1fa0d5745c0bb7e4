"""`wm curriculum`: every stage, one environment after the other. Stages that are up to date are skipped, so the same
command resumes after a kill."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stages import console
from stages.curriculum.estimate import estimate_curriculum
from stages.curriculum.outcome import Outcome, recorded_outcome, table_of
from stages.curriculum.parallel import exit_with, read_share, run_in_parallel
from stages.curriculum.pipeline import STAGES, Pipeline, Step, folder_bytes, pipelines_of
from stages.options import tell_damaged
from stages.progress import show_usage, tell_leader
from stages.report import film_runs, report
from stages.session import Session
from wm.artifacts import durable
from wm.episodes.dataset import Dataset
from wm.errors import DiskProblem, Stopped, WmError
from wm.pipeline.encode import latents_in
from wm.pipeline.stage import CREATED, UP_TO_DATE
from wm.settings import CollectSettings, CurriculumSettings
from wm.settings.sources import Sources
from wm.telemetry.monitor import ResourceMonitor
from wm.units import format_duration, format_size

MEASURING = ("dream",)  # stages no later one depends on: where one fails, the agent is evaluated all the same


def run_command(
    session: Session, settings: CurriculumSettings, sources: Sources, words: Sequence[str], dry_run: bool, as_json: bool
) -> None:
    """Estimate, run every environment, and print the outcomes; `words` is the command line."""
    share, order = read_share(), list[str]()
    if share is not None:  # the leader has estimated, and reports
        exit_with(share.leader)
        tell_leader()
        session = replace(session, workers=share.workers, disk_limit=share.disk_limit)
        settings = replace(settings, envs=share.env, jobs=1)
    else:
        with console.stdout_for_results():
            needs = estimate_curriculum(session, settings, sources)
        if dry_run:
            if as_json:
                console.print_json(needs.as_json())
            else:
                console.echo(needs.text(console.table, console.wrap))
            return
        console.say(needs.text(console.table, console.wrap))
        needs.require_disk()
        order = needs.longest_first()
    session.stop.install()
    with console.stdout_for_results():
        outcomes = curriculum(session, settings, sources, words, order)
    pages = _report(outcomes) if share is None else _film(outcomes)
    if as_json:
        environments = {outcome.env: outcome.as_json() for outcome in outcomes}
        console.print_json({"environments": environments, "report": [str(page) for page in pages]})
    else:
        console.echo(table_of(outcomes, pages))
    for outcome in outcomes:
        if outcome.failure is not None:
            raise outcome.failure


def curriculum(
    session: Session,
    settings: CurriculumSettings,
    sources: Sources,
    words: Sequence[str] = (),
    order: Sequence[str] = (),
) -> list[Outcome]:
    """Run every stage of every environment. Where one fails, the next one still runs, unless `fail_fast`; a full disk
    and a signal stop everything. `words` is the command line that `jobs` processes run, those of `order` first."""
    pipelines = pipelines_of(session, settings, sources)
    if (jobs := min(settings.jobs, len(pipelines))) > 1:
        return run_in_parallel(session, jobs, settings.fail_fast, words, pipelines, order)
    total, number, outcomes = sum(len(pipeline.steps) for pipeline in pipelines), 1, list[Outcome]()
    recorded = [None if pipeline.has_inputs else recorded_outcome(pipeline) for pipeline in pipelines]
    for pipeline, outcome in zip(pipelines, recorded, strict=True):
        if outcome is not None:
            console.say(f"{pipeline.env}: up to date; its episodes or latents were removed")
        else:
            outcome = _run(pipeline, pipelines, number, total)
        outcomes.append(outcome)
        number += len(pipeline.steps)
        outcome.record()
        if outcome.failure is None:
            delete_intermediate(pipeline, settings.keep)
        elif settings.fail_fast:
            break
    return outcomes


def _film(outcomes: list[Outcome]) -> tuple[Path, ...]:
    """Film the agents for the report that the leader writes, while other environments still train; returns no page."""
    try:
        film_runs(_reported(outcomes), {outcome.env for outcome in outcomes})
    except Stopped:
        raise
    except WmError as error:
        # A film is an extra: without it the agent is scored and reported all the same.
        console.say(f"no film: {error}")
    return ()


def _reported(outcomes: list[Outcome]) -> tuple[Path, ...]:
    return tuple(run for outcome in outcomes for run in outcome.pipeline.reported if run.is_dir())


def _report(outcomes: list[Outcome]) -> tuple[Path, ...]:
    """Write the report about all runs of these environments; returns its pages."""
    runs = _reported(outcomes)
    try:
        envs = {outcome.env for outcome in outcomes}
        pages, damaged = report(runs, runs[0].parent / "report.html" if runs else None, envs=envs)
    except WmError as error:
        # The same: the runs are there, and `wm report` can be called again.
        console.say(f"no report: {error}")
        return ()
    tell_damaged(damaged, strict=False)
    return pages


def _run(pipeline: Pipeline, pipelines: list[Pipeline], number: int, total: int) -> Outcome:
    started, outcome = time.monotonic(), Outcome(pipeline)
    for place, step in enumerate(pipeline.steps, number):
        label = f"[{place}/{total}] {step}"
        console.say(f"{label} ...")
        step_started = time.monotonic()
        try:
            with ResourceMonitor(step.outputs, show_usage) as monitor:
                result = STAGES[step.stage].run(_within_budget(step, pipelines), step.settings)
        except (Stopped, DiskProblem):
            # These end the whole curriculum: the next environment would meet the same.
            raise
        except WmError as error:
            outcome.failure = outcome.failure or error
            console.say(f"{label}: failed: {error}")
            if step.stage in MEASURING:
                continue
            break
        seconds = time.monotonic() - step_started
        ran = result.status != UP_TO_DATE
        reported_seconds = result.seconds if result.status == CREATED else seconds  # as the report has it
        usage = f" in {format_duration(reported_seconds)}, {monitor}" if ran else ""
        console.say(f"{label}: {result.status}{usage}: {result.summary}")
        outcome.results.append(result)
        if ran:
            outcome.usage[str(step)] = {"seconds": seconds, "memory": monitor.peak_memory, "disk": monitor.disk}
    outcome.seconds = time.monotonic() - started
    return outcome


def _within_budget(step: Step, pipelines: list[Pipeline]) -> Session:
    """The step's session with the rest of the disk budget, which all environments share."""
    if step.session.disk_limit is None:
        return step.session
    # These two stages count their own dataset or replay themselves.
    own = step.outputs[-1] if step.stage in ("collect", "train-dreamer") else None
    used = sum(folder_bytes(path) for pipeline in pipelines for path in pipeline.folders if path != own)
    # Not below 0, which would be no limit.
    return replace(step.session, disk_limit=max(step.session.disk_limit - used, 0))


def delete_intermediate(pipeline: Pipeline, keep: str) -> None:
    """Remove what need not stay of a finished environment. A dataset with more episodes than the pipeline collects
    has another owner, and stays."""
    folders = [path for run in pipeline.runs for path in latents_in(run)] if keep != "all" else []
    folders += pipeline.replays if keep == "artifacts" else []
    for step in pipeline.steps if keep == "artifacts" else ():
        if isinstance(step.settings, CollectSettings):
            path = step.session.data_path
            if path.is_dir() and (episodes := Dataset.open(path).episodes) > step.settings.episodes:
                console.say(
                    f"{pipeline.env}: {path} stays; it has {episodes} episodes, this curriculum collects "
                    f"{step.settings.episodes}"
                )
            else:
                folders.append(path)
    freed = sum(map(folder_bytes, folders))
    for path in folders:
        durable.remove(path)
    if freed:
        console.say(f"{pipeline.env}: --keep {keep} freed {format_size(freed)}")
