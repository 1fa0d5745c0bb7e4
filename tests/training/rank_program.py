"""A process of a training by several: `python -m tests.training.rank_program`, with the variables of torchrun."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from wm.episodes.pieces import WHOLE, Piece
from wm.errors import UsageProblem
from wm.ranks import TRAIN, PartDone, Ranks, open_ranks
from wm.training.loop import Trainer
from wm.training.orders import Orders, obey
from wm.training.pieces import PieceGradients
from wm.training.precision import Precision

BATCH = 20


def make_trainer(ranks: Ranks | None, pieces: int = 8, seed: int = 0) -> Trainer:
    """Two convolutions, whose weights are channels_last, on batches of noise; two batches are a step."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Tanh(), nn.Conv2d(5, 2, 3)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def loss(number: int, piece: Piece = WHOLE) -> tuple[Tensor, dict[str, Tensor]]:
        first, stop = piece.rows(BATCH)
        images = torch.randn(BATCH, 3, 8, 8, generator=torch.Generator().manual_seed(number))[first:stop]
        total = model(images).square().sum() / BATCH
        return total, {"loss": total}

    split = PieceGradients(loss, pieces, ranks) if pieces > 1 else None
    precision = Precision("fp32", torch.device("cpu"))
    return Trainer(model, loss, precision, steps=8, learning_rate=0.01, clip=1.0, accumulate=2, pieces=split)


def digest(trainer: Trainer) -> str:
    """Of the weights."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in trainer.model.parameters())).hexdigest()


def main() -> None:
    """Take eight steps with the other processes; then write the digest of the weights, and what had to be refused."""
    ranks = open_ranks(os.environ, "cpu", 60, lambda: None, "1")
    trainer = make_trainer(ranks, seed=ranks.number)  # the others have weights of their own, until they are told
    refused = ""
    if ranks.leads:
        orders = Orders(ranks)
        with orders.training():
            orders.load(trainer)
            for step in range(8):
                orders.take_step(trainer, step)
    else:
        assert ranks.hear() == TRAIN
        with suppress(PartDone):
            obey(ranks, trainer, lambda: False, lambda: False)
    try:
        ranks.compare("settings", f"of {ranks.number}")
    except UsageProblem as error:
        refused = str(error)
    first = ranks.is_first_to_say()
    ranks.sum([1])  # the first process keeps the store here, which none needs from now on
    ranks.close()
    answer = {"digest": digest(trainer), "refused": refused, "first": first}
    Path(os.environ["OUT"], str(ranks.number)).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
