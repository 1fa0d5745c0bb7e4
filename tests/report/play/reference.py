"""What torch dreams, with every random number it draws, for agreement.js."""

import json
import re
from typing import Any

import torch

from wm.dreams.env import Dreams, InitialStates
from wm.models.controller import SERVE_STEPS, Controller
from wm.models.mdnrnn.network import MdnRnn
from wm.models.mdnrnn.predictor import Predictor
from wm.models.vae.networks import Vae

EVERY = 20  # steps between two pictures


@torch.inference_mode()
def expect(
    vae: Vae,
    mdnrnn: Predictor,
    controller: Controller,
    parameters: torch.Tensor,
    initial: InitialStates,
    steps: int = 100,
    temperature: float = 1.0,
    seed: int = 7,
) -> dict[str, Any]:
    """A dream from `initial` in which C serves and acts as it finds likeliest, and the numbers that were drawn."""
    dreams, twin = Dreams(mdnrnn, initial, temperature, seed), torch.Generator().manual_seed(seed)
    numbers: dict[str, list[float]] = {"uniform": [], "normal": []}
    z_before, encoded, rows = initial.z_before, initial.action_before, []
    for step in range(steps):
        features = controller.features(dreams.z, z_before, encoded, dreams.hidden)
        u = controller.evaluate(parameters[None], features)
        actions = controller.actions(controller.choose(u))
        if controller.serve is not None and step < SERVE_STEPS:
            actions[:] = controller.serve
        row: dict[str, Any] = {"u": u[0].tolist()}
        if step % EVERY == 0:
            row["pixels"] = vae.decode(dreams.z)[0].permute(1, 2, 0).flatten().tolist()
        if isinstance(mdnrnn, MdnRnn):
            numbers["uniform"] += torch.rand(1, 1, mdnrnn.latent, generator=twin).flatten().tolist()
        numbers["normal"] += torch.randn(1, mdnrnn.latent, generator=twin).flatten().tolist()
        numbers["uniform"] += torch.rand(1, generator=twin).tolist()
        z_before, encoded = dreams.z, torch.from_numpy(controller.space.encode(actions))
        sample = dreams.advance(encoded)
        ended = bool(torch.rand(1, generator=dreams._random) < sample.end)
        row |= {
            "action": encoded[0].tolist(),
            "temperature": temperature,
            "z": dreams.z[0].tolist(),
            "h": dreams.hidden[0].tolist(),
            "reward": float(sample.reward),
            "end": float(sample.end),
            "terminated": ended,
        }
        rows.append(row)
    return {"steps": rows, "start": 0, **numbers}


def parts_of(page: str) -> tuple[dict[str, Any], str]:
    """The description and the weights in a page."""
    found = {name: re.search(rf'id="{name}">(.*?)</script>', page, re.S) for name in ("world", "weights")}
    assert found["world"]
    assert found["weights"]
    return json.loads(found["world"][1]), found["weights"][1]
