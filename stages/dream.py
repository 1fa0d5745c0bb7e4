"""`wm dream`: V + M (+ C) -> a dream beside reality, as animation and film strip, with its return and length."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from stages import console
from stages.encode import check_frames
from stages.session import Plan, Result, Session, made, stage_name, up_to_date
from stages.starts import load_latents, load_starts
from stages.trained import (
    Form,
    TrainedController,
    TrainedMdnRnn,
    TrainedVae,
    controller_for,
    load_controller,
    load_pair,
)
from wm.artifacts import durable, manifest
from wm.artifacts.runs import Artifact, Run
from wm.dreams import Dreams, imagine, warm_starts
from wm.episodes.batches import FrameReader, held_out
from wm.episodes.dataset import Dataset
from wm.errors import RecipeMismatch, UsageProblem
from wm.evolution.scores import Score
from wm.models.controller import pick_head
from wm.models.vae import to_frames
from wm.report.pictures import animation, film_strip
from wm.seeding import generator, integer
from wm.settings import DreamSettings
from wm.training.precision import pick

RECIPE = 1
STRIP = 10


@dataclass(frozen=True)
class _Inputs:
    vae: TrainedVae
    mdnrnn: TrainedMdnRnn
    controller: TrainedController | None
    dataset: Dataset


def _open(session: Session) -> _Inputs:
    vae, mdnrnn = load_pair(session)
    folder = session.run_path / "controller"
    controller = None
    if (folder / manifest.NAME).is_file():
        controller = load_controller(folder, session.command("train-controller"))
        if controller.artifact.inputs["mdnrnn"] != mdnrnn.artifact.fingerprint:
            raise RecipeMismatch(
                f"{folder} was evolved on another M than {mdnrnn.artifact.folder}; "
                f"run `{session.command('train-controller')}`, or remove it to dream with random actions."
            )
    dataset = Dataset.open(session.data_path)
    used = int(vae.artifact.metrics["episodes"])
    if used < dataset.episodes:
        dataset = Dataset.open(session.data_path, used)
    check_frames(dataset, vae)
    return _Inputs(vae, mdnrnn, controller, dataset)


def _run(session: Session, settings: DreamSettings, inputs: _Inputs) -> Run:
    prints = {
        "vae": inputs.vae.artifact.fingerprint,
        "mdnrnn": inputs.mdnrnn.artifact.fingerprint,
        "episodes": inputs.dataset.fingerprint,
        "controller": inputs.controller.artifact.fingerprint if inputs.controller else "none",
    }
    return session.make_run(stage_name(session, "dream"), "dream", RECIPE, settings.that_change_results(), prints)


def plan(session: Session, settings: DreamSettings) -> Plan:
    """What `dream` would do."""
    run = _run(session, settings, _open(session))
    done = run.current() is not None
    what = "up to date" if done else f"{settings.dreams} dreams, an animation of {settings.frames} steps, a film strip"
    span = (0.0, 0.0) if done else (3.0, 10.0 + settings.dreams * settings.max_steps / 20_000)
    return Plan("dream", run.folder, what, 0 if done else 4_000_000, 700_000_000, span)


def dream(session: Session, settings: DreamSettings) -> Result:
    """Dream, draw it beside reality from the same start with the same actions, and publish the pictures."""
    began = time.monotonic()
    inputs = _open(session)
    run = _run(session, settings, inputs)
    if (current := run.current()) is not None:
        return up_to_date("dream", current, _summary(current))
    session.budget(run.folder).require(4_000_000, 0, "the dream's pictures")
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("dream", builder.restored, _summary(builder.restored), "restored")
        console.say(f"dream {session.env}: {settings.dreams} dreams of up to {settings.max_steps} steps")
        metrics = _play(session, settings, inputs)
        session.stop.raise_if_stopped()
        start, real, seen, dreamt = _beside_reality(session, settings, inputs)
        metrics |= {
            "episode": start,
            "pixel_error": _error(real, dreamt),
            "pixel_error_reconstruction": _error(real, seen),
            "pixel_error_frozen": _error(real, np.repeat(real[:1], len(real), axis=0)),
        }
        panels = [("reality", real), ("V's view of it", seen), ("M's dream", dreamt)]
        captions = [f"step {step} of the dream" for step in range(len(real))]
        durable.write_bytes(builder.folder / "dream.gif", animation(panels, captions, settings.fps))
        shown = np.unique(np.linspace(0, len(real) - 1, STRIP).astype(int))
        strip = film_strip(
            [(label.replace(" view", "\nview"), frames[shown]) for label, frames in panels],
            [f"step {step}" for step in shown],
            f"{session.env}: a dream beside reality, same start, same actions "
            f"(temperature {settings.temperature:g}, after {settings.context} real steps)",
        )
        durable.write_bytes(builder.folder / "dream.png", strip)
        artifact = builder.publish(metrics, session.provenance(began, inputs.vae.env))
    return made("dream", builder, artifact, _summary(artifact))


def _summary(artifact: Artifact) -> str:
    found = artifact.metrics
    return (
        f"dream return {found['dream_return']:.1f} ± {found['dream_return_ci95']:.1f}, length "
        f"{found['dream_length']:.0f} ± {found['dream_length_ci95']:.0f} over {found['dreams']} dreams by "
        f"{found['agent']}, {found['ended']:.0%} ended by themselves"
    )


def _play(session: Session, settings: DreamSettings, inputs: _Inputs) -> dict[str, object]:
    """Return and length of dreams played by C, or by a random linear policy if there is no C yet."""
    mdnrnn = inputs.mdnrnn
    form = inputs.controller.form if inputs.controller else Form(pick_head("auto", mdnrnn.space, "auto"))
    controller = controller_for(mdnrnn, form, inputs.vae.env)
    random = generator(session.seed, "dream")
    if inputs.controller is not None:
        policies = np.repeat(inputs.controller.parameters[None], settings.dreams, axis=0)
    else:
        policies = random.standard_normal((settings.dreams, controller.parameters)).astype(np.float32)
    starts = load_starts(session, mdnrnn)
    rows = random.integers(0, len(starts.z), settings.dreams)
    imagined = imagine(
        mdnrnn.model, controller, torch.from_numpy(policies), starts.take(rows), settings.temperature,
        settings.max_steps, session.seed, "dreams", dtype=pick("auto", torch.device("cpu")).dtype,
    )  # fmt: skip
    returns, lengths = Score.of(imagined.returns), Score.of(imagined.lengths.astype(np.float64))
    return {
        "dreams": settings.dreams,
        "agent": "the controller" if inputs.controller else "random linear policies",
        "dream_return": returns.mean,
        "dream_return_ci95": returns.ci95,
        "dream_length": lengths.mean,
        "dream_length_ci95": lengths.ci95,
        "ended": float(imagined.ended.mean()),
    }


@torch.inference_mode()
def _beside_reality(
    session: Session, settings: DreamSettings, inputs: _Inputs
) -> tuple[int, NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """(episode, real, reconstructed, dreamt frames) from the middle of a typical held-out episode on."""
    dataset, model = inputs.dataset, inputs.mdnrnn.model
    latents = load_latents(session, inputs.mdnrnn)
    held = held_out(latents.seeds, 0.1)
    lengths = latents.ends - latents.starts
    candidates = np.flatnonzero(held & (lengths > settings.context + 2))
    if len(candidates) == 0:
        candidates = np.flatnonzero(lengths > settings.context + 2)
    if len(candidates) == 0:
        raise UsageProblem(f"no episode is longer than --set context={settings.context}; give a smaller one.")
    # A typical one: of median length among the held-out episodes.
    episode = int(candidates[np.argsort(lengths[candidates], kind="stable")[len(candidates) // 2]])
    spare = int(lengths[episode]) - settings.context - settings.frames - 1
    first = int(latents.starts[episode]) + max(spare // 2, 0)
    begin = first + settings.context
    stop = min(begin + settings.frames, int(latents.ends[episode]))
    rows = np.arange(first, stop)
    z = torch.from_numpy(latents.means[rows])[None]
    actions = torch.from_numpy(latents.space.encode(latents.actions[rows]))[None]
    starts = warm_starts(model, z[:, : settings.context + 1], actions[:, : settings.context])
    dreams = Dreams(model, starts, settings.temperature, integer(session.seed, "pictured dream"))
    dreamt = [starts.z[0]]
    for step in range(settings.context, len(rows) - 1):
        dreams.step(actions[:, step])
        dreamt.append(dreams.z[0])
    decode = inputs.vae.model.decode
    real = FrameReader(dataset).read(begin, stop)
    return (
        episode,
        real,
        to_frames(decode(z[0, settings.context :])).numpy(),
        to_frames(decode(torch.stack(dreamt))).numpy(),
    )


def _error(real: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Mean summed squared error per frame, in V's units."""
    difference = (real.astype(np.float32) - other.astype(np.float32)) / 255
    return float(np.square(difference).sum(axis=(1, 2, 3)).mean())
