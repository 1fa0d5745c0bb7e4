"""`wm dream`: dreams of V + M + C, or of a Dreamer, compared with real episodes in figures and pictures."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from stages.options import SHARED
from stages.session import Session
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Builder
from wm.artifacts.workspace import check_name
from wm.dreamer.open_loop import EPISODES, WINDOWS, compare_open_loop, format_errors
from wm.dreams.initial_states import latents_of
from wm.errors import UsageProblem
from wm.evaluation.dream_fidelity import (
    REAL_EPISODES,
    ComparisonProtocol,
    measure_fidelity,
    most_real_episodes,
    policies_to_compare,
)
from wm.evaluation.fidelity_metrics import format_fidelity, format_returns, require_finite, summarize_fidelity
from wm.pipeline.dream_inputs import RECIPE, dream_run, dreamer_run, limited, open_inputs
from wm.pipeline.lives import lost_lives_end
from wm.pipeline.plan import Plan, plan_stage
from wm.pipeline.stage import Result, run_stage
from wm.pretrained import is_dreamer
from wm.report.conclusions import dream_conclusions
from wm.report.dream_pictures import FRAMES, picture_dream
from wm.report.fidelity_plot import draw
from wm.rollouts.speed import measure_env
from wm.rollouts.worker_process import playing_memory
from wm.settings import DreamSettings

__all__ = ["RECIPE", "dream", "plan", "require_used_by_dreamer"]

FIDELITY = "fidelity.json"
BYTES = 4_000_000  # of the pictures
NEED = BYTES, "the dream's pictures"
PICTURE_SECONDS = (5, 30)  # of pictures and encoding, besides the episodes
DREAMER_SECONDS = (5, 60)
DREAMER_MEMORY = 700_000_000  # bytes, for the model and the frames of its episodes
# Options without effect on a Dreamer.
_OF_CONTROLLERS = ("data", "workers", "worker_timeout", "executor", "executor_any_cpu")


def _is_of_dreamer(session: Session, settings: DreamSettings) -> bool:
    """Whether a Dreamer dreams. Raises UsageProblem for an agent that is no name, and for a setting it cannot use."""
    dreamer = is_dreamer(session.run_path / check_name("--agent", settings.agent))
    if dreamer:
        require_used_by_dreamer(settings, session.typed)
    return dreamer


def require_used_by_dreamer(settings: DreamSettings, typed: Collection[str]) -> None:
    """Raise UsageProblem for an option that the dream of a Dreamer would ignore. `typed` are those of the command line:
    a preset has dreams for controllers."""
    problem = ""
    if unused := [SHARED[name].opts[0] for name in _OF_CONTROLLERS if name in typed]:
        problem = f"{unused[0]} means nothing to the dream of a Dreamer, whose few episodes this process plays"
    elif settings.temperature != DreamSettings.temperature or "temperature" in typed:
        problem = f"--temperature is {settings.temperature:g} but the dream of a Dreamer has none"
    elif "dreams" in typed:
        problem = f"--dreams is {settings.dreams} but a Dreamer is compared in {WINDOWS} windows of {EPISODES} episodes"
    if problem:
        raise UsageProblem(f"{problem}; leave it out, or name a controller with --agent.")


def plan(session: Session, settings: DreamSettings) -> Plan:
    """What `dream` would do."""
    if _is_of_dreamer(session, settings):
        return _plan_dreamer(session, settings)
    inputs = open_inputs(session, settings)
    vae, mdnrnn, settings = inputs.vae, inputs.mdnrnn, limited(settings, inputs.vae.env)
    run = dream_run(session, settings, inputs)

    def estimate() -> Plan:
        workers, clock, episodes = session.processes, session.runtime.clock, most_real_episodes(settings.dreams)
        speed = measure_env(vae.env, clock).with_models(vae.model, mdnrnn.model, clock)
        low, high = speed.duration(episodes * min(settings.max_steps, speed.longest), workers)
        what = f"a comparison over {episodes} real episodes, an animation of {FRAMES} steps, a film strip"
        least, longer = PICTURE_SECONDS
        seconds = low + least, high + longer
        return Plan("dream", run.folder, what, BYTES, playing_memory(workers), seconds)

    return plan_stage("dream", run, estimate)


def dream(session: Session, settings: DreamSettings) -> Result:
    """Compare dreams with real episodes, picture a dream next to the real episode, publish."""
    if _is_of_dreamer(session, settings):
        return _dream_with_dreamer(session, settings)
    inputs = open_inputs(session, settings)
    vae, mdnrnn, settings = inputs.vae, inputs.mdnrnn, limited(settings, inputs.vae.env)
    controller, dataset, runtime, label = inputs.controller, inputs.dataset, session.runtime, f"dream {session.env}"
    if controller and (edited := vae.env.code.edited_since(controller.artifact.inputs)):
        runtime.log(f"{label}: {controller.artifact.folder} was trained before {edited} was edited")

    def work(builder: Builder) -> dict[str, Any]:
        latents = latents_of(session.workspace, vae, mdnrnn, dataset, runtime, session.device)
        policies = policies_to_compare(vae, mdnrnn, controller, session.seed)
        count = len(policies.means)
        runtime.log(
            f"{label}: {count} {'policy' if count == 1 else 'policies'}; of each {settings.dreams} dreams and "
            f"{REAL_EPISODES} real episodes of up to {settings.max_steps} steps"
        )
        one_life = lost_lives_end(mdnrnn.artifact.settings["network"], dataset)
        protocol = ComparisonProtocol(settings.dreams, settings.temperature, settings.max_steps, session.seed, one_life)
        fidelity = measure_fidelity(runtime, protocol, mdnrnn, latents, policies, label)
        runtime.raise_if_stopped()
        require_finite(fidelity, session.run_path)
        durable.write_json(builder.folder / FIDELITY, fidelity)
        durable.write_bytes(builder.folder / "fidelity.png", draw(fidelity, f"{session.env}: dreams and real episodes"))
        picture = picture_dream(vae, mdnrnn, latents, dataset, settings.temperature, session.seed)
        picture.write(runtime, builder.folder, session.env, settings.temperature)
        figures = {"temperature": settings.temperature, "episode": picture.episode}
        metrics = summarize_fidelity(fidelity) | figures | picture.errors()
        require_finite(metrics, session.run_path)
        return metrics

    def summarize(artifact: Artifact) -> str:
        return f"{format_returns(artifact.metrics)}. {dream_conclusions(artifact.metrics)}".rstrip()

    run = dream_run(session, settings, inputs)
    result = run_stage(session, "dream", run, NEED, summarize, work, vae.env)
    return replace(result, table=format_fidelity(result.metrics), verdict=dream_conclusions(result.metrics))


def _plan_dreamer(session: Session, settings: DreamSettings) -> Plan:
    _, run = dreamer_run(session, settings)
    what = f"open-loop predictions of {EPISODES} episodes, an animation and a film strip"
    return plan_stage("dream", run, lambda: Plan("dream", run.folder, what, BYTES, DREAMER_MEMORY, DREAMER_SECONDS))


def _dream_with_dreamer(session: Session, settings: DreamSettings) -> Result:
    """Compare a Dreamer's open-loop predictions with validation episodes, in figures and pictures."""
    trained, run = dreamer_run(session, settings)

    def work(builder: Builder) -> dict[str, Any]:
        open_loop = compare_open_loop(trained, session.seed, settings.max_steps, session.runtime)
        require_finite(open_loop.metrics, trained.artifact.folder)
        open_loop.write(builder.folder)
        return {"agent": "dreamer", **open_loop.metrics}

    return run_stage(session, "dream", run, NEED, lambda artifact: format_errors(artifact.metrics), work, trained.env)
