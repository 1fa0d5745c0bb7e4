"""What a sweep compares trials by: the validations of the stage."""

from dataclasses import dataclass

from wm.settings import ControllerSettings, Settings


@dataclass(frozen=True)
class Objective:
    """`metric` of the finished artifact, which people call `words`; `logged` is its name in a line of metrics.jsonl.
    Settings that it is `defined_by` cannot be swept: with other weights, or on other frames, a loss is another loss."""

    metric: str
    logged: str
    words: str
    maximize: bool
    defined_by: frozenset[str]


OBJECTIVES = {
    "train-vae": Objective(
        "validation_loss", "validation_loss", "validation loss", False,
        frozenset({
            "reconstruction_nats", "pixel_weighting", "position_targets", "orientation_targets", "position_basis",
            "kl_tolerance", "validation_share", "mixture",
        }),
    ),
    "train-mdnrnn": Objective(
        "validation_loss", "validation_loss", "validation loss", False,
        frozenset({
            "network", "seq_len", "rollout_steps", "warm_up", "end_weight", "validation_share", "mixture",
            "later_weight",
        }),
    ),
    "train-controller": Objective(
        "validation_return", "validation_mean", "validation return", True, frozenset({"validation_episodes"})
    ),
}  # fmt: skip


def validates_in_reality(settings: Settings) -> bool:
    """Whether validations compare trials before their end: returns in the dream also depend on the dream, so they prune
    nothing."""
    return not isinstance(settings, ControllerSettings) or settings.policy_gradient or settings.in_ == "real"
