"""Experiment trackers: the metrics of metrics.jsonl in TensorBoard, Weights & Biases, Trackio and MLflow.

A tracker is no part of a recipe. `trackers.json` in the artifact's folder names its run there, so that a training that
resumes continues the same run; steps that it was told before an interruption are not told again. A tracker that joins
later is told the earlier lines first.
"""

import contextlib
import importlib
import io
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from wm import extras
from wm.artifacts import durable, json_reader
from wm.artifacts.json_reader import INTEGER, TEXT, table, table_of
from wm.artifacts.runs import RECIPE_FILE, read_recipe
from wm.errors import Unreachable, UsageProblem
from wm.runtime import Tracker
from wm.telemetry import metrics_log
from wm.telemetry.tensorboard import OpenTensorBoard

NAME = "trackers.json"
PROJECT = "wm"  # in which a tracker lists the runs
EXTRA = {"tensorboard": "tb", "wandb": "wandb", "trackio": "trackio", "mlflow": "mlflow"}  # of each tracker
_SCHEMA = table_of(table({"run": TEXT, "step": INTEGER}))


def parse_names(text: str) -> tuple[str, ...]:
    """The trackers in a list such as `tensorboard,wandb`. Raises UsageProblem for an unknown one, and MissingPackage
    where its package is not installed."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in EXTRA:
            raise UsageProblem(f"--track has {name!r}; expected {', '.join(EXTRA)}, separated by commas.")
    for name in names:
        extras.require(EXTRA[name], f"--track {name}")
    return names


class Trackers:
    """Several trackers as one. One that fails while it runs is left out with a line in `log`; one that cannot begin
    raises Unreachable. Pictures are for TensorBoard, if it is among them."""

    def __init__(self, names: Sequence[str], log: Callable[[str], None]) -> None:
        self._services = [name for name in names if name in _SERVICES]
        self._board = OpenTensorBoard(log) if "tensorboard" in names else None
        self._log = log

    def __call__(self, folder: Path, step: int) -> Tracker:
        """Open them all for the training in a folder."""
        path, lines = folder / NAME, [line.value for line in metrics_log.chained(folder)]
        known = json_reader.read(path, _SCHEMA) if path.exists() else {}
        last = max((line["step"] for line in lines), default=-1)  # it was told all of them before an interruption
        members: list[Tracker] = [self._board(folder, step)] if self._board else []
        for name in self._services:
            old = known.get(name)
            service = _begin(name, folder, old and old["run"])
            known[name] = {"run": service.run, "step": max(old["step"], last) if old else step}
            durable.write_json(path, known)
            member = _Member(name, service, known[name]["step"], self._log)
            members.append(member)
            for line in lines if old is None else ():
                if line["step"] <= step:
                    member.tell(line["step"], line)
        return _Several(members)

    def add_image(self, folder: Path, step: int, name: str, png: bytes) -> None:
        """Tell TensorBoard."""
        if self._board:
            self._board.add_image(folder, step, name, png)


class _Member:
    """A service that is told no step twice. Once it has failed it is left out."""

    def __init__(self, name: str, service: "Service", last_step: int, log: Callable[[str], None]) -> None:
        self._name, self._last_step, self._log = name, last_step, log
        self._service: Service | None = service

    def add_scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics of a step."""
        if step > self._last_step:
            self.tell(step, values)

    def tell(self, step: int, values: Mapping[str, Any]) -> None:
        """Metrics of a step, whether it was told before or not; only numbers."""
        figures = {name: value for name, value in values.items() if isinstance(value, int | float) and name != "step"}
        self._attempt(lambda service: service.log(step, figures))

    def close(self) -> None:
        """Finish the run for now."""
        self._attempt(lambda service: service.finish())

    def _attempt(self, act: Callable[["Service"], None]) -> None:
        if self._service is None:
            return
        try:
            # Services print to stdout, which is for results.
            with contextlib.redirect_stdout(io.StringIO()):
                act(self._service)
        except Exception as error:  # a network that is down costs curves, not the training
            self._service = None
            problem = " ".join(str(error).split())[:200] or type(error).__name__
            self._log(f"warning: {self._name} gets no more metrics: {problem}")


class _Several:
    """Trackers as one."""

    def __init__(self, members: Sequence[Tracker]) -> None:
        self._members = members

    def add_scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics of a step."""
        for member in self._members:
            member.add_scalars(step, values)

    def close(self) -> None:
        """Close them all."""
        for member in self._members:
            member.close()


def _begin(name: str, folder: Path, run: str | None) -> "Service":
    recipe = read_recipe(folder) if (folder / RECIPE_FILE).exists() else {}
    # So many last folders name the run: its environment and artifact.
    first = 3 if folder.parent.name.startswith("trial-") else 2  # a trial's run stands in that of its sweep
    title = "/".join((*folder.parts[-first:-1], folder.name.removesuffix(".partial")))
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # stdout is for results
            return _SERVICES[name](title, recipe.get("settings", {}), run)
    except Exception as error:  # of a package that may raise anything: no login, no network, another version
        problem = " ".join(str(error).split())[:200] or type(error).__name__
        raise Unreachable(f"--track {name} cannot begin a run ({problem}); mend that, or leave it out.") from None


class Service(Protocol):
    """A run in a tracker. `run` is what continues it."""

    run: str

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics of a step."""

    def finish(self) -> None:
        """No more for now."""


class _Wandb:
    def __init__(self, title: str, settings: Mapping[str, Any], run: str | None) -> None:
        wandb = importlib.import_module("wandb")
        self.run = run or uuid.uuid4().hex[:16]
        # silent and without its console: it would repaint over our progress bars.
        quiet = wandb.Settings(silent=True, console="off")
        self._run = wandb.init(
            project=PROJECT, name=title, id=self.run, resume="allow", config=dict(settings), settings=quiet
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self) -> None:
        self._run.finish()


class _Trackio:
    def __init__(self, title: str, settings: Mapping[str, Any], run: str | None) -> None:
        trackio = importlib.import_module("trackio")
        self.run = run or f"{title} {uuid.uuid4().hex[:8]}"  # runs are continued by their name
        self._run = trackio.init(project=PROJECT, name=self.run, resume="allow", config=dict(settings), embed=False)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self) -> None:
        self._run.finish()


class _MlFlow:
    def __init__(self, title: str, settings: Mapping[str, Any], run: str | None) -> None:
        self._mlflow = importlib.import_module("mlflow")
        self._client = self._mlflow.MlflowClient()
        if run is None:
            experiment = self._mlflow.set_experiment(PROJECT).experiment_id
            run = self._client.create_run(experiment, run_name=title).info.run_id
            for name, value in settings.items():
                self._client.log_param(run, name, value)
        self.run: str = run
        self._client.update_run(run, status="RUNNING")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step, run_id=self.run)

    def finish(self) -> None:
        self._client.set_terminated(self.run)


_SERVICES: dict[str, Callable[[str, Mapping[str, Any], str | None], Service]] = {
    "wandb": _Wandb,
    "trackio": _Trackio,
    "mlflow": _MlFlow,
}
