"""A sweep in a folder: Optuna's study, and a run of its own for every trial.

The folder has `recipe.json`, Optuna's journal and `trial-0000`, `trial-0001`, ... A sweep is a function of its recipe,
which holds the seed: the sampler of a trial is seeded by its number, so after a kill the same trials follow.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.storages.journal import JournalStorage
from optuna.trial import FrozenTrial, TrialState

from wm.artifacts import durable, json_reader, links, locks, schemas
from wm.artifacts.recipe import Recipe, differences
from wm.errors import BadData, RecipeMismatch
from wm.seeding import integer
from wm.sweeps.journal import JournalFile
from wm.sweeps.objective import Objective
from wm.sweeps.space import Choices, Range, Space

RECIPE_FILE, JOURNAL = "recipe.json", "journal.log"
UNPRUNED_TRIALS = 5  # of the first, with which the others are compared; Optuna's default
UNPRUNED_VALIDATIONS = 1  # of a trial: the first one of V and M is that of untrained weights
STATES = ("complete", "pruned", "failed")
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


@dataclass(frozen=True)
class Outcome:
    """A finished trial: its number, its folder, the values that were tried, and `complete`, `pruned` or `failed`. One
    that failed has no `figure`; one with the values of an earlier trial is the `same_as` that."""

    number: int
    folder: Path
    values: dict[str, Any]
    state: str
    figure: float | None
    same_as: int | None

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"trial": self.number, "run": str(self.folder), "figure": self.figure, **self.values}


class Sweep:
    """The trials in a folder. One is tried at a time, until it is finished by one of the methods."""

    def __init__(self, folder: Path, space: Space, objective: Objective, seed: int) -> None:
        self.folder, self.objective = folder, objective
        self._space, self._seed = space, seed
        self._way_out = f"restore it, or remove {folder} to begin anew"
        journal = JournalFile(links.refuse(folder / JOURNAL), self._way_out)
        pruner = MedianPruner(UNPRUNED_TRIALS, UNPRUNED_VALIDATIONS)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with self._explained():
            self._study = optuna.create_study(
                storage=JournalStorage(journal),
                study_name=folder.name,
                direction="maximize" if objective.maximize else "minimize",
                pruner=pruner,
                load_if_exists=True,
            )
            self.outcomes()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise BadData for what a journal that was edited makes Optuna raise, which is anything."""
        try:
            yield
        except OSError:  # of the disk, which does not take another line: the journal is intact
            raise
        except Exception as error:
            # Two lines of a message at most.
            problem = " ".join(str(error).split())[:200]
            path = self.folder / JOURNAL
            raise BadData(f"{path} is no journal of this sweep ({problem}); {self._way_out}.") from None

    def path(self, number: int) -> Path:
        """The run of a trial."""
        return self.folder / f"trial-{number:04d}"

    def outcomes(self) -> list[Outcome]:
        """The finished trials in their order."""
        return [self._outcome(trial) for trial in self._study.get_trials(deepcopy=False) if trial.state in _FINISHED]

    def _outcome(self, trial: FrozenTrial) -> Outcome:
        same_as = trial.user_attrs.get("same_as")
        state = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}.get(trial.state, "failed")
        figure = trial.value if state == "complete" else self._last_figure(trial)
        is_number = isinstance(figure, int | float) and math.isfinite(figure)
        if not is_number and not (figure is None and state != "complete"):
            raise BadData(f"trial {trial.number} has the figure {repr(figure)[:80]}; expected a finite number")
        folder = self.path(trial.number if same_as is None else same_as)
        return Outcome(trial.number, folder, self._values(trial), state, figure, same_as)

    def _values(self, trial: FrozenTrial) -> dict[str, Any]:
        """The values of a trial in the order of the space, which may be another than when they were tried. Raises
        BadData for values that are not of the space."""
        if trial.params.keys() != self._space.keys():
            names = ", ".join(map(str, trial.params)) or "nothing"
            raise BadData(f"trial {trial.number} has values of {names[:80]}; expected of {', '.join(self._space)}")
        for name, each in self._space.items():
            if not each.has(value := trial.params[name]):
                raise BadData(f"trial {trial.number} has {name} {repr(value)[:80]}; expected {each}")
        return self._rounded({name: trial.params[name] for name in self._space})

    @staticmethod
    def _last_figure(trial: FrozenTrial) -> float | None:
        return trial.intermediate_values[trial.last_step] if trial.last_step is not None else None

    def counts(self) -> dict[str, int]:
        """How many finished trials have each state."""
        states = [outcome.state for outcome in self.outcomes()]
        return {state: states.count(state) for state in STATES}

    def best(self, count: int) -> list[Outcome]:
        """The best complete trials, at most so many, the earliest of equals first. Raises BadData if none is."""
        complete = [outcome for outcome in self.outcomes() if outcome.state == "complete" and outcome.same_as is None]
        if not complete:
            failed = self.counts()["failed"]
            raise BadData(f"{self.folder}: no trial is complete, and {failed} failed; narrow the space.")
        sign = -1 if self.objective.maximize else 1
        return sorted(complete, key=lambda outcome: sign * (outcome.figure or 0.0))[:count]

    def next_trial(self) -> "Trial":
        """The trial that was interrupted, or a new one."""
        trials = self._study.get_trials(deepcopy=False)
        running = [trial for trial in trials if trial.state is TrialState.RUNNING]
        number = running[0].number if running else len(trials)
        # numpy's seeds have 32 bits; the trial's number makes them differ.
        self._study.sampler = TPESampler(seed=integer(self._seed, "sweep", number) % 2**32)
        with self._explained():
            trial = optuna.Trial(self._study, running[0]._trial_id) if running else self._study.ask()
            for name, each in self._space.items():
                _suggest(trial, name, each)
            values = self._values(self._study.get_trials(deepcopy=False)[trial.number])
        return Trial(trial, self.path(trial.number), values)

    def _rounded(self, values: dict[str, Any]) -> dict[str, Any]:
        ranges = {name: each for name, each in self._space.items() if isinstance(each, Range)}
        return {name: ranges[name].rounded(value) if name in ranges else value for name, value in values.items()}

    def same_as(self, trial: "Trial") -> Outcome | None:
        """The earlier trial of the same values, complete or pruned: it would have the same result."""
        earlier = (outcome for outcome in self.outcomes() if outcome.state != "failed" and outcome.same_as is None)
        return next((outcome for outcome in earlier if outcome.values == trial.values), None)

    def complete(self, trial: "Trial", figure: float) -> None:
        """The trial has ended with this figure."""
        self._study.tell(trial.number, figure)

    def prune(self, trial: "Trial") -> None:
        """The trial was pruned. Its folder is removed, before it is told: a kill between leaves a trial that goes on.
        The journal has its validations."""
        durable.remove(trial.folder)
        self._study.tell(trial.number, state=TrialState.PRUNED)

    def fail(self, trial: "Trial") -> None:
        """The trial has no figure, such as one whose loss is not finite. Its folder is removed."""
        durable.remove(trial.folder)
        self._study.tell(trial.number, state=TrialState.FAIL)

    def repeat(self, trial: "Trial", earlier: Outcome) -> None:
        """The trial ends as an earlier one of the same values did."""
        trial.optuna_trial.set_user_attr("same_as", earlier.number)
        if earlier.state == "complete":
            self._study.tell(trial.number, earlier.figure)
        else:
            self._study.tell(trial.number, state=TrialState.PRUNED)


