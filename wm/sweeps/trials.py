"""One trial of a sweep, from its inputs to its figure."""

from collections.abc import Callable, Iterable
from pathlib import Path

from wm.errors import BadData, UsageProblem
from wm.runtime import Runtime
from wm.sweeps.inputs import link_inputs
from wm.sweeps.space import assignments
from wm.sweeps.sweep import Sweep, Trial
from wm.sweeps.watch import Pruned, Watch

Train = Callable[[Trial, Callable[[Runtime], Runtime]], float]


def run_trial(
    sweep: Sweep,
    stage: str,
    sources: Iterable[Path],
    train: Train,
    prunes: bool,
    trials: int,
    log: Callable[[str], None],
) -> None:
    """Run the next of so many `trials` to its end, to where it is pruned, or to what is wrong with its values. Its run
    has what it reads from `sources`; `train` runs the stage there with a watched Runtime and returns the figure."""
    trial = sweep.next_trial()
    label = f"trial {trial.number} ({trial.number + 1} of {trials}): {' '.join(assignments(trial.values, stage))}"
    if (earlier := sweep.same_as(trial)) is not None:
        log(f"{label}, the values of trial {earlier.number}")
        sweep.repeat(trial, earlier)
        return
    log(f"{label} ...")
    link_inputs(stage, [*sources, *map(sweep.path, range(trial.number))], trial.folder)
    try:
        figure = train(trial, Watch(trial, sweep.objective, prunes).runtime)
    except Pruned:
        log(f"{label}, pruned")
        sweep.prune(trial)
    except (UsageProblem, BadData) as error:  # values that contradict each other, or a loss that is not finite
        log(f"warning: {label}, failed: {error}")
        sweep.fail(trial)
    else:
        log(f"{label}, {sweep.objective.words} {figure:.4g}")
        sweep.complete(trial, figure)
