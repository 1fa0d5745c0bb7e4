"""World models on the hardware people own: V compresses frames, M predicts them, C acts.

`world = wm.load("runs/CartPole")` opens a trained run; `wm.collect`, `wm.train_vae`, `wm.train_mdnrnn` and
`wm.train_controller` make one. The names below are imported when they are first used, so that
`import wm` and the command line's help need no torch; their types stand in `__init__.pyi`.
"""

import importlib
import sys
from typing import Any

__version__ = "0.3.0"
DISTRIBUTION = "world-models-wm"  # the name in setup.cfg; PyPI's `wm` is another project

_PUBLIC = {
    "load": "wm.world.loading",
    "collect": "wm.pipeline.functions",
    "train_vae": "wm.pipeline.functions",
    "train_mdnrnn": "wm.pipeline.functions",
    "train_controller": "wm.pipeline.functions",
    "Result": "wm.pipeline.stage",
    "World": "wm.world.world",
    "Dream": "wm.world.dreaming",
    "Memory": "wm.world.acting",
    "Evaluation": "wm.world.evaluation",
    "Runtime": "wm.runtime",
    "WmError": "wm.errors",
}
__all__ = [
    "Dream",
    "Evaluation",
    "Memory",
    "Result",
    "Runtime",
    "WmError",
    "World",
    "collect",
    "load",
    "train_controller",
    "train_mdnrnn",
    "train_vae",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'wm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])


# Then `gymnasium.make("wm/Dream-v0", run=...)` finds it. Where wm is imported first, "wm.world:wm/Dream-v0" does.
if "gymnasium" in sys.modules:
    importlib.import_module("wm.world")
