"""The gradient of a batch as the sum of its pieces', in their order.

Sums of floats depend on their order. Here it is that of the pieces, which are the same whatever the number of processes
that compute them. So 1, 2, 4 or 8 of them train the same weights, bit for bit (docs/decisions/0026).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from wm.episodes.pieces import Piece
from wm.errors import UsageProblem
from wm.ranks import Ranks, added

PieceLoss = Callable[[int, Piece], tuple[Tensor, dict[str, Tensor]]]
Backward = Callable[[PieceLoss, int, Piece], dict[str, Tensor]]


class PieceGradients:
    """`loss(number, piece)` returns the share that a piece has of the loss of the batch with this number, and of its
    metrics: over all `count` pieces they add up to those of the batch. Each of the `ranks` takes as many pieces.

    Raises UsageProblem where the pieces cannot be shared equally.
    """

    def __init__(self, loss: PieceLoss, count: int, ranks: Ranks | None = None) -> None:
        number, processes = (ranks.number, ranks.count) if ranks is not None else (0, 1)
        if count % processes:
            shares = ", ".join(str(share) for share in range(1, count + 1) if count % share == 0)
            raise UsageProblem(
                f"torchrun has started {processes} processes for the {count} pieces of a batch; start {shares} of "
                "them, or give another number with --set pieces=."
            )
        each = count // processes
        self._own = [Piece(each * number + piece, count) for piece in range(each)]
        self._loss, self._ranks = loss, ranks

    def add_up(self, model: nn.Module, numbers: range, backward: Backward) -> dict[str, Tensor]:
        """Leave in the model's parameters the sum of the gradients of all pieces of these batches; returns the means
        over the batches of what `backward` returns for a piece."""
        parameters, rows, values = list(model.parameters()), torch.empty(0), dict[str, Tensor]()
        for number in numbers:
            for row, piece in enumerate(self._own):
                model.zero_grad(set_to_none=True)
                values = backward(self._loss, number, piece)
                flat = _flat(parameters, [value / len(numbers) for value in values.values()])
                if not len(rows):
                    rows = flat.new_zeros((len(self._own), len(flat)))
                rows[row] += flat
        total = added(rows) if self._ranks is None else self._ranks.add(rows)
        sizes = [parameter.numel() for parameter in parameters if parameter.grad is not None]
        gradients = total[: sum(sizes)].split(sizes)
        for parameter, gradient in zip((p for p in parameters if p.grad is not None), gradients, strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(gradient.view(parameter.shape))  # stays in the parameter's memory format
        return dict(zip(values, total[sum(sizes) :], strict=True))


def _flat(parameters: Sequence[nn.Parameter], values: Sequence[Tensor]) -> Tensor:
    """The gradients of those parameters that the loss depends on, and these values, in float32."""
    gradients = [parameter.grad.flatten() for parameter in parameters if parameter.grad is not None]
    # Into one flat tensor: one exchange between the processes, not one for each parameter.
    return torch.cat([*gradients, torch.stack([value.float() for value in values])])
