"""Trained models on disk: each kind's model.json and weights, saved and loaded side by side.

An artifact of a trained model has its weights as safetensors, and a `model.json` with the sizes needed to build the
network again. Its keys are the fields of VaeConfig, MdnRnnConfig, ControllerConfig and DreamerConfig.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from wm import model_json
from wm.actions import ActionSpace
from wm.artifacts import durable, manifest, runs
from wm.artifacts.json_reader import Schema
from wm.artifacts.runs import Artifact
from wm.artifacts.workspace import Workspace, is_reserved, usual_run
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents
from wm.episodes.split import validation_mask
from wm.errors import BadData, RecipeMismatch, UsageProblem
from wm.model_json import BY_GRADIENT, MODEL_FILE
from wm.models.controller import Controller, ControllerConfig
from wm.models.dreamer.agent import Dreamer
from wm.models.dreamer.config import DreamerConfig
from wm.models.initialization import seeded_initialization
from wm.models.mdnrnn.config import MdnRnnConfig
from wm.models.mdnrnn.predictor import Predictor
from wm.models.vae.config import VaeConfig
from wm.models.vae.networks import Vae
from wm.runtime import Runtime
from wm.training import weights
from wm.training.device import pick_device
from wm.training.mdnrnn import copy_normalization
from wm.training.precision import pick

M = TypeVar("M", bound=nn.Module)
ENCODED = 64  # frames at a time
AGENTS = ("controller", "dreamer")  # kinds of artifacts that play

LARGEST_CONTROLLER = 1 << 30  # bytes of C's weights with those of its search: two layers of 1,024 units take 0.2 GB
NETWORKS = "networks."  # before the names of actor and critic, in the weights of a C by policy gradient


@dataclass(frozen=True)
class TrainedVae:
    """V in evaluation mode and its artifact."""

    artifact: Artifact
    config: VaeConfig
    model: Vae

    @property
    def env(self) -> EnvConfig:
        """The environment whose frames it encodes."""
        return EnvConfig(**self.config.env)

    @property
    def episodes(self) -> int:
        """How many it was trained on: the first ones of its dataset."""
        return int(self.artifact.metrics["episodes"])

    def open_episodes(self, path: Path) -> Dataset:
        """The episodes of a dataset that it was trained on, or those of them that are here: a shared run has few.
        Raises MissingInput where there are none, RecipeMismatch for a dataset of other episodes."""
        dataset = Dataset.open(path, env=self.env.name).at_most(self.episodes)
        self.require_dataset(dataset)
        return dataset

    def require_dataset(self, dataset: Dataset) -> None:
        """Raise RecipeMismatch unless V was trained on this environment, with such frames and actions."""
        path, env = dataset.path, EnvConfig.of_recipe(dataset.recipe)
        run = self.artifact.folder.parent if self.env.name == env.name else usual_run(env.name)
        command = f"{Workspace(env.name, run, ()).command('train-vae')} --data {shlex.quote(str(path))}"
        if self.env.name != env.name:
            raise RecipeMismatch(
                f"{self.artifact.folder} is a VAE of {self.env.name} but {path} has episodes of {env.name}; give the "
                f"run of {env.name} with --run, or run `{command}`."
            )
        expected, way_out = self.env.frame_shape, f"run `{command}`"
        if dataset.frame_shape != expected:
            raise RecipeMismatch(
                f"{path} has frames of {_sides(dataset.frame_shape)} but {self.artifact.folder} was trained on "
                f"{_sides(expected)}; {way_out}."
            )
        if difference := self.env.difference(env):
            name, ours, theirs = difference
            raise RecipeMismatch(
                f"{path} has {name} {theirs} but {self.artifact.folder} was trained with {ours}; {way_out}, or collect "
                f"with `--set {name}={ours}`."
            )

    def encode(self, dataset: Dataset, runtime: Runtime, label: str, device: str = "auto") -> Latents:
        """The latents of every frame of a dataset. Raises BadData for rewards that are not finite."""
        model = self.model.to(pick_device(device))
        means = np.empty((dataset.rows, model.latent), np.float32)
        logvars = np.empty_like(means)
        with runtime.progress(label, dataset.rows, "frames") as progress:
            for start, mean, logvar in encode_frames(dataset, model):
                stop = start + len(mean)
                means[start:stop], logvars[start:stop] = mean, logvar
                progress.update(stop)
                runtime.raise_if_stopped()
        model.cpu()
        rewards = dataset.column("rewards")
        if not np.isfinite(rewards).all():
            episode = int(np.searchsorted(dataset.ends, np.flatnonzero(~np.isfinite(rewards))[0], side="right"))
            raise BadData(
                f"{dataset.path} has a reward that is not a number in episode {episode}; collect it again into another "
                "place with --data, with an environment that gives finite rewards."
            )
        return Latents(
            means=means,
            logvars=logvars,
            actions=dataset.column("actions"),
            rewards=rewards,
            ends=dataset.ends,
            terminated=dataset.table["terminated"].astype(bool),
            seeds=dataset.table["seed"].astype(np.int64),
            space=dataset.actions,
        )


@torch.inference_mode()
def encode_frames(dataset: Dataset, model: Vae) -> Iterator[tuple[int, NDArray[np.float32], NDArray[np.float32]]]:
    """(first row, mean, log-variance) of every frame in turn, a batch at a time.

    In bf16 where the device has instructions for it: that moves a mean by a thirtieth of its deviation.
    """
    reader, device = FrameReader(dataset), model.mean_image.device
    precision = pick("auto", device)
    for start in range(0, dataset.rows, ENCODED):
        frames = torch.from_numpy(reader.read(start, min(start + ENCODED, dataset.rows)))
        with precision.cast():
            mean, logvar = model.encode(frames.to(device))
        yield start, mean.cpu().numpy(), logvar.cpu().numpy()


@dataclass(frozen=True)
class TrainedMdnRnn:
    """M in evaluation mode and its artifact."""

    artifact: Artifact
    config: MdnRnnConfig
    model: Predictor

    @property
    def space(self) -> ActionSpace:
        """The actions it was trained on."""
        return ActionSpace.from_json(self.config.action_space)

    def held_out(self, latents: Latents) -> NDArray[np.bool_]:
        """(episodes,) True for those of the latents of its training that it did not learn from."""
        share, first_of_others = self.artifact.settings["validation_share"], np.cumsum(latents.joined)[:-1]
        return np.concatenate([validation_mask(seeds, share) for seeds in np.split(latents.seeds, first_of_others)])


@dataclass(frozen=True)
class TrainedDreamer:
    """World model, actor and critic in evaluation mode, and their artifact."""

    artifact: Artifact
    model: Dreamer
    env: EnvConfig
    space: ActionSpace


@dataclass(frozen=True)
class TrainedController:
    """C and its artifact: the `parameters` (P,) of the best mean by validation, and those of `means` along the search,
    (N, P). `networks` are actor and critic of the best policy of a gradient, and `latest` (P,) its last policy; empty
    for an evolved C."""

    artifact: Artifact
    config: ControllerConfig
    model: Controller
    parameters: NDArray[np.float32]
    means: NDArray[np.float32]
    networks: dict[str, torch.Tensor]
    latest: NDArray[np.float32]


def save_vae(folder: Path, config: VaeConfig, model: Vae) -> None:
    """Write V's weights and config into the folder of an artifact."""
    _save(folder, asdict(config), model.state_dict())


