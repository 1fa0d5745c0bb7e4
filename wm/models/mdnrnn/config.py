"""The sizes of M, as plain values."""

from dataclasses import dataclass
from typing import Any

from wm.actions import ActionSpace
from wm.models.mdnrnn.network import MdnRnn
from wm.models.mdnrnn.predictor import Predictor
from wm.models.mdnrnn.rollout_network import RolloutNetwork


@dataclass(frozen=True)
class MdnRnnConfig:
    """The network and the sizes of M, and the actions it was trained on. `mixtures` and `end_weight` are the paper
    network's, `units` the rollout network's."""

    latent: int
    action_space: dict[str, Any]
    hidden: int
    mixtures: int
    end_weight: float
    network: str = "paper"
    units: int = 0

    def build(self) -> Predictor:
        """M with initial weights."""
        width = ActionSpace.from_json(self.action_space).width
        if self.network == "rollout":
            return RolloutNetwork(self.latent, width, self.hidden, self.units)
        return MdnRnn(self.latent, width, self.hidden, self.mixtures, self.end_weight)
