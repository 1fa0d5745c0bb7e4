"""Every setting of every command, declared once; one module a command."""

from wm.settings.base import Settings
from wm.settings.collect import CollectSettings
from wm.settings.curriculum import CURRICULA, STAGES_OF_AGENT, CurriculumSettings
from wm.settings.dream import DreamSettings
from wm.settings.evaluate import EvaluateSettings
from wm.settings.gradient import GradientSettings
from wm.settings.train_controller import ControllerSettings
from wm.settings.train_dreamer import DreamerSettings
from wm.settings.train_mdnrnn import MdnRnnSettings
from wm.settings.train_vae import VaeSettings

__all__ = [
    "COMMANDS",
    "CURRICULA",
    "STAGES_OF_AGENT",
    "CollectSettings",
    "ControllerSettings",
    "CurriculumSettings",
    "DreamSettings",
    "DreamerSettings",
    "EvaluateSettings",
    "GradientSettings",
    "MdnRnnSettings",
    "Settings",
    "VaeSettings",
]

COMMANDS: dict[str, type[Settings]] = {
    "collect": CollectSettings,
    "train-vae": VaeSettings,
    "train-mdnrnn": MdnRnnSettings,
    "train-controller": ControllerSettings,
    "dream": DreamSettings,
    "evaluate": EvaluateSettings,
    "train-dreamer": DreamerSettings,
    "curriculum": CurriculumSettings,
}
