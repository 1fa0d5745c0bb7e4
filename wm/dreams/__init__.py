"""M as an environment."""

from wm.dreams.env import DreamConfig, DreamEnv, DreamVectorEnv, InitialStates

__all__ = ["DreamConfig", "DreamEnv", "DreamVectorEnv", "InitialStates"]
