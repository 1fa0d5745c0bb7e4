"""The models of a run, which belong together: V, M and C trained one on another, for one environment and its actions.

`wm/pretrained.py` opens each alone; here what does not fit the others is an error.
"""

from wm.artifacts import manifest
from wm.artifacts.workspace import Workspace
from wm.errors import BadData, RecipeMismatch, UsageProblem
from wm.model_json import MODEL_FILE
from wm.models.controller import Controller
from wm.pretrained import (
    TrainedController,
    TrainedDreamer,
    TrainedMdnRnn,
    TrainedVae,
    build_controller,
    load_controller,
    load_dreamer,
    load_mdnrnn,
    load_vae,
)


def require_run_of(workspace: Workspace) -> None:
    """Raise RecipeMismatch if the run has a V or a Dreamer of another environment."""
    for path in sorted(workspace.run.glob(f"*/{MODEL_FILE}")):
        try:
            env = manifest.read_json(path).get("env")
        except BadData:  # whoever needs it says so
            continue
        if isinstance(env, dict) and env.get("name") != workspace.env:
            raise RecipeMismatch(
                f"{path.parent} was trained on {env.get('name')} but --env is {workspace.env}; give the run of "
                f"{workspace.env} with --run, or --env {env.get('name')}."
            )


def load_pair(workspace: Workspace) -> tuple[TrainedVae, TrainedMdnRnn]:
    """V and M of an environment. Raises RecipeMismatch if V is one of another environment, if M was trained on another
    V, or if the environment takes other actions today."""
    require_run_of(workspace)
    vae = load_vae(workspace.run / "vae", workspace.command("train-vae"))
    mdnrnn = load_mdnrnn(workspace.run / "mdnrnn", workspace.command("train-mdnrnn"))
    if mdnrnn.artifact.inputs["vae"] != vae.artifact.fingerprint:
        raise RecipeMismatch(
            f"{mdnrnn.artifact.folder} was trained on another VAE than {vae.artifact.folder}; "
            f"run `{workspace.command('train-mdnrnn')}`."
        )
    if mdnrnn.config.latent != vae.config.latent:
        raise BadData(
            f"{mdnrnn.artifact.folder / MODEL_FILE}: M predicts {mdnrnn.config.latent} latents; expected "
            f"{vae.config.latent}, as V has, so run `{workspace.command('train-mdnrnn')}`."
        )
    vae.env.require_actions(mdnrnn.space, str(mdnrnn.artifact.folder))
    return vae, mdnrnn


def load_all(workspace: Workspace, name: str = "controller") -> tuple[TrainedVae, TrainedMdnRnn, TrainedController]:
    """V, M and the C of this name. Raises RecipeMismatch if C was evolved on another M, or for other actions."""
    vae, mdnrnn = load_pair(workspace)
    command = workspace.command("train-controller") + ("" if name == "controller" else f" --name {name}")
    controller = load_controller(workspace.run / name, command)
    if controller.model.space != mdnrnn.space:
        raise RecipeMismatch(
            f"{controller.artifact.folder} acts with {controller.model.space} but {mdnrnn.artifact.folder} was trained "
            f"on {mdnrnn.space}; run `{command}`."
        )
    if controller.artifact.inputs["mdnrnn"] != mdnrnn.artifact.fingerprint:
        raise RecipeMismatch(
            f"{controller.artifact.folder} was evolved on another M than {mdnrnn.artifact.folder}; run `{command}`."
        )
    _require_shape(controller, build_controller(mdnrnn, controller.config, vae.env), command)
    return vae, mdnrnn, controller


def _require_shape(controller: TrainedController, expected: Controller, command: str) -> None:
    """Raise BadData for a C of another shape than its config describes for these models and this environment."""
    for name, value in vars(expected).items():
        if (stored := getattr(controller.model, name)) != value:
            raise BadData(
                f"{controller.artifact.folder / MODEL_FILE}: {name} is {stored}; expected {value}, as its config, V, M "
                f"and the environment say, so run `{command}`."
            )


def load_dreaming(
    workspace: Workspace, name: str = "controller"
) -> tuple[TrainedVae, TrainedMdnRnn, TrainedController | None]:
    """V, M and the C of this name, which may be missing if it is the default one. As `load_all`; and raises
    UsageProblem for a C whose memory is untrained, because that cannot dream."""
    folder = workspace.run / name
    if name == "controller" and not (folder / manifest.NAME).is_file():
        return *load_pair(workspace), None
    vae, mdnrnn, controller = load_all(workspace, name)
    if controller.config.memory == "untrained":
        raise UsageProblem(f"{folder} has an untrained memory, which cannot dream; name another with --agent.")
    return vae, mdnrnn, controller


def find_dreamer(workspace: Workspace, name: str) -> TrainedDreamer:
    """The Dreamer of this name. Raises RecipeMismatch if it is one of another environment, or if the environment takes
    other actions today."""
    option = "" if name == "dreamer" else f" --name {name}"
    require_run_of(workspace)
    dreamer = load_dreamer(workspace.run / name, workspace.command("train-dreamer") + option)
    dreamer.env.require_actions(dreamer.space, str(dreamer.artifact.folder))
    return dreamer
