"""Schemas of what several files hold: environments, action spaces, recipes, and the manifest of each kind of artifact.

A manifest has the metrics that commands read from it, in their types. Other metrics may be anything.
"""

from typing import Any

import numpy as np

from wm.actions import LARGEST_BOUND, MOST_ACTIONS
from wm.artifacts.json_reader import (
    ANYTHING,
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    TABLE,
    TEXT,
    Mismatch,
    Schema,
    between,
    by_number,
    list_of,
    one_of,
    or_null,
    table,
    table_of,
)
from wm.masks import masked_rows
from wm.stats import Score

# Of a dataset: ours have at most ten. A forged list must not allocate all memory, as numpy does, which gives every name
# the room of the longest one.
MOST_LABELS, LONGEST_LABEL = 256, 100
WIDTH = between(1, 8192)  # of a layer; a forged one must not allocate all memory
ROUNDING = 1e-9  # of a mean, as a share of the largest return: libraries add in other orders


def _mask(value: Any, key: str) -> None:
    TEXT(value, key)
    try:
        masked_rows(value)
    except ValueError:
        raise Mismatch(key, repr(value[:40]), "none, flicker, or rows in percent such as 12-88") from None


# The sides that any version's commands accept, with room; the networks check their own (32 to 128).
_FRAMES = {"size": between(16, 256), "gray": FLAG}
_PLAYED = {
    "action_space": one_of("auto", "discrete", "continuous"),
    "render": one_of("exact", "fast", "gymnasium"),
    "observation": one_of("rgb", "foreground", "motion"),
    "action_repeat": WIDTH,
    "frames": one_of("auto", "observation", "render"),
    "max_steps": COUNT,
    "envs_per_process": COUNT,
    "mask": _mask,
}
ENVIRONMENT = table({"name": TEXT}, _FRAMES | _PLAYED)
_ACTIONS = table({"count": between(0, MOST_ACTIONS), "low": list_of(NUMBER), "high": list_of(NUMBER)})


def action_space(value: Any, key: str) -> None:
    """The schema of an ActionSpace: some discrete actions, or bounds of as many dimensions below as above."""
    _ACTIONS(value, key)
    count, low, high = value["count"], value["low"], value["high"]
    if len(low) != len(high) or bool(count) == bool(low):
        actual = f"of {count} actions with {len(low)} lower and {len(high)} upper bounds"
        raise Mismatch(key, actual, "a number of actions, or a box")
    if len(low) > MOST_ACTIONS:
        raise Mismatch(key, f"a box of {len(low)} dimensions", f"at most {MOST_ACTIONS}")
    if any(abs(bound) > LARGEST_BOUND for bound in (*low, *high)):
        raise Mismatch(key, f"a box with a bound beyond {LARGEST_BOUND:g}", "floats of 32 bits")


def _labels(value: Any, key: str) -> None:
    list_of(TEXT)(value, key)
    longest = max(map(len, value), default=0)
    if len(value) > MOST_LABELS or longest > LONGEST_LABEL:
        actual = f"{len(value)} names of up to {longest} characters"
        raise Mismatch(key, actual, f"at most {MOST_LABELS} of {LONGEST_LABEL} characters")


# Of a dataset that no collecting made: the episodes that were taken, or a digest of them or of the imported files.
_ORIGIN = {"episodes": list_of(list_of(COUNT, 2)), "digest": TEXT, "files": TEXT}
SETTINGS = table({}, {"packages": table_of(or_null(TEXT))}, others=ANYTHING)  # whose differences are told
_RECIPE = {"settings": SETTINGS, "inputs": table_of(TEXT)}
RECIPE = table(_RECIPE, others=ANYTHING)
UNFINISHED = table({"kind": TEXT, **_RECIPE}, others=ANYTHING)  # without a kind's settings: an older version had others
DATASET_RECIPE = table(
    {"env": table({"name": TEXT, **_FRAMES}, _PLAYED), "action_space": action_space, "labels": _labels},
    {
        "env_id": TEXT,
        "seed": INTEGER,
        "policy": TEXT,
        "packages": table_of(or_null(TEXT)),
        "sources": table_of(TEXT),
        "frames": one_of("observation", "render"),
        "max_steps": COUNT,
        "evicts": FLAG,
        "origin": table(
            {"operation": TEXT}, {"datasets": list_of(TEXT), "mixed": list_of(TEXT), "pieces": FLAG, **_ORIGIN}
        ),
    },
    others=ANYTHING,
)
_PROVENANCE = table(
    {
        "wall_seconds": NUMBER,
        "finished": TEXT,
        "versions": table_of(or_null(TEXT)),
        "python": TEXT,
        "machine": TEXT,
        "commit": or_null(TEXT),
        "command": TEXT,
    },
    others=ANYTHING,
)
_SCORE = {"mean": NUMBER, "ci95": NUMBER, "episodes": COUNT}
# Lower and upper end of a 95 % interval; null where too few values were there for one.
_INTERVAL = or_null(list_of(NUMBER, 2))
_BASELINES = ("linear", "persistence", "mean")
_ERRORS = table(
    dict.fromkeys(("M", *_BASELINES), NUMBER),
    {"difference_ci95": table({}, dict.fromkeys(_BASELINES, or_null(NUMBER)))},
)
_OPEN_LOOP = by_number(or_null(_ERRORS), low=1)
_RATE = table(dict.fromkeys(("dream", "real", "events"), NUMBER))
_EVENTS = table({"rates": table({}, dict.fromkeys(("positive", "negative", "end"), _RATE)), "warning": TEXT})
_POSITION_ERRORS = table(
    {"V": or_null(NUMBER)},
    dict.fromkeys(("M", *_BASELINES), by_number(or_null(NUMBER), low=1)),
)


