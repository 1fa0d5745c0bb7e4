"""256 dreams at once, one core, steps per second: ours in float32 and bfloat16, against the same cell stepped with
Categorical; the rate in bfloat16 against 200,000, and beside it that of the step's two matrix products alone."""

from collections.abc import Callable

import torch
from torch.nn import functional

from benchmarks.measure import formats, one_core, rate, rates, report
from benchmarks.reference import HIDDEN, LATENT, MIXTURES, plain_dream
from wm.dreams.env import Dreams, InitialStates
from wm.models.mdnrnn.network import MdnRnn

# As many as 64 candidates with four dreams.
COUNT, ACTION = 256, 6


def products() -> Callable[[], int]:
    """The gates' and the heads' product of a step in bfloat16, of any numbers; returns COUNT."""
    sizes = ((LATENT + ACTION + HIDDEN, 4 * HIDDEN), (HIDDEN, 3 * LATENT * MIXTURES + 2))
    parts = [[torch.randn(*shape).bfloat16() for shape in ((COUNT, a), (b, a), (b,))] for a, b in sizes]

    @torch.inference_mode()
    def multiply() -> int:
        for part in parts:
            functional.linear(*part)
        return COUNT

    return multiply


def main() -> None:
    one_core()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MdnRnn(LATENT, ACTION, HIDDEN, MIXTURES, 10.0).requires_grad_(False)
    plain, actions = plain_dream(COUNT, ACTION), torch.zeros(COUNT, ACTION)
    for name in formats():
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[name]
        # Wide bounds, which no latent reaches.
        bound = torch.full((LATENT,), 6.0)
        initial = InitialStates.at_start(model, torch.zeros(COUNT, LATENT), ACTION, -bound, bound)
        dreams = Dreams(model, initial, 1.0, 0, dtype)
        ours, reference, ratio = rates(lambda dreams=dreams: len(dreams.step(actions)[0]), plain)  # type: ignore[misc]
        report(f"dream_{name}", ours, reference, 2.5, "steps/s", ratio)
        if name == "bf16":
            report("dream_rate", ours, 200_000, 1.0, "steps/s")
            report("dream_products", rate(products()), 200_000, 1.0, "steps/s")


if __name__ == "__main__":
    main()
