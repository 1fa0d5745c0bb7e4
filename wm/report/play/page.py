"""One self-contained page in which a person plays inside M's dream."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from wm.artifacts import durable
from wm.artifacts.disk import DiskBudget
from wm.dreams.initial_states import latent_bounds
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents
from wm.errors import UsageProblem
from wm.pretrained import TrainedController, TrainedMdnRnn, TrainedVae
from wm.report.play.controls import controls_for
from wm.report.play.models import describe_controller, describe_decoder, describe_mdnrnn
from wm.report.play.starts import Start, choose_starts
from wm.report.play.template import LARGEST, fill
from wm.report.play.weights import PRECISIONS, Precision, Weights
from wm.units import format_size

NUMBERS = LARGEST // 3  # each takes 3.5 bytes of the page
RECORDED = (96, 48, 24)  # rows from every start on: as many as fit

Description = dict[str, Any]
"""What models.js opens, besides the numbers."""


@dataclass(frozen=True)
class Game:
    """What a page shows: V, M and C of an environment (C may be missing), the latents M was trained on, and the dataset
    they begin with. Dreams are played at this temperature and pace, and truncated after `max_steps`. `models` is what
    `describe_models` has, for a page in a run."""

    env: str
    vae: TrainedVae
    mdnrnn: TrainedMdnRnn
    controller: TrainedController | None
    latents: Latents
    dataset: Dataset
    temperature: float
    steps_per_second: int
    max_steps: int
    models: str = ""

    def page(self) -> bytes:
        """The page, with as many recorded frames and as exact weights as it has room for. Raises UsageProblem if it is
        too large even with the fewest."""
        return fill(*self.content(LARGEST))

    def content(self, largest: int) -> tuple[Description, str]:
        """What `fill` takes, for a page of at most so many bytes. Raises UsageProblem if it cannot be that small."""
        starts = choose_starts(self.latents, self.mdnrnn, self.dataset, max(RECORDED))
        for rows, precision in product(RECORDED, PRECISIONS):
            weights = Weights()
            description = self._describe([start.first(rows) for start in starts], weights, precision)
            if weights.count > NUMBERS:
                break
            content = description | {"numbers": weights.count}, weights.text()
            if len(fill(*content)) <= largest:
                return content
        raise UsageProblem(
            f"V's decoder, M and C of {self.env} have {weights.count:,} numbers, too many for a page of "
            f"{format_size(largest)}; train V or M with fewer latents or units."
        )

    def _describe(self, starts: Sequence[Start], weights: Weights, precision: Precision) -> Description:
        add, picture = (partial(weights.add, bits=bits) for bits in precision)
        low, high = latent_bounds(self.latents)
        return {
            "env": self.env,
            "models": self.models,
            "vae": describe_decoder(self.vae.model, picture),
            "mdnrnn": describe_mdnrnn(self.mdnrnn.model, add),
            "controller": None if self.controller is None else describe_controller(self.controller, add),
            "space": self.mdnrnn.space.as_json(),
            "low": add(low),
            "high": add(high),
            "starts": [start.describe(add) for start in starts],
            "controls": controls_for(self.env, self.mdnrnn.space).as_json(),
            "temperature": self.temperature,
            "stepsPerSecond": self.steps_per_second,
            "maxSteps": self.max_steps,
        }


def write_page(path: Path, page: bytes) -> Path:
    """Write a page, whole or not at all, and return its path."""
    DiskBudget(path.parent).require(len(page), 0, "the page")
    durable.make_folder(path.parent)
    durable.write_bytes(path, page)
    return path
