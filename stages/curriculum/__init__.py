"""`wm curriculum`: the whole chain, one environment after the other. A plain list of stages: what is up to date is
not done again, so the same command continues after a kill."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stages import console
from stages.curriculum.outcome import Verdict, recorded
from stages.curriculum.parallel import run_in_parallel
from stages.curriculum.pipeline import STAGES, Pipeline, Step, pipelines_of
from stages.options import Sources
from stages.report import report
from stages.session import Session
from wm.artifacts import durable
from wm.episodes.dataset import Dataset
from wm.errors import DiskProblem, Stopped, WmError
from wm.settings import CollectSettings, CurriculumSettings
from wm.telemetry.monitor import ResourceMonitor
from wm.units import format_duration, format_size


def curriculum(
    session: Session, settings: CurriculumSettings, sources: Sources, words: Sequence[str] = ()
) -> list[Verdict]:
    """Run every stage of every environment. One environment's failure is reported and the next one goes on, unless
    `strict`; a full disk and a signal stop everything. `words` is the command line, for `jobs` side by side."""
    chains = pipelines_of(session, settings, sources)
    if (jobs := min(settings.jobs, len(chains))) > 1:
        return run_in_parallel(session, jobs, settings.strict, words, chains)
    total, number, verdicts = sum(len(chain.steps) for chain in chains), 1, list[Verdict]()
    for chain in chains:
        verdict = finished_before(chain)
        if verdict is not None:
            console.say(f"{chain.env}: up to date; its episodes or latents were not kept")
        else:
            verdict = _run(chain, chains, number, total)
        verdicts.append(verdict)
        number += len(chain.steps)
        verdict.record()
        if verdict.failure is None:
            delete_intermediate(chain, settings.keep)
        elif settings.strict:
            break
    return verdicts


def summarize(verdicts: list[Verdict]) -> tuple[Path, ...]:
    """Write the report about all runs there are of these environments; returns its pages."""
    runs = tuple(run for verdict in verdicts for run in verdict.chain.runs if run.is_dir())
    try:
        return report(runs, runs[0].parent / "report.html" if runs else None)
    except WmError as error:
        console.say(f"no report: {error}")
        return ()


def finished_before(chain: Pipeline) -> Verdict | None:
    """What came of this chain before, if its episodes were not kept: then its stages cannot look for themselves."""
    if not chain.datasets or (
        all(path.exists() for path in chain.datasets) and all((run / "latents").exists() for run in chain.runs)
    ):
        return None
    return recorded(chain)


def _run(chain: Pipeline, chains: list[Pipeline], number: int, total: int) -> Verdict:
    began, verdict = time.monotonic(), Verdict(chain)
    for place, step in enumerate(chain.steps, number):
        label = f"[{place}/{total}] {step}"
        console.say(f"{label} ...")
        started = time.monotonic()
        try:
            with ResourceMonitor(step.places) as gauge:
                result = STAGES[step.stage].run(_within_budget(step, chains), step.settings)
        except (Stopped, DiskProblem):
            raise
        except WmError as error:
            verdict.failure = error
            console.say(f"{label}: failed: {error}")
            break
        done = result.status == "up to date"
        took = "" if done else f" in {format_duration(time.monotonic() - started)}, {gauge}"
        console.say(f"{label}: {result.status}{took}: {result.summary}")
        verdict.results.append(result)
        if not done:
            verdict.took[str(step)] = {
                "seconds": time.monotonic() - started,
                "memory": gauge.memory,
                "disk": gauge.left,
            }
    verdict.seconds = time.monotonic() - began
    return verdict


def _within_budget(step: Step, chains: list[Pipeline]) -> Session:
    """The step's session with what is left of the budget: it holds for all environments together."""
    if step.session.disk_limit is None:
        return step.session
    own = step.places[-1] if step.stage in ("collect", "train-dreamer") else None  # it counts what is there itself
    used = sum(size_of(path) for chain in chains for path in chain.places if path != own)
    return replace(step.session, disk_limit=max(step.session.disk_limit - used, 0))


def size_of(path: Path) -> int:
    """Bytes below a folder; none if it is not there."""
    return durable.folder_size(path) if path.is_dir() else 0


def delete_intermediate(chain: Pipeline, keep: str) -> None:
    """Remove what need not stay of a finished environment. A dataset that holds more episodes than the chain collects
    is somebody's, and stays."""
    going = [run / "latents" for run in chain.runs] if keep != "all" else []
    going += chain.replays if keep == "artifacts" else []
    for step in chain.steps if keep == "artifacts" else ():
        if isinstance(step.settings, CollectSettings):
            path = step.session.data_path
            if path.is_dir() and (there := Dataset.open(path).episodes) > step.settings.episodes:
                console.say(
                    f"{chain.env}: {path} stays; it holds {there} episodes, {step.settings.episodes} were asked for"
                )
            else:
                going.append(path)
    freed = sum(map(size_of, going))
    for path in going:
        durable.remove_folder(path)
    if freed:
        console.say(f"{chain.env}: --keep {keep} freed {format_size(freed)}")
