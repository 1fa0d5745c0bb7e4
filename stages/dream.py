"""`wm dream`: V + M (+ C) -> how far the dream can be trusted, and a dream beside reality in pictures."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stages import console
from stages.encode import check_frames
from stages.session import Session, stage_name
from stages.stage import Plan, Result, made, plan_stage, run_stage, up_to_date
from wm.artifacts import durable, manifest
from wm.artifacts.manifest import sha256_json
from wm.artifacts.runs import Artifact, Builder, Run
from wm.dreamer.open_loop import EPISODES, HORIZONS, compare_open_loop, open_loop_strip
from wm.dreams.env import Dreams
from wm.dreams.initial_states import initial_states_at, load_latents
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader, held_out
from wm.episodes.latents import Latents
from wm.errors import UsageProblem
from wm.evaluation.dream_fidelity import REAL_EPISODES, Policies, measure
from wm.models.controller import pick_head
from wm.models.vae.networks import to_frames
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
from wm.report.fidelity_plot import draw
from wm.report.film_strip import animation, film_strip
from wm.report.video import can_film, film
from wm.rollouts.players import PolicySpec
from wm.rollouts.workers import playing_memory
from wm.seeding import generator, integer
from wm.settings import DreamSettings
from wm.stats import Score
from wm.telemetry.metrics_log import show_picture

RECIPE = 3
CONTEXT, FRAMES, FPS = 16, 120, 15  # real steps before the pictured dream, its steps, frames per second
MEANS = 32  # of the search, equally spaced
FIDELITY = "fidelity.json"
STRIP = 10


@dataclass(frozen=True)
class _Inputs:
    vae: TrainedVae
    mdnrnn: TrainedMdnRnn
    controller: TrainedController | None
    dataset: Dataset


def _open(session: Session, settings: DreamSettings) -> _Inputs:
    folder = session.run_path / settings.agent
    controller = None
    if (folder / manifest.NAME).is_file() or settings.agent != "controller":
        vae, mdnrnn, controller = load_all(session.workspace, settings.agent)
        if controller.config.memory == "untrained":
            raise UsageProblem(f"{folder} has an untrained memory and cannot dream; give another with --agent.")
    else:
        vae, mdnrnn = load_pair(session.workspace)
    dataset = Dataset.open(session.data_paths[0])
    used = int(vae.artifact.metrics["episodes"])
    if used < dataset.episodes:
        dataset = Dataset.open(session.data_paths[0], used)
    check_frames(dataset, vae)
    return _Inputs(vae, mdnrnn, controller, dataset)


def _run(session: Session, settings: DreamSettings, inputs: _Inputs) -> Run:
    prints = {
        "vae": inputs.vae.artifact.fingerprint,
        "mdnrnn": inputs.mdnrnn.artifact.fingerprint,
        "episodes": inputs.dataset.fingerprint,
        "controller": inputs.controller.artifact.fingerprint if inputs.controller else "none",
    }
    default = "dream" if settings.agent == "controller" else f"dream-{settings.agent}"
    return session.make_run(stage_name(session, default), "dream", RECIPE, settings.result_settings(), prints)


def plan(session: Session, settings: DreamSettings) -> Plan:
    """What `dream` would do."""
    if is_dreamer(session.run_path / settings.agent):
        return _plan_dreamer(session, settings)
    run = _run(session, settings, _open(session, settings))
    done = run.current() is not None
    episodes = MEANS * REAL_EPISODES + settings.dreams
    what = f"a comparison over {episodes} real episodes, an animation of {FRAMES} steps, a film strip"
    steps = episodes * settings.max_steps / session.processes
    span = (0.0, 0.0) if done else (3.0 + steps / 3000, 20.0 + steps / 500)
    what = "up to date" if done else what
    return Plan("dream", run.folder, what, 0 if done else 4_000_000, playing_memory(session.processes), span)


def dream(session: Session, settings: DreamSettings) -> Result:
    """Compare the dream with reality, draw it beside reality from the same start with the same actions, publish."""
    if is_dreamer(session.run_path / settings.agent):
        return _dream_with_dreamer(session, settings)
    began = time.monotonic()
    inputs = _open(session, settings)
    run = _run(session, settings, inputs)
    if (current := run.current()) is not None:
        return up_to_date("dream", current, _summary(current))
    session.budget(run.folder).require(4_000_000, 0, "the dream's pictures")
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("dream", builder.restored, _summary(builder.restored), "restored")
        policies = _policies(session, settings, inputs)
        console.say(
            f"dream {session.env}: {len(policies.means)} policies, {settings.dreams} dreams of up to "
            f"{settings.max_steps} steps and {REAL_EPISODES} real episodes of each"
        )
        found = measure(session, settings, inputs.mdnrnn, policies)
        session.stop.raise_if_stopped()
        durable.write_json(builder.folder / FIDELITY, found)
        durable.write_bytes(builder.folder / "fidelity.png", draw(found, f"{session.env}: the dream beside reality"))
        start, real, seen, dreamt = _beside_reality(session, settings, inputs)
        metrics = _metrics(settings, found) | {
            "episode": start,
            "pixel_error": _error(real, dreamt),
            "pixel_error_reconstruction": _error(real, seen),
            "pixel_error_frozen": _error(real, np.repeat(real[:1], len(real), axis=0)),
        }
        panels = [("reality", real), ("V's view of it", seen), ("M's dream", dreamt)]
        captions = [f"step {step} of the dream" for step in range(len(real))]
        durable.write_bytes(builder.folder / "dream.gif", animation(panels, captions, FPS))
        if can_film():
            film(builder.folder / "dream.mp4", panels, captions, FPS)
        shown = np.unique(np.linspace(0, len(real) - 1, STRIP).astype(int))
        strip = film_strip(
            [(label.replace(" view", "\nview"), frames[shown]) for label, frames in panels],
            [f"step {step}" for step in shown],
            f"{session.env}: a dream beside reality, same start, same actions "
            f"(temperature {settings.temperature:g}, after {CONTEXT} real steps)",
        )
        durable.write_bytes(builder.folder / "dream.png", strip)
        show_picture(builder.folder, 0, "dream", strip)
        artifact = builder.publish(metrics, session.provenance(began, inputs.vae.env))
    if not _ranks(metrics):
        console.say(
            f"warning: the dream does not rank {policies.called} as reality does; do not train in it without looking "
            f"at {artifact.folder / 'fidelity.png'}"
        )
    return made("dream", builder, artifact, _summary(artifact))


def _policies(session: Session, settings: DreamSettings, inputs: _Inputs) -> Policies:
    """The means of the search that found C, or random linear policies if there is no C yet."""
    vae, mdnrnn, controller = inputs.vae, inputs.mdnrnn, inputs.controller
    form = controller.config if controller else ControllerConfig(pick_head("auto", mdnrnn.space, vae.env.spec().head))
    if controller is not None:
        chosen = np.unique(np.linspace(0, len(controller.means) - 1, MEANS).round().astype(int))
        means, ours = controller.means[chosen], controller.parameters
        generations = [int(controller.artifact.metrics["means"][place]) for place in chosen]
    else:
        shape = MEANS, build_controller(mdnrnn, form, vae.env).parameters
        means = generator(session.seed, "dream").standard_normal(shape).astype(np.float32)
        ours, generations = means[0], [0] * len(means)
    prints = sha256_json([vae.artifact.fingerprint, mdnrnn.artifact.fingerprint, ours.tolist()])
    player = PolicySpec(vae.env, vae.artifact.folder, mdnrnn.artifact.folder, form, prints, tuple(ours.tolist()))
    called = "the controllers of its search" if controller else "random linear policies"
    return Policies(player, means, generations, called)


def _metrics(settings: DreamSettings, found: dict[str, Any]) -> dict[str, Any]:
    scores = {
        f"{where}_{what}": Score.of(np.array(found[f"{where}_{what}s"], np.float64))
        for where in ("dream", "real")
        for what in ("return", "length")
    }
    ratio = np.array(found["z_variance"]["dream"]) / np.array(found["z_variance"]["real"])
    return {
        "agent": found["policies"],
        "policies": len(found["dream"]),
        "temperature": settings.temperature,
        **{name: found[name] for name in ("rho", "rho_ci95", "rho_last_third", "rho_last_third_ci95")},
        **{name: score.mean for name, score in scores.items()},
        **{f"{name}_ci95": score.ci95 for name, score in scores.items()},
        "dream_ended": found["dream_ended"],
        "real_ended": found["real_ended"],
        "z_variance_ratio": np.percentile(ratio, [0, 50, 100]).round(3).tolist(),
        "open_loop": found["open_loop"],
    }


def _ranks(found: dict[str, Any]) -> bool:
    """Whether the rank correlation is above zero by its interval."""
    return found["rho_ci95"] is not None and found["rho_ci95"][0] > 0


def _told(rho: float | None, span: Sequence[float] | None) -> str:
    return "undefined" if rho is None else f"{rho:.2f}" + (f" ({span[0]:.2f} to {span[1]:.2f})" if span else "")


def _summary(artifact: Artifact) -> str:
    found = artifact.metrics
    return (
        f"rank correlation of dream and real return {_told(found['rho'], found['rho_ci95'])} over {found['policies']} "
        f"policies, {_told(found['rho_last_third'], found['rho_last_third_ci95'])} over the last third; return "
        f"{found['dream_return']:.1f} ± {found['dream_return_ci95']:.1f} in the dream, {found['real_return']:.1f} ± "
        f"{found['real_return_ci95']:.1f} in reality; length {found['dream_length']:.0f} and "
        f"{found['real_length']:.0f}; variance of latents {found['z_variance_ratio'][1]:.2f} of reality's"
    )


@torch.inference_mode()
def _beside_reality(
    session: Session, settings: DreamSettings, inputs: _Inputs
) -> tuple[int, NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """(episode, real, reconstructed, dreamt frames) from the middle of a held-out episode on."""
    dataset, model = inputs.dataset, inputs.mdnrnn.model
    latents = load_latents(session, inputs.mdnrnn)
    # M's latents begin with those of the first dataset, whose frames are shown.
    held = held_out(latents.seeds, 0.1) & (latents.ends <= dataset.rows)
    lengths = latents.ends - latents.starts
    candidates = np.flatnonzero(held & (lengths > CONTEXT + 2))
    if len(candidates) == 0:
        candidates = np.flatnonzero((lengths > CONTEXT + 2) & (latents.ends <= dataset.rows))
    if len(candidates) == 0:
        raise UsageProblem(
            f"no episode has more than {CONTEXT + 2} steps, as the pictured dream needs; collect longer ones."
        )
    episode, begin, stop = _lively(latents, candidates, settings)
    rows = np.arange(begin - CONTEXT, stop)
    z = torch.from_numpy(latents.means[rows])
    actions = torch.from_numpy(latents.space.encode(latents.actions[rows]))[None]
    starts = initial_states_at(latents, inputs.mdnrnn, np.array([begin]), CONTEXT)
    dreams = Dreams(model, starts, settings.temperature, integer(session.seed, "pictured dream"))
    dreamt = [starts.z[0]]
    for step in range(CONTEXT, len(rows) - 1):
        dreams.step(actions[:, step])
        dreamt.append(dreams.z[0])
    decode = inputs.vae.model.decode
    real = FrameReader(dataset).read(begin, stop)
    return (
        episode,
        real,
        to_frames(decode(z[CONTEXT:])).numpy(),
        to_frames(decode(torch.stack(dreamt))).numpy(),
    )


def _lively(latents: Latents, candidates: NDArray[np.int64], settings: DreamSettings) -> tuple[int, int, int]:
    """(episode, first row, end) of what is shown: the middle of one of the longer episodes, in which more moves than in
    three quarters of them, because a car in the grass shows nothing."""
    lengths = latents.ends - latents.starts
    longer = candidates[lengths[candidates] >= np.median(lengths[candidates])]
    spare = np.maximum(lengths[longer] - CONTEXT - FRAMES - 1, 0)
    begins = latents.starts[longer] + spare // 2 + CONTEXT
    stops = np.minimum(begins + FRAMES, latents.ends[longer])
    moved = [np.square(np.diff(latents.means[a:b], axis=0)).mean() for a, b in zip(begins, stops, strict=True)]
    place = np.argsort(moved, kind="stable")[len(longer) * 3 // 4]
    return int(longer[place]), int(begins[place]), int(stops[place])


def _error(real: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Mean summed squared error per frame, in V's units."""
    difference = (real.astype(np.float32) - other.astype(np.float32)) / 255
    return float(np.square(difference).sum(axis=(1, 2, 3)).mean())


