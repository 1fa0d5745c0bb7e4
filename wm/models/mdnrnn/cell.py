"""M for acting and dreaming, whichever network it is."""

import torch

from wm.models.mdnrnn.inference import MdnRnnCell
from wm.models.mdnrnn.network import MdnRnn
from wm.models.mdnrnn.predictor import Cell, Predictor
from wm.models.mdnrnn.rollout_inference import RolloutCell
from wm.models.mdnrnn.rollout_network import RolloutNetwork


def make_cell(model: Predictor, rows: int, dtype: torch.dtype = torch.float32) -> Cell:
    """Steps with an M whose weights are final, fastest with `rows` dreams at a time; matrix products in `dtype`."""
    if isinstance(model, MdnRnn):
        return MdnRnnCell(model, rows, dtype)
    assert isinstance(model, RolloutNetwork)
    return RolloutCell(model, rows, dtype)
