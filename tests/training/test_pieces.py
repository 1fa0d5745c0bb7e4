"""The gradient of a batch in pieces: what they add up to, and by how many processes."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.conftest import environment
from tests.episodes.test_windows import make as make_latents
from tests.training.rank_program import digest, make_trainer
from wm.episodes.mixture import WindowMixture
from wm.episodes.pieces import WHOLE, Piece
from wm.episodes.windows import Windows
from wm.errors import UsageProblem
from wm.models.mdnrnn.predictor import Part
from wm.ranks import Ranks, added
from wm.settings import MdnRnnSettings
from wm.training.mdnrnn import loss_arguments, mdnrnn_config, new_mdnrnn
from wm.training.pieces import PieceGradients


@pytest.mark.parametrize("count", [8, 13, 64])
def test_pieces_are_the_rows_of_a_batch_in_order(count: int) -> None:
    rows = [Piece(number, 8).rows(count) for number in range(8)]
    assert [row for first, stop in rows for row in range(first, stop)] == list(range(count))
    assert {stop - first for first, stop in rows} <= {count // 8, count // 8 + 1}
    assert WHOLE.rows(count) == (0, count)


def test_a_batch_of_fewer_rows_than_pieces_is_refused() -> None:
    with pytest.raises(UsageProblem, match="a batch has 5 rows and cannot be in 8 pieces; train on more episodes"):
        Piece(0, 8).rows(5)


def test_pieces_that_the_processes_cannot_share_equally_are_refused() -> None:
    ranks = Mock(spec=Ranks, number=1, count=3)
    with pytest.raises(UsageProblem, match="3 processes for the 8 pieces of a batch; start 1, 2, 4, 8 of them"):
        PieceGradients(Mock(), 8, ranks)


def test_rows_are_added_one_after_the_other() -> None:
    """Any other order gives another sum here."""
    rows = torch.tensor([[1e8], [1.0], [-1e8], [1.0]])
    assert added(rows).item() == ((1e8 + np.float32(1.0)) - 1e8) + 1.0
    assert rows[0].item() == 1e8


def test_in_pieces_a_step_is_that_of_the_whole_batch_but_for_rounding() -> None:
    whole, eight = make_trainer(None, pieces=1), make_trainer(None)
    for step in range(4):
        losses = [trainer.step(step)["loss"].item() for trainer in (whole, eight)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for one, other in zip(whole.model.parameters(), eight.model.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


class TestLosses:
    """The shares of all pieces add up to the loss of the whole batch, and so do their gradients."""

    @staticmethod
    def gradients(model: nn.Module, shares: Iterator[Tensor]) -> tuple[float, list[Tensor]]:
        model.zero_grad()
        total = 0.0
        for share in shares:
            share.backward()  # type: ignore[no-untyped-call]
            total += share.item()
        return total, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    def compare(self, model: nn.Module, whole: Iterator[Tensor], pieces: Iterator[Tensor]) -> None:
        total, gradients = self.gradients(model, whole)
        gradients = [gradient.clone() for gradient in gradients]
        in_pieces, others = self.gradients(model, pieces)
        assert in_pieces == pytest.approx(total, rel=1e-5)
        for one, other in zip(gradients, others, strict=True):
            assert torch.allclose(one, other, rtol=1e-3, atol=1e-5 * one.abs().max().item())

    @pytest.mark.parametrize("batch", [16, 21])  # of 21 pieces begin at odd windows
    @pytest.mark.parametrize("network", ["paper", "rollout"])
    def test_of_m_with_windows_that_are_not_whole(self, network: str, batch: int) -> None:
        settings = MdnRnnSettings(
            network=network, hidden=8, batch=batch,
            **({"seq_len": 12} if network == "paper" else {"warm_up": 3, "rollout_steps": 6, "event_share": 0.2}),
        )  # fmt: skip
        latents = make_latents((9, 30, 14))
        windows = WindowMixture([
            Windows(latents, np.ones(3, bool), 12 if network == "paper" else 9, size, 0, *more)
            for size, more in zip((5, batch - 5), ((), ()) if network == "paper" else ((3, 0.2), (3, 0.2)), strict=True)
        ])  # fmt: skip
        assert windows.at(4).mask.min() == 0
        model = new_mdnrnn(mdnrnn_config(settings, latents.means.shape[1], latents.space), 0)
        torch.nn.init.normal_(list(model.parameters())[-2], std=0.1)

        def share(piece: Piece) -> Tensor:
            rows = piece.rows(windows.size)
            random = torch.Generator().manual_seed(1)
            arguments = loss_arguments(windows.at(4, piece), settings.context, 1.0, random, rows, windows.size)
            part = () if piece == WHOLE else (Part(rows[0], torch.from_numpy(windows.existing(4))),)
            return model.loss(*arguments, *part).total

        self.compare(model, iter([share(WHOLE)]), (share(Piece(number, 8)) for number in range(8)))


@pytest.mark.slow
def test_two_processes_train_the_weights_of_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OUT": str(tmp_path)}
    command = [sys.executable, "-m", "tests.training.rank_program"]
    processes = [
        subprocess.Popen(command, env=environment(RANK=number, LOCAL_RANK=number, **variables)) for number in "01"
    ]
    try:
        assert [process.wait(timeout=600) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    first, second = (json.loads((tmp_path / number).read_text()) for number in "01")
    alone = make_trainer(None)
    for step in range(8):
        alone.step(step)
    assert first["digest"] == second["digest"] == digest(alone)
    assert first["refused"] == ""
    assert "process 1 of torchrun has other settings (of 1) than process 0 (of 0)" in second["refused"]
    assert {first["first"], second["first"]} == {True, False}