def _position_errors(value: Any, key: str) -> None:
    _POSITION_ERRORS(value, key)
    for step, error in value.get("M", {}).items():
        if error is not None and value.get("persistence", {}).get(step) is None:
            raise Mismatch(f"{key}.persistence.{step}", "missing", "a number, as M has one")


_POSITIONS = table_of(_position_errors)
_PROBE = table({"r2": or_null(NUMBER)}, {"untrained": or_null(NUMBER), "error": or_null(NUMBER), "rows": COUNT})
_VELOCITY = table(dict.fromkeys(("z", "z_untrained_h", "z_h"), or_null(NUMBER)))
_PREDICTORS = ("", "_linear", "_persistence", "_mean")
_DREAM = table(
    {
        "agent": TEXT,
        "policies": COUNT,
        "rho": or_null(NUMBER),
        "rho_ci95": _INTERVAL,
        "rho_last_third": or_null(NUMBER),
        "rho_last_third_ci95": _INTERVAL,
        # Least, median and largest over the dimensions of z.
        "z_variance_ratio": or_null(list_of(NUMBER, 3)),
        "open_loop": _OPEN_LOOP,
        **{
            f"{place}_{name}": NUMBER
            for place in ("dream", "real")
            for name in ("return", "return_ci95", "length", "length_ci95", "ended")
        },
    },
    {"events": _EVENTS},
    others=ANYTHING,
)
_DREAM_OF_DREAMER = table(
    {
        "agent": TEXT,
        "open_loop": by_number(or_null(table({"dream": NUMBER, "persistence": NUMBER, "windows": COUNT}))),
        "reward_correlation": or_null(NUMBER),
    },
    others=ANYTHING,
)
_EVALUATION = table(
    {**_SCORE, "preview": FLAG, "protocol": TEXT, "agent": TEXT},
    {"random": table(_SCORE), "env_steps": COUNT, "returns": list_of(NUMBER)},
    others=ANYTHING,
)
_EVALUATION_OF_AGENT = table({"random": TABLE, "env_steps": COUNT}, others=ANYTHING)


def _dream(value: Any, key: str) -> None:
    of_dreamer = isinstance(value, dict) and value.get("agent") == "dreamer"
    (_DREAM_OF_DREAMER if of_dreamer else _DREAM)(value, key)


def _evaluation(value: Any, key: str) -> None:
    _EVALUATION(value, key)
    if value["agent"] != "random":
        _EVALUATION_OF_AGENT(value, key)
    if len(value.get("returns", ())) > 1:
        _score_of_returns(value, key)


def _score_of_returns(value: Any, key: str) -> None:
    returns = np.array(value["returns"], np.float64)
    score, rounding = Score.of(returns), ROUNDING * np.abs(returns).max()
    # `not <=`, so that a NaN is refused, which compares as false with everything.
    for name, expected in (("mean", score.mean), ("ci95", score.ci95), ("episodes", score.episodes)):
        if not abs(value[name] - expected) <= rounding:
            raise Mismatch(f"{key}.{name}".lstrip("."), f"{value[name]:g}", f"{expected:g}, as of its returns")


_DREAMER = table(
    {
        **dict.fromkeys(
            ("env_steps", "updates", "capacity", "parameters", "training_episodes", "validation_episodes"), COUNT
        ),
        **dict.fromkeys(("training_return", "validation_return", "first_squared_error"), or_null(NUMBER)),
    },
    {"squared_error": NUMBER, **dict.fromkeys(("actor_updates", "validation_steps"), COUNT)},
    others=ANYTHING,
)
_UPDATED_DREAMER = table({"squared_error": NUMBER}, others=ANYTHING)