def _dreamer_run(session: Session, settings: DreamSettings) -> tuple[TrainedDreamer, Run]:
    trained = find_dreamer(session.workspace, settings.agent)
    name, inputs = stage_name(session, f"dream-{settings.agent}"), {"dreamer": trained.artifact.fingerprint}
    return trained, session.make_run(name, "dream", RECIPE, settings.result_settings(), inputs)


def _plan_dreamer(session: Session, settings: DreamSettings) -> Plan:
    _, run = _dreamer_run(session, settings)
    what = f"open-loop predictions of {EPISODES} episodes, an animation and a film strip"
    return plan_stage("dream", run, lambda: Plan("dream", run.folder, what, 4_000_000, 700_000_000, (5, 60)))


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

    need = 4_000_000, "the dream's pictures"
    return run_stage(session, "dream", run, need, _dreamer_summary, work, trained.env)


def _dreamer_summary(artifact: Artifact) -> str:
    errors = [(ahead, artifact.metrics["open_loop"][str(ahead)]) for ahead in HORIZONS]
    parts = [f"{ahead} ahead {e['dream']:.1f} ({e['persistence']:.1f})" for ahead, e in errors if e is not None]
    text = f"squared error a pixel (of persistence): {', '.join(parts) or 'episodes are too short'}"
    rho = artifact.metrics["reward_correlation"]
    return text if rho is None else f"{text}; predicted and real rewards correlate by {rho:.2f}"
