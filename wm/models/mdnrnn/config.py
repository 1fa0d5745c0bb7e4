"""The sizes of M, as plain values."""

from dataclasses import dataclass
from typing import Any

from wm.actions import ActionSpace
from wm.models.mdnrnn.network import MdnRnn


@dataclass(frozen=True)
class MdnRnnConfig:
    """The sizes of M, and the actions it was trained on."""

    latent: int
    action_space: dict[str, Any]
    hidden: int
    mixtures: int
    end_weight: float

    def build(self) -> MdnRnn:
        """M with initial weights."""
        width = ActionSpace.from_json(self.action_space).width
        return MdnRnn(self.latent, width, self.hidden, self.mixtures, self.end_weight)