@dataclass(frozen=True)
class Trial:
    """A trial that is not finished: Optuna's, the folder of its run, and the values to try."""

    optuna_trial: optuna.Trial
    folder: Path
    values: dict[str, Any]

    @property
    def number(self) -> int:
        """From 0 on."""
        return self.optuna_trial.number

    def report(self, number: int, figure: float) -> bool:
        """Tell the trial's validation of this number; returns whether the trial should be pruned. After a kill the same
        validation may come again."""
        reported = self.optuna_trial.study.get_trials(deepcopy=False)[self.number].intermediate_values
        if number not in reported and math.isfinite(figure):
            self.optuna_trial.report(figure, number)
        return self.optuna_trial.should_prune()


def _suggest(trial: optuna.Trial, name: str, each: Range | Choices) -> None:
    """Let Optuna suggest a value; an interrupted trial keeps the one that it has."""
    if isinstance(each, Choices):
        trial.suggest_categorical(name, each.values)
    elif isinstance(each.low, int) and isinstance(each.high, int):
        trial.suggest_int(name, each.low, each.high, step=int(each.step or 1), log=each.log)
    else:
        trial.suggest_float(name, each.low, each.high, step=each.step, log=each.log)


@contextmanager
def open_sweep(folder: Path, recipe: Recipe, space: Space, objective: Objective, seed: int) -> Iterator[Sweep]:
    """Create or continue the sweep in a folder, and hold its lock. Raises Locked, RecipeMismatch for a sweep of another
    recipe, and BadData for a damaged one."""
    links.refuse(folder)
    with locks.exclusive(folder):
        links.refuse_below(folder)
        require_recipe(folder, recipe)
        if not (folder / RECIPE_FILE).exists():
            durable.make_folder(folder)
            durable.write_json(folder / RECIPE_FILE, recipe.as_json())
        durable.sweep(folder)
        yield Sweep(folder, space, objective, seed)


def require_recipe(folder: Path, recipe: Recipe) -> None:
    """Raise RecipeMismatch if the folder has a sweep of another recipe, and BadData if it is no sweep."""
    path = folder / RECIPE_FILE
    if not path.exists():
        if folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise BadData(f"{folder} has no {RECIPE_FILE}; restore it, or remove {folder} to begin anew.")
        return
    old = json_reader.read(path, schemas.RECIPE, f"restore it, or remove {folder} to begin anew")
    if changes := differences(old, recipe.as_json()):
        raise RecipeMismatch(
            f"{folder} is a sweep of another recipe ({', '.join(changes)}); choose another --name, or remove it."
        )
