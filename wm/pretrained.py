"""The trained V, M and C of an environment: loaded, and checked to belong together."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stages.session import Session
from wm.actions import ActionSpace
from wm.artifacts import manifest, runs
from wm.artifacts.runs import Artifact
from wm.envs.registry import EnvConfig
from wm.errors import BadData, RecipeMismatch
from wm.models.controller import Controller
from wm.models.dreamer.agent import Dreamer
from wm.models.dreamer.config import DreamerConfig
from wm.models.mdnrnn.network import MdnRnn
from wm.models.vae.networks import Vae, build
from wm.seeding import integer
from wm.training import weights

SHAPE = "model.json"


@dataclass(frozen=True)
class Trained:
    """A model in evaluation mode and the artifact it came from; `shape` is what it was built with."""

    artifact: Artifact
    shape: dict[str, Any]


@dataclass(frozen=True)
class TrainedVae(Trained):
    """V."""

    model: Vae

    @property
    def env(self) -> EnvConfig:
        """The environment whose frames it knows."""
        return EnvConfig(**self.shape["env"])


@dataclass(frozen=True)
class TrainedMdnRnn(Trained):
    """M."""

    model: MdnRnn

    @property
    def space(self) -> ActionSpace:
        """The actions it knows."""
        return ActionSpace.from_json(self.shape["action_space"])


@dataclass(frozen=True)
class TrainedDreamer(Trained):
    """World model, actor and critic."""

    model: Dreamer

    @property
    def env(self) -> EnvConfig:
        """The environment it played."""
        return EnvConfig(**self.shape["env"])

    @property
    def space(self) -> ActionSpace:
        """The actions it takes."""
        return ActionSpace.from_json(self.shape["action_space"])


@dataclass(frozen=True)
class ControllerConfig:
    """What C is: its head, its hidden units (0: linear), and the memory it sees beside z: `trained` is
    M, `untrained` M before training (with this seed), `none` no memory."""

    head: str
    hidden: int = 0
    memory: str = "trained"
    memory_seed: int = 0

    @property
    def remembers(self) -> tuple[str, int]:
        """Which memory it is: only an untrained one has a seed of its own."""
        return self.memory, self.memory_seed if self.memory == "untrained" else 0


@dataclass(frozen=True)
class TrainedController(Trained):
    """C: its form, the parameters of the best mean by validation, and those of `means` along the search, (N, P)."""

    model: Controller
    form: ControllerConfig
    parameters: Any
    means: Any


def _load(folder: Path, kind: str, make_it: str) -> tuple[Artifact, dict[str, Any], dict[str, Any]]:
    artifact = runs.load(folder, kind, make_it)
    try:
        shape = json.loads(artifact.read_bytes(SHAPE))
        tensors = weights.load_tensors(artifact.read_bytes(weights.WEIGHTS), str(folder / weights.WEIGHTS))
    except (OSError, KeyError, ValueError) as error:
        raise BadData(f"{folder} is damaged ({error}); remove it and run `{make_it}`.") from None
    return artifact, shape, tensors


def _fill(model: nn.Module, tensors: dict[str, Any], folder: Path) -> None:
    weights.load_into(model, tensors, str(folder / weights.WEIGHTS))
    model.eval()
    model.requires_grad_(False)


def load_vae(folder: Path, make_it: str) -> TrainedVae:
    """V from its artifact. Raises MissingInput naming the command that makes it."""
    artifact, shape, tensors = _load(folder, "vae", make_it)
    model = build(shape["network"], shape["size"], shape["channels"], shape["latent"])
    _fill(model, tensors, folder)
    return TrainedVae(artifact, shape, model)


def load_mdnrnn(folder: Path, make_it: str) -> TrainedMdnRnn:
    """M from its artifact."""
    artifact, shape, tensors = _load(folder, "mdnrnn", make_it)
    space = ActionSpace.from_json(shape["action_space"])
    model = MdnRnn(shape["latent"], space.width, shape["hidden"], shape["mixtures"], shape["end_weight"])
    _fill(model, tensors, folder)
    return TrainedMdnRnn(artifact, shape, model)


def load_controller(folder: Path, make_it: str) -> TrainedController:
    """C from its artifact."""
    artifact, shape, tensors = _load(folder, "controller", make_it)
    ordered = tuple(shape["ordered"]) if shape["ordered"] else None
    form = ControllerConfig(**shape["form"])
    space = ActionSpace.from_json(shape["action_space"])
    model = Controller(shape["inputs"], space, form.head, ordered, form.hidden, shape["serve"])
    parameters = tensors["mean"].numpy()
    if parameters.shape != (model.parameters,):
        raise BadData(f"{folder} has {parameters.shape} parameters; expected ({model.parameters},).")
    return TrainedController(artifact, shape, model, form, parameters, tensors["means"].numpy())


def is_dreamer(folder: Path) -> bool:
    """Whether the artifact at `folder` is a Dreamer; a name without an artifact is one if it is `dreamer`."""
    if not (folder / manifest.NAME).is_file():
        return folder.name == "dreamer"
    found: bool = manifest.read_json(folder / manifest.NAME).get("kind") == "dreamer"
    return found


def load_dreamer(folder: Path, make_it: str) -> TrainedDreamer:
    """A Dreamer from its artifact."""
    artifact, shape, tensors = _load(folder, "dreamer", make_it)
    model = Dreamer(DreamerConfig(**shape["form"]))
    _fill(model, tensors, folder)
    return TrainedDreamer(artifact, shape, model)


def find_dreamer(session: Session, who: str) -> TrainedDreamer:
    """The Dreamer of this name."""
    named = "" if who == "dreamer" else f" --name {who}"
    return load_dreamer(session.run_path / who, session.command("train-dreamer") + named)


def load_pair(session: Session) -> tuple[TrainedVae, TrainedMdnRnn]:
    """V and M of an environment. Raises RecipeMismatch if M was trained on another V."""
    vae = load_vae(session.run_path / "vae", session.command("train-vae"))
    mdnrnn = load_mdnrnn(session.run_path / "mdnrnn", session.command("train-mdnrnn"))
    if mdnrnn.artifact.inputs["vae"] != vae.artifact.fingerprint:
        raise RecipeMismatch(
            f"{mdnrnn.artifact.folder} was trained on another VAE than {vae.artifact.folder}; "
            f"run `{session.command('train-mdnrnn')}`."
        )
    return vae, mdnrnn


def load_all(session: Session, controller: str = "controller") -> tuple[TrainedVae, TrainedMdnRnn, TrainedController]:
    """V, M and the C of this name. Raises RecipeMismatch if C was evolved on another M, or for other actions."""
    vae, mdnrnn = load_pair(session)
    make_it = session.command("train-controller") + ("" if controller == "controller" else f" --name {controller}")
    found = load_controller(session.run_path / controller, make_it)
    if found.model.space != mdnrnn.space:
        raise RecipeMismatch(
            f"{found.artifact.folder} acts with {_actions(found.model.space)} but {mdnrnn.artifact.folder} knows "
            f"{_actions(mdnrnn.space)}; run `{make_it}`."
        )
    if found.artifact.inputs["mdnrnn"] != mdnrnn.artifact.fingerprint:
        raise RecipeMismatch(
            f"{found.artifact.folder} was evolved on another M than {mdnrnn.artifact.folder}; run `{make_it}`."
        )
    return vae, mdnrnn, found


def _actions(space: ActionSpace) -> str:
    return f"{space.count} discrete actions" if space.discrete else f"actions of {space.width} dimensions"


def memory_of(mdnrnn: TrainedMdnRnn, form: ControllerConfig) -> MdnRnn | None:
    """The memory that C sees beside z."""
    if form.memory != "untrained":
        return mdnrnn.model if form.memory == "trained" else None
    shape = mdnrnn.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer(form.memory_seed, "untrained memory"))
        model = MdnRnn(shape["latent"], mdnrnn.space.width, shape["hidden"], shape["mixtures"], shape["end_weight"])
    return model.eval().requires_grad_(False)


def controller_for(mdnrnn: TrainedMdnRnn, form: ControllerConfig, env: EnvConfig) -> Controller:
    """The shape of C on top of an M."""
    inputs = mdnrnn.model.latent + (0 if form.memory == "none" else mdnrnn.model.hidden)
    spec = env.spec()
    return Controller(inputs, mdnrnn.space, form.head, spec.ordered, form.hidden, spec.serve)
