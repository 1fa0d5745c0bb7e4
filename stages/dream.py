"""`wm dream`: dreams of V + M + C, or of a Dreamer, compared with real episodes in figures and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stages.session import Session, stage_name
from stages.stage import Plan, Result, plan_stage, run_stage
from wm.artifacts import durable, manifest
from wm.artifacts.runs import Artifact, Builder, Run
from wm.dreamer.open_loop import EPISODES, HORIZONS, compare_open_loop, open_loop_strip
from wm.dreams.initial_states import load_latents
from wm.episodes.dataset import Dataset
from wm.errors import UsageProblem
from wm.evaluation.dream_fidelity import REAL_EPISODES, Policies, measure_fidelity
from wm.models.controller import pick_head
from wm.pretrained import (
    ControllerConfig,
    TrainedController,
    TrainedDreamer,
    TrainedMdnRnn,
    TrainedVae,
    build_controller,
    find_dreamer,
    is_dreamer,
    load_all,
    load_pair,
)
from wm.report.dream_pictures import CONTEXT, FPS, FRAMES, picture_dream
from wm.report.fidelity_plot import draw
from wm.report.film_strip import animation
from wm.rollouts.players import policy_spec
from wm.rollouts.speed import measure_env
from wm.rollouts.workers import playing_memory
from wm.seeding import generator
from wm.settings import DreamSettings
from wm.stats import Score
from wm.telemetry.metrics_log import add_image

RECIPE = 3
MEANS = 32  # of the search, equally spaced, whose returns are compared
FIDELITY = "fidelity.json"
BYTES = 4_000_000  # of the pictures


@dataclass(frozen=True)
class _Models:
    vae: TrainedVae
    mdnrnn: TrainedMdnRnn
    controller: TrainedController | None
    dataset: Dataset


def _open(session: Session, settings: DreamSettings) -> _Models:
    folder = session.run_path / settings.agent
    controller = None
    if (folder / manifest.NAME).is_file() or settings.agent != "controller":
        vae, mdnrnn, controller = load_all(session.workspace, settings.agent)
        if controller.config.memory == "untrained":
            raise UsageProblem(f"{folder} has an untrained memory, which cannot dream; name another with --agent.")
    else:
        vae, mdnrnn = load_pair(session.workspace)
    dataset = Dataset.open(session.data_paths[0])
    used = int(vae.artifact.metrics["episodes"])
    if used < dataset.episodes:
        dataset = Dataset.open(session.data_paths[0], used)
    vae.require_frames(dataset.path, dataset.recipe["env"]["name"], dataset.frame_shape)
    return _Models(vae, mdnrnn, controller, dataset)


def _run(session: Session, settings: DreamSettings, models: _Models) -> Run:
    inputs = {
        "vae": models.vae.artifact.fingerprint,
        "mdnrnn": models.mdnrnn.artifact.fingerprint,
        "episodes": models.dataset.fingerprint,
        "controller": models.controller.artifact.fingerprint if models.controller else "none",
    }
    default = "dream" if settings.agent == "controller" else f"dream-{settings.agent}"
    return session.make_run(stage_name(session, default), "dream", RECIPE, settings.result_settings(), inputs)


def plan(session: Session, settings: DreamSettings) -> Plan:
    """What `dream` would do."""
    if is_dreamer(session.run_path / settings.agent):
        return _plan_dreamer(session, settings)
    models = _open(session, settings)
    run = _run(session, settings, models)

    def estimate() -> Plan:
        workers, clock = session.processes, session.runtime.clock
        episodes = MEANS * REAL_EPISODES + settings.dreams
        speed = measure_env(models.vae.env, clock).with_models(models.vae.model, models.mdnrnn.model, clock)
        low, high = speed.duration(episodes * min(settings.max_steps, speed.longest), workers)
        what = f"a comparison over {episodes} real episodes, an animation of {FRAMES} steps, a film strip"
        return Plan("dream", run.folder, what, BYTES, playing_memory(workers), (low + 5, high + 30))

    return plan_stage("dream", run, estimate)


def dream(session: Session, settings: DreamSettings) -> Result:
    """Compare dreams with real episodes, picture a dream next to the real episode, publish."""
    if is_dreamer(session.run_path / settings.agent):
        return _dream_with_dreamer(session, settings)
    models = _open(session, settings)
    run = _run(session, settings, models)

    def work(builder: Builder) -> dict[str, Any]:
        policies = _policies(session, models)
        runtime, label = session.runtime, f"dream {session.env}"
        runtime.log(
            f"{label}: {len(policies.means)} policies; of each {settings.dreams} dreams and {REAL_EPISODES} real "
            f"episodes of up to {settings.max_steps} steps"
        )
        latents = load_latents(session.workspace, models.mdnrnn)
        fidelity = measure_fidelity(runtime, settings, session.seed, models.mdnrnn, latents, policies, label)
        runtime.raise_if_stopped()
        durable.write_json(builder.folder / FIDELITY, fidelity)
        durable.write_bytes(builder.folder / "fidelity.png", draw(fidelity, f"{session.env}: dreams and real episodes"))
        dataset, temperature = models.dataset, settings.temperature
        picture = picture_dream(models.vae, models.mdnrnn, latents, dataset, temperature, session.seed)
        title = f"{session.env}: a dream and the real episode, same initial state, same actions "
        title += f"(temperature {temperature:g}, after {CONTEXT} real steps)"
        add_image(builder.folder, 0, "dream", picture.write(builder.folder, title))
        return _metrics(settings, fidelity) | {"episode": picture.episode, **picture.errors()}

    result = run_stage(session, "dream", run, (BYTES, "the dream's pictures"), _summary, work, models.vae.env)
    return replace(result, table=_table(result.metrics))


def _policies(session: Session, models: _Models) -> Policies:
    """The means of the search that evolved C, or random linear policies if there is no C yet."""
    vae, mdnrnn, controller = models.vae, models.mdnrnn, models.controller
    if controller is not None:
        rows = np.unique(np.linspace(0, len(controller.means) - 1, MEANS).round().astype(int))
        generations = [int(controller.artifact.metrics["means"][row]) for row in rows]
        spec = policy_spec(vae, mdnrnn, controller.config, controller.parameters)
        return Policies(spec, controller.means[rows], generations, "the controllers of its search")
    config = ControllerConfig(pick_head("auto", mdnrnn.space, vae.env.spec().head))
    shape = MEANS, build_controller(mdnrnn, config, vae.env).parameters
    means = generator(session.seed, "dream").standard_normal(shape).astype(np.float32)
    return Policies(policy_spec(vae, mdnrnn, config, means[0]), means, [0] * len(means), "random linear policies")


def _metrics(settings: DreamSettings, fidelity: dict[str, Any]) -> dict[str, Any]:
    scores = {
        f"{place}_{name}": Score.of(np.array(fidelity[f"{place}_{name}s"], np.float64))
        for place in ("dream", "real")
        for name in ("return", "length")
    }
    ratio = np.array(fidelity["z_variance"]["dream"]) / np.array(fidelity["z_variance"]["real"])
    return {
        "agent": fidelity["policies"],
        "policies": len(fidelity["dream"]),
        "temperature": settings.temperature,
        **{name: fidelity[name] for name in ("rho", "rho_ci95", "rho_last_third", "rho_last_third_ci95")},
        **{name: score.mean for name, score in scores.items()},
        **{f"{name}_ci95": score.ci95 for name, score in scores.items()},
        "dream_ended": fidelity["dream_ended"],
        "real_ended": fidelity["real_ended"],
        "z_variance_ratio": np.percentile(ratio, [0, 50, 100]).round(3).tolist(),
        "open_loop": fidelity["open_loop"],
    }


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    returns = [
        f"{metrics[f'{place}_return']:.1f} ± {metrics[f'{place}_return_ci95']:.1f}" for place in ("dream", "real")
    ]
    return f"return {returns[0]} in the dream, {returns[1]} in real episodes"


def _table(metrics: dict[str, Any]) -> str:
    """One figure a line, none longer than 80 columns."""
    lines = [
        f"  {'':30}{'dream':>14}  {'real':>14}",
        _line("return", metrics, "return", 1),
        _line("length", metrics, "length", 0),
        f"  {'share that terminated':30}{metrics['dream_ended']:>14.2f}  {metrics['real_ended']:>14.2f}",
        f"  {'variance of z, dream / real':30}{metrics['z_variance_ratio'][1]:>14.2f}  (median over dimensions)",
        f"  {'rank correlation of returns':30}{_rho(metrics['rho'], metrics['rho_ci95'])}",
        f"    over {metrics['policies']} policies: {metrics['agent']}",
        f"  {'  of the last third':30}{_rho(metrics['rho_last_third'], metrics['rho_last_third_ci95'])}",
    ]
    return "\n".join(lines)


def _line(label: str, metrics: dict[str, Any], name: str, digits: int) -> str:
    cells = [
        f"{metrics[f'{place}_{name}']:.{digits}f} ± {metrics[f'{place}_{name}_ci95']:.{digits}f}"
        for place in ("dream", "real")
    ]
    return f"  {label:30}{cells[0]:>14}  {cells[1]:>14}"


def _rho(rho: float | None, interval: Sequence[float] | None) -> str:
    span = f"  ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    return f"{'undefined':>14}" if rho is None else f"{rho:>14.2f}{span}"


def _dreamer_run(session: Session, settings: DreamSettings) -> tuple[TrainedDreamer, Run]:
    trained = find_dreamer(session.workspace, settings.agent)
    name, inputs = stage_name(session, f"dream-{settings.agent}"), {"dreamer": trained.artifact.fingerprint}
    return trained, session.make_run(name, "dream", RECIPE, settings.result_settings(), inputs)


def _plan_dreamer(session: Session, settings: DreamSettings) -> Plan:
    _, run = _dreamer_run(session, settings)
    what = f"open-loop predictions of {EPISODES} episodes, an animation and a film strip"
    return plan_stage("dream", run, lambda: Plan("dream", run.folder, what, BYTES, 700_000_000, (5, 60)))


def _dream_with_dreamer(session: Session, settings: DreamSettings) -> Result:
    """Compare a Dreamer's open-loop predictions with validation episodes, in figures and pictures."""
    trained, run = _dreamer_run(session, settings)

    def work(builder: Builder) -> dict[str, Any]:
        compared = compare_open_loop(trained, session.seed, settings.max_steps, session.runtime)
        real, predicted = compared.real, compared.predicted
        durable.write_bytes(builder.folder / "dream.png", open_loop_strip(real, predicted, compared.context))
        captions = [f"{step + 1} steps ahead" for step in range(len(real))]
        frames = animation([("real", real), ("predicted", predicted)], captions, FPS)
        durable.write_bytes(builder.folder / "dream.gif", frames)
        return {"agent": "dreamer", **compared.metrics}

    need = BYTES, "the dream's pictures"
    return run_stage(session, "dream", run, need, _dreamer_summary, work, trained.env)


def _dreamer_summary(artifact: Artifact) -> str:
    errors = [(ahead, artifact.metrics["open_loop"][str(ahead)]) for ahead in HORIZONS]
    parts = [f"{ahead} ahead {e['dream']:.1f} ({e['persistence']:.1f})" for ahead, e in errors if e is not None]
    text = f"squared error a pixel (of persistence): {', '.join(parts) or 'episodes are too short'}"
    rho = artifact.metrics["reward_correlation"]
    return text if rho is None else f"{text}; predicted and real rewards correlate by {rho:.2f}"