def load_vae(folder: Path, command: str) -> TrainedVae:
    """V from its artifact. Raises MissingInput naming the `command` that trains it."""
    artifact, description = _load(folder, "vae", command, model_json.VAE)
    config = VaeConfig(**description)
    vae = TrainedVae(artifact, config, _with_weights(config.build, artifact))
    expected, sides = vae.env.frame_shape, (config.size, config.size, config.channels)
    if sides != expected:
        raise BadData(
            f"{folder / MODEL_FILE}: the network sees frames of {_sides(sides)}; expected {_sides(expected)}, as its "
            f"environment has, so run `{command}`."
        )
    return vae


def _sides(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def save_mdnrnn(folder: Path, config: MdnRnnConfig, model: Predictor) -> None:
    """Write M's weights and config into the folder of an artifact."""
    _save(folder, asdict(config), model.state_dict())


def load_mdnrnn(folder: Path, command: str) -> TrainedMdnRnn:
    """M from its artifact. Raises MissingInput naming the `command` that trains it."""
    artifact, description = _load(folder, "mdnrnn", command, model_json.MDNRNN)
    config = MdnRnnConfig(**description)
    return TrainedMdnRnn(artifact, config, _with_weights(config.build, artifact))


def save_controller(
    folder: Path,
    config: ControllerConfig,
    model: Controller,
    parameters: NDArray[Any],
    means: NDArray[Any],
    networks: Mapping[str, torch.Tensor] | None = None,
    latest: NDArray[Any] | None = None,
) -> None:
    """Write C's parameters, those of the search's `means`, and its config into the folder of an artifact; of a policy
    gradient also the `networks` from which another training can continue, and its `latest` policy."""
    described = asdict(config)
    description = {
        "config": described if config.layers else {k: v for k, v in described.items() if k not in BY_GRADIENT},
        "inputs": model.inputs,
        "action_space": model.space.as_json(),
        "ordered": model.ordered,
        "serve": model.serve,
        **({"opposed": model.opposed} if model.opposed else {}),
    }
    tensors = {"mean": torch.from_numpy(parameters), "means": torch.from_numpy(means)}
    if latest is not None:
        tensors["latest"] = torch.from_numpy(latest)
    _save(folder, description, tensors | {f"{NETWORKS}{name}": value for name, value in (networks or {}).items()})


def load_controller(folder: Path, command: str) -> TrainedController:
    """C from its artifact. Raises MissingInput naming the `command` that trains it."""
    artifact, description = _load(folder, "controller", command, model_json.CONTROLLER)
    layers = tuple(description["config"].get("layers", ()))
    config = ControllerConfig(**description["config"] | {"layers": layers})
    ordered = tuple(description["ordered"]) if description["ordered"] else None
    opposed = tuple(description["opposed"]) if "opposed" in description else None
    space = ActionSpace.from_json(description["action_space"])
    if opposed and not set(opposed) < set(range(space.width)):
        raise BadData(f"{folder / MODEL_FILE}: opposed is {list(opposed)}; expected two dimensions of the action.")
    serve = description["serve"]
    for name, actions in (("ordered", ordered or ()), ("serve", () if serve is None else (serve,))):
        if not all(space.discrete and 0 <= action < space.count for action in actions):
            raise BadData(f"{folder / MODEL_FILE}: {name} is {list(actions)}; expected actions of {space}.")
    model = _controller(config, description["inputs"], space, ordered, serve, opposed)
    tensors = _read_weights(artifact, LARGEST_CONTROLLER)
    weights.require_types(tensors, dict.fromkeys(tensors, torch.float32), str(folder / weights.WEIGHTS))
    for name, shape in (("mean", (model.parameters,)), ("means", (-1, model.parameters))):
        if name not in tensors or tensors[name].ndim != len(shape) or tensors[name].shape[-1] != model.parameters:
            stored = list(tensors[name].shape) if name in tensors else "missing"
            raise BadData(f"{folder / weights.WEIGHTS}: {name} is {stored}; expected {list(shape)}; run `{command}`.")
    generations = artifact.metrics["means"]
    if len(generations) != len(tensors["means"]):
        raise BadData(
            f"{folder / manifest.NAME}: metrics.means has {len(generations)} generations; expected "
            f"{len(tensors['means'])}, as {weights.WEIGHTS} has, so run `{command}`."
        )
    networks = {name.removeprefix(NETWORKS): value for name, value in tensors.items() if name.startswith(NETWORKS)}
    latest = tensors.get("latest", torch.zeros(0)).numpy()
    if latest.shape not in ((0,), (model.parameters,)):
        raise BadData(f"{folder / weights.WEIGHTS}: latest is {list(latest.shape)}; expected [{model.parameters}].")
    means = tensors["means"].numpy()
    return TrainedController(artifact, config, model, tensors["mean"].numpy(), means, networks, latest)


def save_dreamer(folder: Path, model: Dreamer, env: EnvConfig, space: ActionSpace) -> None:
    """Write a Dreamer's weights and config into the folder of an artifact."""
    description = {"config": asdict(model.config), "env": env.as_json(), "action_space": space.as_json()}
    _save(folder, description, model.state_dict())


def load_dreamer(folder: Path, command: str) -> TrainedDreamer:
    """A Dreamer from its artifact. Raises MissingInput naming the `command` that trains it."""
    artifact, description = _load(folder, "dreamer", command, model_json.DREAMER)
    config, env = DreamerConfig(**description["config"]), EnvConfig(**description["env"])
    space = ActionSpace.from_json(description["action_space"])
    model = _with_weights(lambda: Dreamer(config), artifact)
    sees = {"frames of": (_sides((config.size, config.size, config.channels)), _sides(env.frame_shape))}
    sees |= {"actions of": (_encoded(config.action, config.discrete), _encoded(space.width, space.discrete))}
    for what, (actual, expected) in sees.items():
        if actual != expected:
            raise BadData(
                f"{folder / MODEL_FILE}: the network takes {what} {actual}; expected {expected}, as its environment "
                f"has, so run `{command}`."
            )
    return TrainedDreamer(artifact, model, env, space)


def _encoded(width: int, discrete: bool) -> str:
    return f"{width} {'choices' if discrete else 'dimensions'}"


def is_dreamer(folder: Path) -> bool:
    """Whether the agent at `folder` is a Dreamer, else a controller; a name without an artifact is one if it is
    `dreamer`. Raises UsageProblem for the name of something else."""
    kind = _kind(folder) or (folder.name if is_reserved(folder.name, "controller") else "controller")
    if kind not in AGENTS and is_reserved(kind, ""):
        agents = [path.parent.name for path in folder.parent.glob(f"*/{manifest.NAME}") if _kind(path.parent) in AGENTS]
        raise UsageProblem(
            f"{folder} is no trained agent; expected a controller or a Dreamer, of which the run has "
            f"{', '.join(sorted(agents)) or 'none'}."
        )
    return kind == "dreamer"


def _kind(folder: Path) -> str:
    """What the manifest says that is there; empty without one."""
    file = folder / manifest.NAME
    return str(manifest.read_json(file).get("kind")) if file.is_file() else ""


def controller_memory(mdnrnn: TrainedMdnRnn, config: ControllerConfig) -> Predictor | None:
    """The model whose h C takes besides z; None without a memory."""
    if config.memory != "untrained":
        return mdnrnn.model if config.memory == "trained" else None
    with seeded_initialization(config.memory_seed, "untrained memory"):
        model = mdnrnn.config.build()
    copy_normalization(mdnrnn.model, model)
    return model.eval().requires_grad_(False)


def build_controller(mdnrnn: TrainedMdnRnn, config: ControllerConfig, env: EnvConfig) -> Controller:
    """C for this M and environment."""
    return shape_controller(config, env, mdnrnn.space, mdnrnn.model.latent, mdnrnn.model.hidden)


def shape_controller(
    config: ControllerConfig, env: EnvConfig, space: ActionSpace, latent: int, hidden: int
) -> Controller:
    """C for a V of so many latents and an M of so many hidden units."""
    inputs, spec = latent * (2 if config.difference else 1), env.spec()
    inputs += space.width if config.previous_action else 0
    inputs += 0 if config.memory == "none" else hidden
    opposed = spec.opposed if config.head == "beta" else None
    return _controller(config, inputs, space, spec.ordered_actions, spec.fire_action, opposed)


def _controller(
    config: ControllerConfig,
    inputs: int,
    space: ActionSpace,
    ordered: tuple[int, int, int] | None,
    serve: int | None,
    opposed: tuple[int, int] | None,
) -> Controller:
    by_gradient = {name: getattr(config, name) for name in BY_GRADIENT}
    return Controller(inputs, space, config.head, ordered, config.hidden, serve, **by_gradient, opposed=opposed)


def _save(folder: Path, description: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    weights.save(folder / weights.WEIGHTS, tensors)
    durable.write_json(folder / MODEL_FILE, description)


def _load(folder: Path, kind: str, command: str, schema: Schema) -> tuple[Artifact, dict[str, Any]]:
    artifact = runs.load(folder, kind, command)
    try:
        return artifact, artifact.read_json(MODEL_FILE, schema, f"restore it, or remove {folder} and run `{command}`")
    except OSError as error:
        raise BadData(f"{folder} is damaged ({error}); remove it and run `{command}`.") from None


def _read_weights(artifact: Artifact, most: int) -> dict[str, torch.Tensor]:
    data = artifact.read_bytes(weights.WEIGHTS, most)
    return weights.load_tensors(data, str(artifact.folder / weights.WEIGHTS))


def _with_weights(build: Callable[[], M], artifact: Artifact) -> M:
    try:
        with torch.device("meta"):  # sizes without storage: a forged model.json must not take all memory
            expected = build().state_dict()
    except (ValueError, RuntimeError, ZeroDivisionError, UsageProblem) as error:  # sizes that do not fit together
        raise BadData(
            f"{artifact.folder / MODEL_FILE} describes no model ({str(error)[:200]}); train it again."
        ) from None
    tensors = _read_weights(artifact, weights.file_bytes(expected))
    weights.require_fit(expected, tensors, str(artifact.folder / weights.WEIGHTS))
    model = build()
    weights.load_into(model, tensors, str(artifact.folder / weights.WEIGHTS))
    return model.eval().requires_grad_(False)
