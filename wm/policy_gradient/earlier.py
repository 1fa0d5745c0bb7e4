"""What a policy gradient continues from: `wm train-controller --init-from`, and every round after the first."""

from dataclasses import dataclass

import numpy as np

from wm.errors import RecipeMismatch
from wm.evolution.transfer import TransferSource, require_same_network
from wm.models.controller import Controller, ControllerConfig
from wm.policy_gradient.network import ActorCritic
from wm.pretrained import TrainedMdnRnn
from wm.training.weights import load_into


@dataclass(frozen=True)
class Earlier:
    """What a training continues from: actor and critic of the earlier one's best policy, and its validation returns, by
    samples and likeliest, where they still hold (else None)."""

    network: ActorCritic
    validations: tuple[float, float] | None


def earlier_policy(
    source: TransferSource,
    mdnrnn: TrainedMdnRnn,
    config: ControllerConfig,
    controller: Controller,
    seed: int,
    episodes: int,
) -> Earlier:
    """To continue the policy of another run, of the same V. Its validations hold if they were of this policy, and of as
    many `episodes` of the same seed; with an h in its inputs, for the same memory alone. Raises RecipeMismatch for
    another V or other sizes, and for an evolved C."""
    require_same_network(source, mdnrnn, controller)
    trained, metrics = source.controller, source.controller.artifact.metrics
    if not trained.networks:
        raise RecipeMismatch(
            f"{trained.artifact.folder} was evolved, so it has no critic to continue with; train it with "
            "--algo ppo, or leave --init-from out."
        )
    network = ActorCritic(controller, seed)
    load_into(network, trained.networks, str(trained.artifact.folder))
    same_memory = trained.config.memory_identity == config.memory_identity
    same_m = trained.config.memory == "none" or source.mdnrnn.artifact.fingerprint == mdnrnn.artifact.fingerprint
    settings = trained.artifact.settings
    same_episodes = (settings.get("seed"), settings.get("validation_episodes")) == (seed, episodes)
    # A training may keep an earlier policy as its best; its validations are then of another one.
    same_policy = np.array_equal(network.parameter_vector(), trained.parameters)
    sampled, likeliest = (metrics.get(f"validation_return_{way}") for way in ("sampled", "likeliest"))
    validations = None
    if same_memory and same_m and same_episodes and same_policy and sampled is not None and likeliest is not None:
        validations = sampled, likeliest
    return Earlier(network, validations)
