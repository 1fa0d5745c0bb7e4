"""What model.json may hold: the file beside the weights of V, M, C and Dreamers, with the sizes of the network.

Reports read it, so this module does not import torch; `wm/pretrained.py` writes it and builds the networks.
"""

from wm.artifacts.json_reader import COUNT, FLAG, INTEGER, NUMBER, between, list_of, one_of, or_null, table
from wm.artifacts.runs import Artifact
from wm.artifacts.schemas import ENVIRONMENT, WIDTH, action_space
from wm.envs.registry import EnvConfig

MODEL_FILE = "model.json"
VAE = table(
    {
        "network": one_of("small", "attentive", "paper"),
        "size": between(32, 128),
        "channels": between(1, 4),
        "latent": WIDTH,
        "env": ENVIRONMENT,
    }
)
MDNRNN = table(
    {
        "latent": WIDTH,
        "action_space": action_space,
        "hidden": between(0, 8192),
        "mixtures": between(1, 256),
        "end_weight": NUMBER,
    },
    {"network": one_of("paper", "rollout"), "units": between(0, 8192)},
)
CONTROLLER = table(
    {
        "config": table(
            {"head": one_of("argmax", "ordered", "tanh", "categorical", "beta")},
            {
                "hidden": between(0, 8192),
                "memory": one_of("trained", "untrained", "none"),
                "memory_seed": INTEGER,
                "layers": list_of(WIDTH),
                "difference": FLAG,
                "previous_action": FLAG,
                "sampled": FLAG,
            },
        ),
        "inputs": WIDTH,
        "action_space": action_space,
        "ordered": or_null(list_of(COUNT, 3)),
        "serve": or_null(COUNT),
    },
    {"opposed": list_of(between(0, 8191), 2)},
)
BY_GRADIENT = ("layers", "difference", "previous_action", "sampled")  # keys of a config that an evolved C has not
DREAMER = table(
    {
        "config": table(
            {"size": between(16, 256), "channels": between(1, 4), "action": WIDTH, "discrete": FLAG},
            {
                **dict.fromkeys(("deter", "hidden", "stoch", "classes", "depth", "units", "bins"), WIDTH),
                "layers": between(1, 64),
            },
        ),
        "env": ENVIRONMENT,
        "action_space": action_space,
    }
)
_OF_ENV = {"vae": VAE, "dreamer": DREAMER}


def read_env(artifact: Artifact) -> EnvConfig:
    """The environment in the model.json of a V, or of a Dreamer."""
    return EnvConfig(**artifact.read_json(MODEL_FILE, _OF_ENV[artifact.manifest["kind"]])["env"])
