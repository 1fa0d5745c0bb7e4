"""What a run has shown, in sentences: its score against the random policy, M against its strongest baseline, and the
dream's events against real ones. A difference that its 95 % interval does not tell from zero is none."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from wm.stats import MIN_EVENTS, with_interval
from wm.units import format_rate

PREDICTORS = ("M", "linear", "persistence", "mean")  # of z, as every table and plot orders them
BASELINES = {"linear": "a linear prediction", "persistence": "the unchanged z", "mean": "the mean z"}
HEADLINE = 15  # steps ahead
LARGE_RATIO = 1000  # of errors; M is then compared with next to nothing
HELD_OUT = "on held-out episodes"  # where M predicts
EVENTS = {"positive": "rewards", "negative": "penalties", "end": "ends"}
Errors = Mapping[str, Any]  # squared errors by predictor, of one number of steps


def score_conclusion(score: Mapping[str, Any], target: float | None = None) -> str:
    """A score against the random policy, by the 95 % interval of their difference, and against the threshold of the
    training, if it has one."""
    random = score["random"]
    difference = score["mean"] - random["mean"]
    half = math.hypot(score["ci95"], random["ci95"])
    word = "better" if difference > half else "worse" if difference < -half else "not better"
    text = f"{word} than random ({with_interval(difference, half, '+')})"
    if target is not None:
        margin, named = score["mean"] - target, f"the threshold {target:g}"
        within, side = abs(margin) < score["ci95"], "above" if margin >= 0 else "below"
        text += f"; {named} is within its interval" if within else f"; {side} {named}"
    return text


def best_baseline(errors: Errors) -> str:
    """The name of the baseline with the smallest error."""
    return min((name for name in BASELINES if name in errors), key=lambda name: errors[name])


def prediction_ratio(errors: Errors) -> float:
    """M's error as a share of the best baseline's; 1 and more: no better."""
    reference = errors[best_baseline(errors)]
    if reference > 0:
        return float(errors["M"] / reference)
    return math.inf if errors["M"] > 0 else 1.0  # of a constant z, baselines have no error


def format_ratio(errors: Errors) -> str:
    """The ratio with two digits, as far as they tell anything."""
    ratio = prediction_ratio(errors)
    return f"{ratio:.2f}" if ratio < LARGE_RATIO else f"over {LARGE_RATIO:,}"


def prediction_word(errors: Errors) -> str:
    """Whether M is better or worse than the best baseline, or no better, by the 95 % interval of the difference; empty
    where that is not known: of few episodes, and in artifacts of earlier versions."""
    name = best_baseline(errors)
    half = errors.get("difference_ci95", {}).get(name)
    if half is None:
        return ""
    difference = errors["M"] - errors[name]
    return "better" if difference < -half else "worse" if difference > half else "no better"


def headline(open_loop: Mapping[str, Errors | None]) -> tuple[int, Errors] | None:
    """The errors by which M is judged, and how many steps ahead: 15, or fewer where episodes are short; None where they
    are too short for any."""
    known = {int(step): errors for step, errors in open_loop.items() if errors and int(step) <= HEADLINE}
    return max(known.items()) if known else None


def prediction_summary(open_loop: Mapping[str, Errors | None]) -> str:
    """M's error as a share of the best baseline's, and what its interval says, in a few words; a dash if unknown."""
    if (judged := headline(open_loop)) is None:
        return "–"
    step, errors = judged
    ahead = "" if step == HEADLINE else f" ({_steps(step)})"
    return ", ".join(filter(None, [f"{format_ratio(errors)}{ahead}", prediction_word(errors)]))


def prediction_conclusion(open_loop: Mapping[str, Errors | None], where: str) -> str:
    """M against its best baseline in a sentence; empty where episodes are too short."""
    if (judged := headline(open_loop)) is None:
        return ""
    step, errors = judged
    best, word, ratio = best_baseline(errors), prediction_word(errors), format_ratio(errors)
    ahead = f"{BASELINES[best]} {_steps(step)} ahead {where}"
    if not word:
        return f"M has {ratio} times the squared error of {ahead}; without an interval."
    difference = f"{errors['M'] - errors[best]:+.2g} ± {errors['difference_ci95'][best]:.2g}"
    return f"M is {word} than {ahead}: {ratio} times its squared error (difference {difference})."


def _steps(count: int) -> str:
    return f"{count} step" + ("s" if count != 1 else "")


def dream_conclusions(metrics: Mapping[str, Any]) -> str:
    """What a comparison of dreams with real episodes has shown, in sentences."""
    where = f"on {whose(metrics['agent'])} episodes"
    return " ".join(filter(None, (event_conclusion(metrics), prediction_conclusion(metrics["open_loop"], where))))


def whose(policies: str) -> str:
    """Whose episodes a comparison has, by its description of the `policies`: in a run without C a random one's."""
    return "a random linear policy's" if policies.startswith("random") else "the controller's"


def event_conclusion(metrics: Mapping[str, Any]) -> str:
    """Whether dreams pay and end as often as the real environment does, of events that happened often enough to tell;
    empty in artifacts of earlier versions."""
    if "events" not in metrics:
        return ""
    if warning := str(metrics["events"]["warning"]):
        return warning
    rates = metrics["events"]["rates"]
    counts = {name: rates[key]["events"] for key, name in EVENTS.items() if key in rates}
    often = [name for name, count in counts.items() if count >= MIN_EVENTS]
    rare = [name for name, count in counts.items() if 0 < count < MIN_EVENTS]
    if not often:
        return "There are too few rewards and ends to compare dreams with real episodes."
    text = f"{_joined(often).capitalize()} are as frequent in dreams as in real episodes, within a factor of two"
    return text + (f"; there are too few {_joined(rare)} to tell." if rare else ".")


def _joined(names: Sequence[str]) -> str:
    """`rewards, penalties and ends`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def event_rates(metrics: Mapping[str, Any]) -> str:
    """How often dreams and real episodes pay and end, in a sentence; empty in artifacts of earlier versions."""
    rates = metrics.get("events", {}).get("rates", {})
    parts = [
        f"{name} {format_rate(rates[key]['dream'])} against {format_rate(rates[key]['real'])}"
        for key, name in EVENTS.items()
        if key in rates
    ]
    return f"In 1,000 steps of dreams and of real episodes: {', '.join(parts)}." if parts else ""


def ranking_conclusion(metrics: Mapping[str, Any]) -> str:
    """Whether the dream ranks policies as the real environment does; empty where the correlation has no interval."""
    if metrics["rho"] is None or not metrics["rho_ci95"]:
        return ""
    if metrics["rho_ci95"][0] > 0:
        return "The dream ranks policies as the real environment does."
    if metrics["rho_ci95"][1] < 0:
        return "The dream ranks policies in the opposite order: its better ones are worse in the real environment."
    return "The dream is not shown to rank policies as the real environment does."
