"""What dreams are made from and compared with: V, M, C and its episodes, or a Dreamer; and their place in a run."""

from dataclasses import dataclass, replace

from wm.artifacts.runs import Run
from wm.dreams.initial_states import latents_stayed_behind
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.pipeline.session import Session, stage_name
from wm.pretrained import TrainedController, TrainedDreamer, TrainedMdnRnn, TrainedVae
from wm.run_models import find_dreamer, load_dreaming
from wm.settings import DreamSettings

# Raised by each change after which the same models give other figures or pictures.
RECIPE = 7


@dataclass(frozen=True)
class DreamInputs:
    """The models, of which a run may lack C, and the episodes."""

    vae: TrainedVae
    mdnrnn: TrainedMdnRnn
    controller: TrainedController | None
    dataset: Dataset


def open_inputs(session: Session, settings: DreamSettings) -> DreamInputs:
    """The models of a run, checked against each other, and the dataset of the session."""
    path = session.data_path
    vae, mdnrnn, controller = load_dreaming(session.workspace, settings.agent)
    return DreamInputs(vae, mdnrnn, controller, vae.open_episodes(path))


def limited(settings: DreamSettings, env: EnvConfig) -> DreamSettings:
    """Dreams no longer than real episodes can be: those of a shorter limit would be compared with other episodes."""
    return replace(settings, max_steps=min(settings.max_steps, env.limit or settings.max_steps))


def dream_run(session: Session, settings: DreamSettings, inputs: DreamInputs) -> Run:
    """The dream's place. A shared run without its latents keeps the dream that came along; another one starts in the
    episodes at hand, which its recipe tells."""
    run = _run_from(session, settings, inputs, inputs.dataset.fingerprint_of_first(inputs.vae.episodes))
    if latents_stayed_behind(session.workspace, inputs.vae, inputs.dataset) and run.current() is None:
        return _run_from(session, settings, inputs, inputs.dataset.fingerprint)
    return run


def _run_from(session: Session, settings: DreamSettings, inputs: DreamInputs, episodes: str) -> Run:
    fingerprints = {
        "vae": inputs.vae.artifact.fingerprint,
        "mdnrnn": inputs.mdnrnn.artifact.fingerprint,
        "episodes": episodes,
        "controller": inputs.controller.artifact.fingerprint if inputs.controller else "none",
        **inputs.vae.env.code.sources,
    }
    default = "dream" if settings.agent == "controller" else f"dream-{settings.agent}"
    return session.make_run(stage_name(session, default), "dream", RECIPE, settings.result_settings(), fingerprints)


def dreamer_run(session: Session, settings: DreamSettings) -> tuple[TrainedDreamer, Run]:
    """A Dreamer of a run, and the place of its dream."""
    trained = find_dreamer(session.workspace, settings.agent)
    name = stage_name(session, f"dream-{settings.agent}")
    inputs = {"dreamer": trained.artifact.fingerprint, **trained.env.code.sources}
    return trained, session.make_run(name, "dream", RECIPE, settings.result_settings(), inputs)
