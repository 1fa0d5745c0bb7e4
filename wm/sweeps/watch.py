"""Follows the validations of a trial while it trains, and ends it where Optuna's pruner says so."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from wm.errors import Stopped
from wm.runtime import OpenTracker, Runtime, Tracker
from wm.sweeps.objective import Objective
from wm.sweeps.sweep import Trial
from wm.telemetry import metrics_log
from wm.telemetry.tensorboard import OpenTensorBoard


class Pruned(Stopped):
    """A trial is worse than the median of those before at the same validation; its training ends as at a signal."""

    def __init__(self) -> None:
        super().__init__(0)


class Watch:
    """Watches one trial. With `prunes` it ends the training after a validation that is worse than the median."""

    def __init__(self, trial: Trial, objective: Objective, prunes: bool) -> None:
        self.pruned = False
        self._trial, self._objective, self._prunes = trial, objective, prunes

    def runtime(self, runtime: Runtime) -> Runtime:
        """The same, with a training that is watched."""

        def raise_if_stopped() -> None:
            runtime.raise_if_stopped()
            if self.pruned:
                raise Pruned

        return replace(
            runtime,
            track=_OpenWatching(self, runtime.track or OpenTensorBoard(runtime.log)),
            stop_requested=lambda: self.pruned or runtime.stop_requested(),
            raise_if_stopped=raise_if_stopped,
        )

    def validated(self, number: int, figure: float) -> None:
        """The validation of this number, from 0 on, gave this figure."""
        self.pruned = self._trial.report(number, figure) and self._prunes

    @property
    def objective(self) -> Objective:
        """What is watched."""
        return self._objective


class _OpenWatching:
    """Trackers, and a Watch that is told the validations."""

    def __init__(self, watch: Watch, inner: OpenTracker) -> None:
        self._watch, self._inner = watch, inner

    def __call__(self, folder: Path, step: int) -> Tracker:
        """Both, from this step on; the log has the validations up to it."""
        lines = (line.value for line in metrics_log.chained(folder))
        validations = sum(self._watch.objective.logged in line for line in lines if line["step"] <= step)
        return _Watching(self._watch, self._inner(folder, step), validations)

    def add_image(self, folder: Path, step: int, name: str, png: bytes) -> None:
        """Tell the trackers."""
        self._inner.add_image(folder, step, name, png)


class _Watching:
    """A tracker that passes on what it is told, and tells the validations to a Watch."""

    def __init__(self, watch: Watch, inner: Tracker, validations: int) -> None:
        self._watch, self._inner, self._validations = watch, inner, validations

    def add_scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics of a step."""
        self._inner.add_scalars(step, values)
        if (figure := values.get(self._watch.objective.logged)) is not None:
            self._watch.validated(self._validations, figure)
            self._validations += 1

    def close(self) -> None:
        """Close the tracker within."""
        self._inner.close()
