"""Trackers of metrics, each through its own package, offline."""

import sqlite3
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from wm.artifacts.runs import RECIPE_FILE
from wm.errors import BadData, MissingPackage, Unreachable, UsageProblem
from wm.telemetry import trackers
from wm.telemetry.metrics_log import MetricsLog, read

STEPS = (10, 20, 30, 40)


def train(folder: Path, names: tuple[str, ...], first: int, last: int, log: Any = print) -> None:
    """What a training writes from one step to another, validations included."""
    metrics = MetricsLog(folder, first, log=log, track=trackers.Trackers(names, log))
    for step in (step for step in STEPS if first < step <= last):
        metrics.write(step, {"loss": 1.0 / step})
    metrics.close()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("wandbb", "--track has 'wandbb'; expected tensorboard, wandb, trackio, mlflow, separated by commas."),
        ("tensorboard,", "--track has ''; expected tensorboard"),
    ],
)
def test_an_unknown_tracker_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        trackers.parse_names(text)
    assert str(raised.value).startswith(sentence)


def test_a_tracker_that_is_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"^--track mlflow needs mlflow; run `pip install -e '.\[mlflow\]'`.$"):
        trackers.parse_names("mlflow")


class Recorded:
    """A tracker in memory, with the runs of all its instances."""

    told: dict[str, list[tuple[int, float]]]
    fails = False

    def __init__(self, title: str, settings: Mapping[str, Any], run: str | None) -> None:
        if self.fails:
            raise ConnectionError("no\nlogin")
        self.run = run or f"{title} {len(self.told)}"
        self.told.setdefault(self.run, [])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self.fails:
            raise ConnectionError("the network is down")
        self.told[self.run].append((step, values["loss"]))

    def finish(self) -> None:
        pass


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    monkeypatch.setattr(Recorded, "told", {}, raising=False)
    monkeypatch.setitem(trackers._SERVICES, "wandb", Recorded)
    return Recorded


def test_a_training_that_resumes_twice_has_every_step_once_in_one_run(recorded: type[Recorded], tmp_path: Path) -> None:
    folder = tmp_path / "Pong" / "vae.partial"
    folder.mkdir(parents=True)
    train(folder, ("wandb",), -1, 30)
    train(folder, ("wandb",), 10, 20)
    train(folder, ("wandb",), 10, 40)
    assert recorded.told == {"Pong/vae 0": [(step, 1.0 / step) for step in STEPS]}
    assert [line["step"] for line in read(folder)] == list(STEPS)


def test_a_tracker_that_joins_later_is_told_the_earlier_steps(recorded: type[Recorded], tmp_path: Path) -> None:
    train(tmp_path, (), -1, 30)
    train(tmp_path, ("wandb",), 20, 40)
    (told,) = recorded.told.values()
    assert [step for step, _ in told] == list(STEPS)


def test_a_tracker_that_cannot_begin_ends_the_command(recorded: type[Recorded], tmp_path: Path) -> None:
    recorded.fails = True
    sentence = r"^--track wandb cannot begin a run \(no login\); mend that, or leave it out.$"
    with pytest.raises(Unreachable, match=sentence):
        train(tmp_path, ("wandb",), -1, 10)
    recorded.fails = False


def test_a_tracker_that_fails_later_costs_a_warning(
    recorded: type[Recorded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    metrics = MetricsLog(tmp_path, -1, track=trackers.Trackers(("wandb",), lines.append))
    monkeypatch.setattr(recorded, "fails", True)
    for step in STEPS:
        metrics.write(step, {"loss": 1.0 / step})
    metrics.close()
    assert lines == ["warning: wandb gets no more metrics: the network is down"]
    assert len(read(tmp_path)) == len(STEPS)


def in_three_parts(folder: Path, name: str) -> None:
    """A training that is interrupted twice."""
    for first, last in ((-1, 30), (10, 20), (10, 40)):
        train(folder, (name,), first, last)


def transactions(path: Path) -> Iterator[bytes]:
    """The records of an offline run: LevelDB's log format, after a header of 7 bytes, in a file of one block."""
    data, start = path.read_bytes(), 7
    assert len(data) < 32768
    while start + 7 <= len(data):
        (length,) = struct.unpack("<H", data[start + 4 : start + 6])
        yield data[start + 7 : start + 7 + length]
        start += 7 + length


@pytest.mark.extra("wandb")
@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_has_every_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    (tmp_path / "vae.partial").mkdir()
    in_three_parts(tmp_path / "vae.partial", "wandb")
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # its process has written everything when it ends
    steps, runs = [], set()
    for path in sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb")):
        for data in transactions(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            runs |= {record.run.run_id} - {""}
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            if "loss" in items:
                steps.append(int(items["_step"]))
                assert float(items["loss"]) == 1.0 / steps[-1]
    assert len(runs) == 1
    assert sorted(steps) == list(STEPS)


@pytest.mark.extra("mlflow")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_every_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (tmp_path / "vae.partial").mkdir()
    in_three_parts(tmp_path / "vae.partial", "mlflow")
    (run,) = mlflow.MlflowClient().search_runs([mlflow.get_experiment_by_name("wm").experiment_id])
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(step, 1.0 / step) for step in STEPS]
    assert run.info.status == "FINISHED"


@pytest.mark.extra("trackio")
@pytest.mark.filterwarnings("ignore")
def test_trackio_has_every_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    (tmp_path / "vae.partial").mkdir()
    in_three_parts(tmp_path / "vae.partial", "trackio")
    assert capsys.readouterr().out == ""
    (database,) = (tmp_path / "trackio").glob("wm*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select run_name, step from metrics order by step").fetchall()
    assert [step for _, step in rows] == list(STEPS)
    assert len({name for name, _ in rows}) == 1


def test_a_tracker_is_told_settings_of_a_recipe_alone(recorded: type[Recorded], tmp_path: Path) -> None:
    (tmp_path / RECIPE_FILE).write_text('{"kind": "vae", "settings": [["loss", 1]], "inputs": {}}')
    with pytest.raises(BadData, match=r"recipe.json: settings is a list of 1 values; expected a table"):
        trackers.Trackers(["wandb"], print)(tmp_path, 0)
    assert not recorded.told
