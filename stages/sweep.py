"""`wm sweep`: trials of a stage's settings, chosen by Optuna and compared by validation."""

import importlib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from stages import console
from stages.options import (
    SectionCommand,
    SectionOption,
    chosen_preset,
    read_sources,
    require_known_variables,
    shared_options,
)
from stages.parameter_types import GivenPath, Number, OneOf
from wm.errors import BadData, UsageProblem
from wm.pipeline.session import check_name
from wm.settings import COMMANDS, ControllerSettings, Settings
from wm.settings.sources import typed_settings
from wm.units import format_duration, format_size

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
    from wm.sweeps.space import corners, read_space

    require_known_variables()
    if options["quiet"]:
        console.be_quiet()
    context, stage = click.get_current_context(), options["stage"]
    _require_used(context, stage)
    check_name("--name", options["name"] or stage)
    preset = chosen_preset(context, options)
    sources, session = read_sources(preset, options["config"], options["set"], stage), session_of(options)
    base, origin = sources.resolve(stage, COMMANDS[stage], session.env)
    session = replace(session, typed=typed_settings(origin))
    space = read_space(options["space"], stage)
    if fixed := [each.name for each in sources.assignments if each.name in space]:
        raise UsageProblem(f"{fixed[0]} is in {options['space']} and in --set; give it in one of them.")
    ends = corners(space, base)
    _require_fit(session, stage, ends)
    extras.require("sweep", "wm sweep")
    extras.require_versions()
    from wm.sweeps.inputs import sweep_recipe
    from wm.sweeps.objective import OBJECTIVES
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
                run_trial(sweep, stage, [run], train, _validates_in_reality(base), trials, session.runtime.log)
        _show(sweep, stage, preset, options)


def _require_used(context: click.Context, stage: str) -> None:
    """Raise UsageProblem for a shared option that was typed, and that the stage itself does not take."""
    from stages.cli import wm as group

    command = group.get_command(context, stage)
    assert command is not None
    accepted = {option.name for option in command.params}
    for option in shared_options(without=_WITHOUT):
        typed = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if typed and option.name not in accepted:
            raise UsageProblem(f"{option.opts[0]} means nothing to {stage}; leave it out.")


def _require_fit(session: "Session", stage: str, ends: list[Settings]) -> None:
    """Raise the UsageProblem of the stage that all corners of the space have: every trial would fail of it."""
    problems = []
    for settings in ends:
        try:
            _module(stage).check(session, settings)
        except UsageProblem as problem:
            # One corner may contradict itself where others do not, so all are asked first.
            problems.append(problem)
        else:
            return
    raise problems[0]


def _module(stage: str) -> Any:
    return importlib.import_module(f"stages.{stage.replace('-', '_')}")


def _validates_in_reality(base: Settings) -> bool:
    """Returns in the dream also depend on the dream, so they prune nothing."""
    return not isinstance(base, ControllerSettings) or base.policy_gradient or base.in_ == "real"


def _plan(session: "Session", stage: str, ends: list[Settings], folder: Path, options: Mapping[str, Any]) -> None:
    """Print what the trials would need, by a first and a last corner of the space."""
    plans = [_module(stage).plan(replace(session, name="trial"), settings) for settings in (ends[0], ends[-1])]
    seconds = [plan.seconds[bound] * options["trials"] for bound, plan in ((0, plans[0]), (1, plans[1]))]
    disk, memory = max(plan.disk for plan in plans) * options["trials"], max(plan.memory for plan in plans)
    if options["as_json"]:
        facts = {"disk_bytes": disk, "memory_bytes": memory, "seconds": sorted(seconds)}
        console.print_json({"target": str(folder), "trials": options["trials"], **facts})
        return
    low, high = map(format_duration, sorted(seconds))
    text = (
        f"sweep -> {folder}: {options['trials']} trials of {stage}; disk at most {format_size(disk)}, memory about "
        f"{format_size(memory)}, time at most about {low if low == high else f'{low} to {high}'}"
    )
    console.echo(console.wrap(text, indent=""))


def _show(sweep: "Sweep", stage: str, preset: str | None, options: Mapping[str, Any]) -> None:
    """Print the best trials, and the command that repeats the best."""
    from wm.sweeps.space import assignments

    outcomes, best = sweep.outcomes(), sweep.best(SHOWN)
    counts = {state: sum(one.state == state for one in outcomes) for state in ("complete", "pruned", "failed")}
    if not best:
        raise BadData(f"{sweep.folder}: no trial is complete, and {counts['failed']} failed; narrow the space.")
    data = () if stage == "train-controller" else options["data"]  # which has it only from a config file
    again = {"data": data, "run": options["run"], "preset": preset, "config": options["config"]}
    again |= {"seed": options["seed"] or None, "set": (*options["set"], *assignments(best[0].values, stage))}
    words = ["wm", stage, "--env", options["env"]]
    for name, value in again.items():
        for each in value if isinstance(value, tuple) else () if value is None else (value,):
            words += [f"--{name}", str(each)]
    if options["as_json"]:
        facts = [{"trial": one.number, "run": str(one.folder), "figure": one.figure, **one.values} for one in best]
        console.print_json({"sweep": str(sweep.folder), **counts, "best": facts, "command": shlex.join(words)})
        return
    counted = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    console.echo(console.visible(f"{sweep.folder}: {counted}"))
    texts = [[text.partition("=") for text in assignments(one.values, stage)] for one in best]
    rows = [
        [str(one.number), f"{one.figure:.4g}", *(value for _, _, value in values)]
        for one, values in zip(best, texts, strict=True)
    ]
    console.echo(console.table(["trial", sweep.objective.words, *(name for name, _, _ in texts[0])], rows))
    console.echo(console.visible(f"the best again: {shlex.join(words)}"))


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
