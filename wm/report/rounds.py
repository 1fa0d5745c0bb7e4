"""Rounds of learning in the dream: what became of C, of the dream and of M from each to the next.

A round of a curriculum is a run of its own: `runs/Pong`, `runs/Pong.round2`, and so on.
"""

import glob
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from wm.artifacts import runs
from wm.artifacts.runs import Artifact
from wm.errors import BadData, MissingInput
from wm.evolution.search_log import read_log
from wm.model_json import read_env
from wm.report.conclusions import EVENTS, HEADLINE, headline, prediction_ratio
from wm.report.document import Block, Chart, Heading, Paragraph
from wm.report.plots import Curve, Plot, to_svg
from wm.report.returns_plot import validated_in
from wm.stats import Score

MARK = ".round"
Columns = dict[str, list[float | None]]  # a value for each round, by the curve's name


@dataclass(frozen=True)
class Round:
    """C and M of a round, the lines of C's log, and the environment steps of an action."""

    number: int
    controller: Artifact
    mdnrnn: Artifact
    lines: list[dict[str, Any]]
    action_repeat: int = 1

    @property
    def validation(self) -> Score | None:
        """Of the policy at the round's end, in whole real episodes."""
        returns = self.lines[-1].get("validation", []) if validated_in(self.lines) == "real" else []
        return Score.of(np.array(returns, float)) if len(returns) > 1 else None

    @property
    def real_reward(self) -> float | None:
        """Of the same policy in the same episodes, per 1,000 environment steps."""
        last = self.lines[-1]
        steps = last["env_steps"] if last["in"] == "dream" else 0  # in reality, those of training are among them
        return 1000 * sum(last["validation"]) / steps if steps and last.get("validation") else None

    @property
    def dreamt_reward(self) -> float | None:
        """In its last dreams, per 1,000 environment steps, of which a dreamt action stands for `action_repeat`. Where a
        dream ends, another begins, so an iteration has a fixed number of actions."""
        last, settings = self.lines[-1], self.controller.settings
        sizes = [settings.get(name) or 0 for name in ("rollout_steps", "num_envs")]
        steps = sizes[0] * sizes[1] * self.action_repeat if last["in"] == "dream" else 0
        return 1000 * sum(last["returns"]) / steps if steps and last["returns"] else None

    @property
    def error(self) -> float | None:
        """M's squared error on held-out episodes, over that of the best baseline; None where that one has no error."""
        judged = headline(self.mdnrnn.metrics["open_loop"])
        ratio = prediction_ratio(judged[1]) if judged else math.inf
        return ratio if math.isfinite(ratio) else None

    def event_ratio(self, name: str) -> float | None:
        """How often an event happens in dreams, over how often it does after the same states in real episodes."""
        rates = self.mdnrnn.metrics.get("events", {}).get("rates", {}).get(name)
        return rates["dream"] / rates["real"] if rates and rates["real"] > 0 else None


def _split(run: Path) -> tuple[Path, int]:
    """The run of the first round, and which round this run is: 1 unless its name says another."""
    base, mark, number = run.name.rpartition(MARK)
    later = base and mark and number.isascii() and number.isdecimal()
    return (run.with_name(base), int(number)) if later else (run, 1)


def first_of_rounds(run: Path) -> Path:
    """The run of the first round."""
    return _split(run)[0]


def is_continued(run: Path) -> bool:
    """Whether a later round goes on from this run, so that its figures are points of that one's charts."""
    base, number = _split(run)
    return (run.with_name(f"{base.name}{MARK}{number + 1}") / "controller").is_dir()


def read_rounds(run: Path, damaged: list[str] | None = None) -> list[Round]:
    """The rounds up to this run. One that is damaged, unfinished or closed is left out; what is wrong with one before
    this run is added to `damaged`."""
    base, last = _split(run)
    numbers = {_split(folder)[1] for folder in base.parent.glob(f"{glob.escape(base.name)}{MARK}*")}
    rounds = []
    for number in sorted(number for number in {1, *numbers} if 1 <= number <= last):
        folder = base if number == 1 else base.with_name(f"{base.name}{MARK}{number}")
        try:
            controller, mdnrnn, vae = (runs.load(folder / name, name, "") for name in ("controller", "mdnrnn", "vae"))
            if lines := read_log(controller.folder):
                rounds.append(Round(number, controller, mdnrnn, lines, read_env(vae).action_repeat))
        except MissingInput:
            continue
        except BadData as error:
            if damaged is not None and number < last:
                damaged.append(str(error))
        except PermissionError as error:
            if damaged is not None and number < last:
                damaged.append(no_permission(error))
    return rounds


def no_permission(error: PermissionError) -> str:
    """The sentence for what was left out because it may not be read."""
    return f"no permission for {error.filename}; change its permissions."


def rounds_section(run: str, rounds: list[Round]) -> Iterator[Block]:
    """Charts over the rounds of a run; nothing without them."""
    if len(rounds) < 2:
        return
    yield Heading(3, f"{run}: round by round")
    yield Paragraph(
        "Each round collects episodes with the latest C, and continues M on all of them. It continues the best C by "
        "validation so far; at the end this one is evaluated."
    )
    for before, after in pairwise(rounds):
        if before.mdnrnn.inputs["vae"] != after.mdnrnn.inputs["vae"]:
            yield Paragraph(
                f"Round {after.number} trained V and M anew, and a new C, which began by imitating the C before. M's "
                "errors before and after it are in the latents of two Vs."
            )
    if real := _validations(rounds):
        plot = Plot("round", "return of a validation episode", [real], "real return")
        yield Chart(to_svg(plot), "Real return of C at the end of each round: whole episodes of the real environment.")
    charts: list[tuple[str, Columns, str]] = [
        (
            "reward per 1,000 environment steps",
            {"reality": [one.real_reward for one in rounds], "the dream": [one.dreamt_reward for one in rounds]},
            "The same C in reality and in its dreams. Where the dream promises more than reality gives, C exploits M.",
        ),
        (
            "times the best baseline's error",
            {"M": [one.error for one in rounds]},
            f"M's squared error on held-out episodes, {HEADLINE} steps ahead or fewer where episodes are short, over "
            "that of the best of linear prediction, persistence and the mean.",
        ),
        (
            "times as often as in reality",
            {name: [one.event_ratio(key) for one in rounds] for key, name in EVENTS.items()},
            "How often events happen in dreams, over how often they happen after the same states in real episodes.",
        ),
    ]
    for label, columns, caption in charts:
        if curves := _curves(columns, rounds):
            yield Chart(to_svg(Plot("round", label, curves)), caption)


def _validations(rounds: list[Round]) -> Curve | None:
    scores = [(one.number, score) for one in rounds if (score := one.validation)]
    if not scores:
        return None
    low, high = ([score.mean + sign * score.ci95 for _, score in scores] for sign in (-1, 1))
    means = [score.mean for _, score in scores]
    return Curve("latest C, 95 % interval", [number for number, _ in scores], means, low, high)


def _curves(values: Columns, rounds: list[Round]) -> list[Curve]:
    """A curve for each name with a value in two rounds at least."""
    curves = []
    for name, column in values.items():
        points = [(one.number, value) for one, value in zip(rounds, column, strict=True) if value is not None]
        if len(points) > 1:
            curves.append(Curve(name, [number for number, _ in points], [value for _, value in points]))
    return curves
