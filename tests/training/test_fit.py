import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from wm.artifacts.runs import Artifact
from wm.errors import BadData, MemoryProblem, MissingPackage, Stopped, UsageProblem
from wm.ranks import PartDone
from wm.runtime import Runtime
from wm.settings import GradientSettings
from wm.telemetry import metrics_log
from wm.training.fit import compile_if_asked, fit, pick_precision
from wm.training.loop import Trainer
from wm.training.precision import Precision


class Program:
    """A runtime that keeps its log and stops after a signal."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stopping = False

    def runtime(self) -> Runtime:
        return Runtime(
            time.monotonic,
            log=self.lines.append,
            stop_requested=lambda: self.stopping,
            raise_if_stopped=self.raise_if_stopped,
        )

    def raise_if_stopped(self) -> None:
        if self.stopping:
            raise Stopped(15)


def train(
    folder: Path,
    program: Program | None = None,
    stop_at: int = -1,
    losses: dict[int, float] | None = None,
    bad: Callable[[int, float], bool] = lambda step, rate: False,
    patience: int = 0,
) -> dict[str, float]:
    """Train one layer for 20 steps. `losses` are validation losses by number, `bad` returns whether a step has none."""
    program = program or Program()
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    validations = iter(range(100))

    def loss(step: int) -> tuple[Tensor, dict[str, Tensor]]:
        if step == stop_at:
            program.stopping = True
        value = model(torch.ones(1, 2)).square().sum()
        return value * (math.nan if bad(step, trainer.rate) else 1), {"loss": value}

    def validate() -> dict[str, float]:
        number = next(validations)
        return {"validation_loss": (losses or {}).get(number, 1.0 - number / 100)}

    settings = GradientSettings(steps=20, validate_every=5, learning_rate=0.1, patience=patience)
    precision = Precision("fp32", torch.device("cpu"))
    trainer = Trainer(model, loss, precision, steps=20, learning_rate=0.1, clip=1.0)
    return fit(program.runtime(), folder, "test", trainer, validate, lambda batch: f"batch {batch}", settings)


def validated(folder: Path) -> list[int]:
    return [line["step"] for line in metrics_log.read(folder) if "validation_loss" in line]


def test_the_best_weights_are_restored(tmp_path: Path) -> None:
    scores = train(tmp_path, losses={1: 3.0, 2: 0.5, 3: 2.0, 4: 1.0})
    assert (scores["best_step"], scores["validation_loss"]) == (10, 0.5)
    assert validated(tmp_path) == [0, 5, 10, 15, 20]


def test_a_signal_saves_the_current_step_and_the_next_run_resumes_there(tmp_path: Path) -> None:
    with pytest.raises(Stopped) as stopped:
        train(tmp_path, stop_at=12)
    assert stopped.value.exit_code == 143
    program = Program()
    resumed = train(tmp_path, program)
    assert "test: resumes at step 13 of 20" in program.lines
    assert validated(tmp_path) == [0, 5, 10, 15, 20]
    stopped_at = next(line for line in metrics_log.read(tmp_path) if line["step"] == 13)
    assert resumed.get("earlier_seconds", 0.0) == stopped_at["seconds"]


def test_what_earlier_sessions_took_is_part_of_an_artifacts_time(tmp_path: Path) -> None:
    body = {"provenance": {"wall_seconds": 30.0}, "metrics": {"earlier_seconds": 12.5}}
    assert Artifact(tmp_path, body).wall_seconds == 42.5


def test_a_stop_does_not_change_which_weights_are_the_best(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", losses={1: 3.0, 2: 0.5, 3: 2.0, 4: 1.0})
    with pytest.raises(Stopped):
        train(tmp_path / "stopped", stop_at=12, losses={1: 3.0, 2: 0.5, 3: 0.1})
    stopped = train(tmp_path / "stopped", losses={0: 2.0, 1: 1.0})
    assert (stopped["best_step"], stopped["validation_loss"]) == (whole["best_step"], whole["validation_loss"])


def test_it_ends_when_validation_has_not_improved_for_a_while(tmp_path: Path) -> None:
    program = Program()
    scores = train(tmp_path, program, losses={1: 0.1}, patience=2)
    assert (scores["best_step"], scores["steps"]) == (5, 15)
    assert "test: ended at step 15, 2 validations after its best" in program.lines
    resumed = train(tmp_path, losses={0: 0.0}, patience=2)
    assert resumed["steps"] == 15


def test_a_few_steps_without_a_finite_loss_are_skipped_and_logged(tmp_path: Path) -> None:
    program = Program()
    scores = train(tmp_path, program, bad=lambda step, _: step in (6, 8))
    assert scores["skipped"] == 2
    assert "test: 2 steps were skipped because their loss was not finite" in program.lines


def test_steps_skipped_before_a_stop_are_counted_after_it(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train(tmp_path, stop_at=15, bad=lambda step, _: step in (6, 8))
    program = Program()
    assert train(tmp_path, program, bad=lambda step, _: step == 18)["skipped"] == 3
    assert "test: 3 steps were skipped because their loss was not finite" in program.lines


def test_more_of_them_return_training_to_its_checkpoint_at_half_the_rate(tmp_path: Path) -> None:
    program = Program()
    scores = train(tmp_path, program, bad=lambda step, rate: step >= 10 and rate > 0.5)
    assert scores["steps"] == 20
    assert "not finite in 5 steps from step 10 on (batch 10); resumes from step 10" in program.lines[0]
    assert validated(tmp_path) == [0, 5, 10, 15, 20]


def test_if_half_the_rate_does_not_help_the_batch_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"in 5 steps from step 10 on \(batch 10\), at half the learning rate too"):
        train(tmp_path, bad=lambda step, _: step >= 10)
    with pytest.raises(BadData, match="the validation loss is nan at step 5"):
        train(tmp_path / "other", losses={1: math.nan})


def test_no_step_is_validated_twice_after_a_failure_before_the_second_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(BadData):
        train(tmp_path, losses={1: math.nan})
    train(tmp_path)
    assert validated(tmp_path) == [0, 5, 10, 15, 20]


class TwoRanks:
    """As Ranks of two processes, of which this is one. The other one leads for seven steps; or it follows, and exceeds
    its memory limit from step 7 on."""

    count = 2

    def __init__(self, leads: bool) -> None:
        self.leads, self.told = leads, list[list[int]]()

    def sum(self, values: list[int]) -> list[int]:
        self.told.append(values)
        if self.leads:
            return [*values[:3], int(values[1] >= 7)]
        return [1, len(self.told), *values[2:]] if len(self.told) < 8 else [3, 0, 0, 0]

    def tell(self, word: str) -> None:
        pass

    def meet(self) -> None:
        pass

    def send(self, data: bytes) -> bytes:
        return data


def train_with(ranks: TwoRanks, folder: Path, limit: int) -> None:
    program = Program()
    whole = program.runtime
    program.runtime = lambda: replace(whole(), ranks=ranks, memory_limit=limit)  # type: ignore[method-assign,arg-type]
    train(folder, program)


def test_another_process_above_the_memory_limit_ends_all_with_a_checkpoint(tmp_path: Path) -> None:
    ranks = TwoRanks(leads=True)
    with pytest.raises(MemoryProblem, match=r"processes of torchrun, 1 exceed --memory-limit .* at step 8\."):
        train_with(ranks, tmp_path, 10**12)
    assert ranks.told[-1][0] == 3, "and is told to end"
    program = Program()
    train(tmp_path, program)
    assert "test: resumes at step 8 of 20" in program.lines


@pytest.mark.parametrize(("limit", "exceeds"), [(1, 1), (10**12, 0)])
def test_a_process_tells_the_first_one_whether_it_is_above_the_memory_limit(
    limit: int, exceeds: int, tmp_path: Path
) -> None:
    ranks = TwoRanks(leads=False)
    with pytest.raises(PartDone):
        train_with(ranks, tmp_path, limit)
    assert ranks.told == [[0, 0, 0, exceeds]] * 8


def test_a_machine_that_cannot_compile_is_told_so_and_no_setting_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a UsageProblem: each trial of `wm sweep` would fail of its values, one after the other."""

    def no_compiler(*_: Tensor) -> Tensor:
        raise torch._dynamo.exc.TorchDynamoException("No working C++ compiler found\nand more")

    monkeypatch.setattr(torch, "compile", lambda _: no_compiler)
    loss = compile_if_asked(torch.square, True)
    with pytest.raises(MissingPackage, match=r"not work here \(No working C\+\+ compiler found\); leave"):
        loss(torch.zeros(1))


def test_a_format_in_which_the_cpu_has_no_lstm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(*_: object) -> None:
        raise RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive")

    monkeypatch.setattr(torch.nn.LSTM, "forward", forward)
    cpu, with_lstm = torch.device("cpu"), torch.nn.Sequential(torch.nn.LSTM(1, 1))
    with pytest.raises(UsageProblem, match="--precision is 'bf16' but torch has no LSTM in that format on this CPU"):
        pick_precision("bf16", cpu, with_lstm)
    assert pick_precision("bf16", cpu, torch.nn.Linear(1, 1)).name == "bf16"
    assert pick_precision("fp32", cpu, with_lstm).name == "fp32"
