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


def earlier_policy(source: TransferSource, mdnrnn: TrainedMdnRnn, controller: Controller) -> Earlier:
    """To continue the policy of another run, of the same V. With an h in its inputs its validations hold for its own M
    alone. Raises RecipeMismatch for another V or other sizes, and for an evolved C."""
    require_same_network(source, mdnrnn, controller)
    trained, metrics = source.controller, source.controller.artifact.metrics
    if not trained.networks:
        raise RecipeMismatch(
            f"{trained.artifact.folder} was evolved, so it has no critic to continue with; train it with "
            "--algo ppo, or leave --init-from out."
        )
    same = trained.config.memory == "none" or source.mdnrnn.artifact.fingerprint == mdnrnn.artifact.fingerprint
    returns = metrics["validation_return_sampled"], metrics["validation_return_likeliest"]
    return Earlier(trained.networks, str(trained.artifact.folder), (trained.parameters, *returns) if same else None)
