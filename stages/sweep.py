"""`wm sweep`: trials of a stage's settings, chosen by Optuna and compared by validation."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages import console
from stages.options import (
    SectionCommand,
    SectionOption,
    chosen_preset,
    read_sources,
    require_known_variables,
    require_taken,
    shared_options,
)
from stages.parameter_types import GivenPath, Number, OneOf
from wm.artifacts.workspace import check_name
from wm.errors import UsageProblem
from wm.settings import COMMANDS, Settings
from wm.settings.sources import typed_settings

if TYPE_CHECKING:
    from stages.session import Session
    from wm.runtime import Runtime
    from wm.sweeps.sweep import Sweep, Trial

STAGES = ("train-vae", "train-mdnrnn", "train-controller")
_WITHOUT = ("print_config", "keep_current", "snapshot")
SHOWN = 5  # of the best trials
_HELP = """Try settings of a stage, and find the best by validation. Needs the extra of this name.

SPACE is a TOML file whose names are those of --set: learning_rate = {low = 1e-4, high = 1e-2, log = true}, or
units = [64, 128]. Optuna chooses the values, and ends trials that validate worse than the median. Each trial is a run
of its own in runs/<Env>.sweep-<stage>. The same command resumes after a kill.

Example: wm sweep --env Pong --stage train-controller --trials 20 space.toml"""


def _sweep(**options: Any) -> None:
    from stages.session import session_of
    from wm import extras
    from wm.sweeps.space import corners, read_space, require_fit

    require_known_variables()
    if options["quiet"]:
        console.be_quiet()
    context, stage = click.get_current_context(), options["stage"]
    require_taken(context, stage, without=_WITHOUT)
    check_name("--name", options["name"] or stage)
    preset = chosen_preset(context, options)
    sources, session = read_sources(preset, options["config"], options["set"], stage), session_of(options)
    base, origin = sources.resolve(stage, COMMANDS[stage], session.env)
    session = replace(session, typed=typed_settings(origin))
    space = read_space(options["space"], stage)
    if fixed := [each.name for each in sources.assignments if each.name in space]:
        raise UsageProblem(f"{fixed[0]} is in {options['space']} and in --set; give it in one of them.")
    ends = corners(space, base)
    require_fit(ends, partial(_module(stage).check, session))
    extras.require("sweep", "wm sweep")
    extras.require_versions()
    from wm.sweeps.inputs import sweep_recipe
    from wm.sweeps.objective import OBJECTIVES, validates_in_reality
    from wm.sweeps.sweep import open_sweep, require_recipe
    from wm.sweeps.trials import run_trial

    run, trials = session.run_path, options["trials"]
    recipe = sweep_recipe(session.workspace, stage, _module(stage).RECIPE, session.seed, base, space)
    folder = run.with_name(f"{run.name}.sweep-{session.name or stage}")
    if options["dry_run"]:
        require_recipe(folder, recipe)
        _plan(session, stage, ends, folder, options)
        return

    def train(trial: "Trial", watched: Callable[["Runtime"], "Runtime"]) -> float:
        own = replace(session, run=trial.folder, data=session.data_paths, name=None, watched=watched)
        result = getattr(_module(stage), stage.replace("-", "_"))(own, replace(base, **trial.values))
        return float(result.metrics[OBJECTIVES[stage].metric])

    session.stop.install()
    with open_sweep(folder, recipe, space, OBJECTIVES[stage], session.seed) as sweep:
        while len(sweep.outcomes()) < trials:
            session.stop.raise_if_stopped()
            with console.stdout_for_results():
                run_trial(sweep, stage, [run], train, validates_in_reality(base), trials, session.runtime.log)
        _show(sweep, stage, preset, options)


def _module(stage: str) -> Any:
    return importlib.import_module(f"stages.{stage.replace('-', '_')}")


def _plan(session: "Session", stage: str, ends: list[Settings], folder: Path, options: Mapping[str, Any]) -> None:
    """Print what the trials would need, by a first and a last corner of the space."""
    from wm.pipeline.plan import repeated

    plans = [_module(stage).plan(replace(session, name="trial"), settings) for settings in (ends[0], ends[-1])]
    trials = options["trials"]
    plan = repeated(plans, trials, "sweep", folder, f"at most {trials} trials of {stage}")
    if options["as_json"]:
        console.print_json(plan.as_json() | {"trials": trials})
    else:
        console.echo(console.wrap(str(plan), indent=""))


def _show(sweep: "Sweep", stage: str, preset: str | None, options: Mapping[str, Any]) -> None:
    """Print the best trials, and the command that repeats the best."""
    from wm.pipeline.session import command_again
    from wm.sweeps.space import assignments

    best, counts = sweep.best(SHOWN), sweep.counts()
    settings = [assignments(trial.values, stage) for trial in best]
    again = command_again(stage, preset, options, settings[0])
    if options["as_json"]:
        facts = [trial.as_json() for trial in best]
        console.print_json({"sweep": str(sweep.folder), **counts, "best": facts, "command": again})
        return
    counted = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    console.echo(console.visible(f"{sweep.folder}: {counted}"))
    columns = [dict(text.split("=", 1) for text in texts) for texts in settings]
    rows = [
        [str(trial.number), f"{trial.figure:.4g}", *values.values()]
        for trial, values in zip(best, columns, strict=True)
    ]
    console.echo(console.table(["trial", sweep.objective.words, *columns[0]], rows))
    console.echo(console.visible(f"the best again: {again}"))


command = SectionCommand(
    "sweep",
    params=[
        click.Argument(["space"], type=GivenPath()),
        SectionOption(["--stage"], "Sweep", type=OneOf(STAGES), required=True, help="What each trial runs.",
                      metavar="|".join(STAGES)),
        SectionOption(["--trials"], "Sweep", type=Number(low=1), default=20, metavar="N",
                      help="Finished trials; more continue a sweep. [20]"),
        *shared_options(without=_WITHOUT),
    ],
    help=_HELP,
    callback=_sweep,
)  # fmt: skip
