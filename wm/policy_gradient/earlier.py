"""What a policy gradient continues from: `wm train-controller --init-from`, and every round after the first."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from wm.errors import RecipeMismatch
from wm.evolution.transfer import TransferSource, require_same_network
from wm.models.controller import Controller
from wm.pretrained import TrainedMdnRnn


@dataclass(frozen=True)
class Earlier:
    """What a training continues from: actor and critic as the earlier one left them; and the best policy so far with
    its validation returns, by samples and likeliest, where they still hold (else None)."""

    networks: dict[str, Tensor]
    source: str
    best: tuple[NDArray[np.float32], float, float] | None


def earlier_policy(
    source: TransferSource, mdnrnn: TrainedMdnRnn, controller: Controller, seed: int, episodes: int
) -> Earlier:
    """To continue the policy of another run, of the same V. Its validations hold if they were of as many `episodes` of
    the same seed; with an h in its inputs, for its own M alone. Raises RecipeMismatch for another V or other sizes, and
    for an evolved C."""
    require_same_network(source, mdnrnn, controller)
    trained, metrics = source.controller, source.controller.artifact.metrics
    if not trained.networks:
        raise RecipeMismatch(
            f"{trained.artifact.folder} was evolved, so it has no critic to continue with; train it with "
            "--algo ppo, or leave --init-from out."
        )
    same_inputs = trained.config.memory == "none" or source.mdnrnn.artifact.fingerprint == mdnrnn.artifact.fingerprint
    settings = trained.artifact.settings
    same_episodes = (settings.get("seed"), settings.get("validation_episodes")) == (seed, episodes)
    sampled, likeliest = (metrics.get(f"validation_return_{way}") for way in ("sampled", "likeliest"))
    best = None
    if same_inputs and same_episodes and sampled is not None and likeliest is not None:
        best = trained.parameters, sampled, likeliest
    return Earlier(trained.networks, str(trained.artifact.folder), best)
