"""What a run has shown, in sentences: its score against the random policy, M against its strongest baseline, and the
dream's ranking. A difference that its 95 % interval does not tell from zero is none."""

import math
from collections.abc import Mapping
from typing import Any

PREDICTORS = ("M", "linear", "persistence", "mean")  # of z, as every table and plot orders them
BASELINES = {"linear": "a linear prediction", "persistence": "the unchanged z", "mean": "the mean z"}
HEADLINE = "15"  # steps ahead
Errors = Mapping[str, float]


def score_verdict(score: Mapping[str, Any], target: float | None = None) -> str:
    """A score against the random policy, by the 95 % interval of their difference, and against the threshold of the
    training, if it has one."""
    random = score["random"]
    difference = score["mean"] - random["mean"]
    half = math.hypot(score["ci95"], random["ci95"])
    word = "better" if difference > half else "worse" if difference < -half else "not better"
    text = f"{word} than random ({difference:+.1f} ± {half:.1f})"
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
    return errors["M"] / reference if reference > 0 else 1.0


def prediction_verdict(open_loop: Mapping[str, Errors | None], where: str) -> str:
    """M against its strongest baseline, at most 15 steps ahead; empty where episodes are too short."""
    known = {int(step): errors for step, errors in open_loop.items() if errors and int(step) <= int(HEADLINE)}
    if not known:
        return ""
    step = max(known)
    errors = known[step]
    ratio, name = prediction_ratio(errors), BASELINES[best_baseline(errors)]
    word = "no better than" if ratio >= 1 else "better than"
    return f"M is {word} {name} {step} steps ahead {where}: {ratio:.2f} times its squared error."


def ranking_verdict(metrics: Mapping[str, Any]) -> str:
    """Whether the dream ranks policies as the real environment does; empty where the correlation has no interval."""
    if metrics["rho"] is None or not metrics["rho_ci95"]:
        return ""
    if metrics["rho_ci95"][0] > 0:
        return "The dream ranks policies as the real environment does."
    return "The dream is not shown to rank policies as the real environment does."