def _dreamer(value: Any, key: str) -> None:
    _DREAMER(value, key)
    if value["first_squared_error"] is not None:
        _UPDATED_DREAMER(value, key)


# Costs that reports add up over artifacts of all kinds.
_COSTS = table(
    {},
    {
        **dict.fromkeys(
            ("seconds", "seconds_before", "earlier_seconds", "collecting_seconds", "encoding_seconds"), NUMBER
        ),
        **dict.fromkeys(("collected_steps", "env_steps_before"), COUNT),
    },
    others=ANYTHING,
)
_METRICS: dict[str, Schema] = {
    "vae": table(
        {
            **dict.fromkeys(("validation_error", "mean_image_error", "validation_kl"), NUMBER),
            **dict.fromkeys(("best_step", "parameters", "rows", "episodes"), COUNT),
            "probe_summary": TEXT,
        },
        {"probe": or_null(table_of(_PROBE))},
        others=ANYTHING,
    ),
    "latents": table(dict.fromkeys(("rows", "latent", "frames_per_second"), COUNT), others=ANYTHING),
    "mdnrnn": table(
        {
            **{f"{figure}{name}": NUMBER for figure in ("error", "nll") for name in _PREDICTORS},
            "rows": COUNT,
            "open_loop": _OPEN_LOOP,
            "reward": table({"rank_correlation": or_null(NUMBER), "recall": or_null(NUMBER)}, others=ANYTHING),
            "velocity": table_of(_VELOCITY),
            "end": table(dict.fromkeys(("observed", "expected", "brier", "brier_rate"), NUMBER), others=ANYTHING),
        },
        {"positions": _POSITIONS, "newest": table({"positions": _POSITIONS}), "events": _EVENTS},
        others=ANYTHING,
    ),
    "controller": table(
        {
            **dict.fromkeys(
                ("generations", "best_generation", "validation_episodes", "env_steps", "parameters"), COUNT
            ),
            "validation_return": NUMBER,
            "seconds": NUMBER,
            "in": TEXT,
            "head": TEXT,
            "ended": TEXT,
            "means": list_of(COUNT),
        },
        {
            "dream_return": NUMBER,
            "earlier_is_best": FLAG,
            "validation_return_sampled": NUMBER,
            "validation_return_likeliest": NUMBER,
        },
        others=ANYTHING,
    ),
    "dreamer": _dreamer,
    "dream": _dream,
    "evaluation": _evaluation,
}
_SETTINGS: dict[str, Schema] = {
    "vae": table({"network": TEXT, "latent": COUNT}, others=ANYTHING),
    "mdnrnn": table({"validation_share": NUMBER}, {"later_weight": NUMBER}, others=ANYTHING),
    "controller": table(
        {"algo": TEXT},
        {
            "max_generations": COUNT,
            **dict.fromkeys(("target_return", "max_hours"), or_null(NUMBER)),
            **dict.fromkeys(("max_env_steps", "num_envs", "rollout_steps"), or_null(COUNT)),
        },
        others=ANYTHING,
    ),
}
_INPUTS_OF_M = table({"vae": TEXT, "latents": TEXT}, others=TEXT)


def _inputs_of_m(value: Any, key: str) -> None:
    _INPUTS_OF_M(value, key)
    for name in value:
        if name.startswith("latents") and ("/" in name or "\\" in name):  # they are read from the folder of this name
            raise Mismatch(key, f"of {name[:60]!r}", "latents in the same run")


_INPUTS: dict[str, Schema] = {
    "latents": table({"vae": TEXT, "episodes": TEXT}, others=TEXT),
    "mdnrnn": _inputs_of_m,
    "controller": table({"vae": TEXT, "mdnrnn": TEXT}, others=TEXT),
}


def _metrics(kind: str) -> Schema:
    of_kind = _METRICS.get(kind, TABLE)

    def check(value: Any, key: str) -> None:
        of_kind(value, key)
        _COSTS(value, key)

    return check


def recipe(kind: str) -> Schema:
    """The schema of the recipe of an artifact of this kind."""
    settings = _SETTINGS.get(kind, SETTINGS)

    def settings_of_kind(value: Any, key: str) -> None:
        SETTINGS(value, key)
        settings(value, key)

    return table({"settings": settings_of_kind, "inputs": _INPUTS.get(kind, table_of(TEXT))}, others=ANYTHING)


def artifact(kind: str) -> Schema:
    """The schema of the manifest of a finished artifact of this kind."""
    return table(
        {
            **dict.fromkeys(("kind", "sha256", "fingerprint"), TEXT),
            "files": TABLE,
            "recipe": recipe(kind),
            "metrics": _metrics(kind),
            "provenance": _PROVENANCE,
        }
    )
