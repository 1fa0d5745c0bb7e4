"""The settings of rl-baselines3-zoo for others' learners, and how ours are trained."""

from typing import Any

from wm.envs.registry import find_env
from wm.errors import UsageProblem

SOURCE = "DLR-RM/rl-baselines3-zoo at 22e3ff2450fd, hyperparams/ppo.yml and dqn.yml"
CUTS = (5, 10, 30, 60)  # minutes at which a policy is tested
PEERS = ("sb3-ppo-pixels", "sb3-ppo-latents", "sb3-dqn-pixels")
OURS = {
    "ppo": ("--preset", "laptop"),
    "dream": ("--preset", "dream"),
    "cma": ("--preset", "laptop", "--set", "train-controller.algo=cma"),
}
METHODS = (*PEERS, *OURS)

# What is named `linear` falls from its value to zero with the steps. `timesteps` are those of a whole training. Left
# out are layers of multilayer perceptrons: pixels are seen by stable-baselines3's own convolutions.
_ZOO: dict[str, dict[str, dict[str, Any]]] = {
    "ppo": {
        "atari": {
            "timesteps": 10_000_000, "n_envs": 8, "n_steps": 128, "n_epochs": 4, "batch_size": 256, "vf_coef": 0.5,
            "ent_coef": 0.01, "linear": {"learning_rate": 2.5e-4, "clip_range": 0.1},
        },
        "CartPole": {
            "timesteps": 100_000, "n_envs": 8, "n_steps": 32, "n_epochs": 20, "batch_size": 256, "gae_lambda": 0.8,
            "gamma": 0.98, "ent_coef": 0.0, "linear": {"learning_rate": 1e-3, "clip_range": 0.2},
        },
        "LunarLander": {
            "timesteps": 1_000_000, "n_envs": 16, "n_steps": 1024, "n_epochs": 4, "batch_size": 64, "gae_lambda": 0.98,
            "gamma": 0.999, "ent_coef": 0.01, "linear": {},
        },
    },
    "dqn": {
        "atari": {
            "timesteps": 10_000_000, "n_envs": 1, "buffer_size": 100_000, "learning_rate": 1e-4, "batch_size": 32,
            "learning_starts": 100_000, "target_update_interval": 1000, "train_freq": 4, "gradient_steps": 1,
            "exploration_fraction": 0.1, "exploration_final_eps": 0.01, "linear": {},
        },
        "CartPole": {
            "timesteps": 50_000, "n_envs": 1, "buffer_size": 100_000, "learning_rate": 2.3e-3, "batch_size": 64,
            "learning_starts": 1000, "gamma": 0.99, "target_update_interval": 10, "train_freq": 256,
            "gradient_steps": 128, "exploration_fraction": 0.16, "exploration_final_eps": 0.04, "linear": {},
        },
        "LunarLander": {
            "timesteps": 100_000, "n_envs": 1, "buffer_size": 50_000, "learning_rate": 6.3e-4, "batch_size": 128,
            "learning_starts": 0, "gamma": 0.99, "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1,
            "exploration_fraction": 0.12, "exploration_final_eps": 0.1, "linear": {},
        },
    },
}  # fmt: skip


def zoo(method: str, env: str) -> dict[str, Any]:
    """The zoo's settings of a method of PEERS. Raises UsageProblem for an environment whose settings are not here."""
    table = _ZOO[method.split("-")[1]]
    name = "atari" if find_env(env).is_atari else env
    if name not in table:
        known = ", ".join(("Atari's games", *(other for other in table if other != "atari")))
        raise UsageProblem(f"{method} has no settings for {env}; expected one of {known}.")
    return table[name]
