"""`wm train-dreamer`: a world model, an actor and a critic, learned while they play."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages import console
from stages.session import Session, pick_device, stage_name
from stages.stage import Plan, Result, made, up_to_date
from wm.actions import ActionSpace
from wm.artifacts import durable, locks
from wm.artifacts.runs import SCRATCH, Artifact, Run
from wm.dreamer.online import Online, to_batch
from wm.dreamer.open_loop import open_loop_strip
from wm.dreamer.replay_store import (
    collected,
    disk_bound,
    open_replay,
    recipe_of,
    replay_path,
    require_memory,
    ring_bytes,
)
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.replay import ReplayWriter, Ring
from wm.errors import MemoryProblem, UsageProblem
from wm.models.dreamer.agent import Dreamer, DreamerTrainer
from wm.models.dreamer.config import DreamerConfig
from wm.models.dreamer.frame_norm import ReconstructionWeights
from wm.models.initialization import seeded_initialization
from wm.pretrained import save_dreamer
from wm.report.plots import Curve, draw
from wm.seeding import generator
from wm.settings import DreamerSettings
from wm.telemetry import metrics_log as metrics_file
from wm.telemetry.malloc import keep_freed
from wm.telemetry.memory_guard import MemoryGuard
from wm.telemetry.metrics_log import MetricsLog
from wm.telemetry.usage import optimizer_bytes
from wm.training.precision import Precision, pick

RECIPE = 2
FACTOR = 12  # bytes of weights, gradients and Adam's two moments for every 4 of weights, less the weights
ACTIVATION = 30  # bytes of activations, forward and backward, for every byte of a batch's frames in float32


def _env(session: Session, settings: DreamerSettings) -> EnvConfig:
    return EnvConfig(session.env, settings.size, settings.gray)


def _run(session: Session, settings: DreamerSettings) -> Run:
    inputs = {f"data-{number}": Dataset.open(path).fingerprint for number, path in enumerate(session.data)}
    name = stage_name(session, "dreamer")
    return session.make_run(name, "dreamer", RECIPE, settings.result_settings(), inputs)


def form_of(settings: DreamerSettings, space: ActionSpace) -> DreamerConfig:
    """The networks that the settings ask for."""
    chosen = {name: getattr(settings, name) for name in DreamerConfig.__dataclass_fields__ if hasattr(settings, name)}
    return DreamerConfig(channels=1 if settings.gray else 3, action=space.width, discrete=space.discrete, **chosen)


def _model(form: DreamerConfig, seed: int) -> Dreamer:
    with seeded_initialization(seed, "dreamer", "init"):
        return Dreamer(form)


def _space(env: EnvConfig) -> ActionSpace:
    made = env.make()
    made.close()
    return ActionSpace.of(made.action_space)


def plan(session: Session, settings: DreamerSettings) -> Plan:
    """What `train_dreamer` would do, with the time of a few real updates."""
    run = _run(session, settings)
    if run.current() is not None:
        return Plan("train-dreamer", run.folder, "up to date", 0, 0, (0, 0))
    env = _env(session, settings)
    form = form_of(settings, _space(env))
    model = _model(form, session.seed)
    device = torch.device(pick_device(session.device))
    ring = Ring(1, settings.seq_len, (form.size, form.size, form.channels), ActionSpace(count=1))
    learner = learner_of(model.to(device), settings, pick(settings.precision, device))
    took = _seconds_per_update(learner, ring, settings, device)
    updates = settings.steps * settings.train_ratio / (settings.batch * settings.seq_len)
    updates += settings.pretrain if session.data else 0
    low = updates * took
    what = f"{settings.steps} steps of {settings.num_envs} environments, {updates:,.0f} updates"
    parameters = 4 * sum(parameter.numel() for parameter in model.parameters())
    memory = ring_bytes(settings, form) + FACTOR * parameters // 4 + _activations(settings, form) + 400_000_000
    disk = disk_bound(settings, form) + parameters
    return Plan("train-dreamer", run.folder, what, disk, memory, (low, 1.5 * low + settings.steps / 200),
                scratch=9 * parameters)  # fmt: skip


def _seconds_per_update(learner: DreamerTrainer, ring: Ring, settings: DreamerSettings, device: torch.device) -> float:
    form, took = learner.model.form, []
    ring.begin(0, np.zeros((form.size, form.size, form.channels), np.uint8), 0)
    for _ in range(settings.seq_len - 1):
        ring.add(0, np.zeros((form.size, form.size, form.channels), np.uint8), 0, 0.0, False)
    steps = ring.sample(settings.batch, settings.seq_len, generator(0, "probe"), settings.stack)
    batch = to_batch(steps, torch.from_numpy(steps.frames).to(device), device)
    batch = batch._replace(actions=torch.zeros(*batch.first.shape, form.action, device=device))
    for number in range(4):
        began = time.monotonic()
        learner.update(batch, torch.Generator(device).manual_seed(number), behave=True)["kl"].item()
        took.append(time.monotonic() - began)
    return min(took)


def _activations(settings: DreamerSettings, form: DreamerConfig) -> int:
    return ACTIVATION * 4 * settings.batch * settings.seq_len * form.size**2 * form.channels


def learner_of(model: Dreamer, settings: DreamerSettings, precision: Precision) -> DreamerTrainer:
    """What optimises the model as the settings say."""
    return DreamerTrainer(
        model,
        precision.cast,
        horizon=settings.horizon,
        entropy=settings.entropy,
        drawing=ReconstructionWeights(settings.decoded_share, settings.reconstruction_nats, settings.pixel_weighting),
        starts=settings.imagine_last,
        world_learning_rate=settings.world_learning_rate,
        actor_learning_rate=settings.actor_learning_rate,
    )


def train_dreamer(session: Session, settings: DreamerSettings) -> Result:
    """Learn from collected episodes, if some are given, then while playing; publish the last weights.

    Killed anywhere, it goes on from the last checkpoint: weights, optimizer, counts and replay as they were, the
    episodes that were open played anew.
    """
    began = time.monotonic()
    if not settings.steps and not session.data:
        raise UsageProblem("--steps is 0 and there is no --data; give steps to play or episodes to learn from.")
    if (
        not session.data
        and (settings.steps - settings.prefill) * settings.train_ratio < settings.batch * settings.seq_len
    ):
        raise UsageProblem(
            f"--steps is {settings.steps} at --train-ratio {settings.train_ratio:g}: it would end before the first "
            f"update, which comes after {settings.prefill} steps (prefill) and a batch's worth; give more."
        )
    run = _run(session, settings)
    if (current := run.current()) is not None:
        return up_to_date("train-dreamer", current, _summary(current))
    env = _env(session, settings)
    space = _space(env)
    form = form_of(settings, space)
    require_memory(settings, form)
    path = replay_path(session)
    session.budget(path).require(disk_bound(settings, form), 0, f"a replay of {settings.capacity} steps")
    device = torch.device(pick_device(session.device))
    precision = pick(settings.precision, device)
    keep_freed()
    with run.build(session.keep_current, console.say) as builder, locks.exclusive(path):
        if builder.restored is not None:
            return up_to_date("train-dreamer", builder.restored, _summary(builder.restored), "restored")
        model = _model(form, session.seed).to(device)
        learner = learner_of(model, settings, precision)
        capacity = settings.capacity if settings.steps else settings.num_envs * settings.seq_len
        ring = Ring(settings.num_envs, capacity, (form.size, form.size, form.channels), space)
        recipe = recipe_of(session, env, space)
        if settings.steps:
            open_replay(path, recipe, builder.resumed)

        def allow(size: int) -> None:
            session.budget(path).require(size, durable.folder_size(path), "a part of the replay", files=16)

        journal = ReplayWriter(path, recipe, ring, settings.part_rows, settings.capacity + settings.part_rows, allow)
        online = Online(session, settings, learner, env, journal, builder.folder / SCRATCH, device)
        resumed = online.resume()
        if resumed:
            console.say(f"train-dreamer {session.env}: goes on at step {online.counts.steps} of {settings.steps}")
        place = online.counts.steps + online.counts.pretrained
        held = [ring]

        def buffers() -> int:
            return sum(part.nbytes for part in held) + optimizer_bytes(learner.optimizer)

        log = MetricsLog(builder.folder, place if resumed else -1, buffers)
        guard = MemoryGuard(
            session.runtime, builder.folder, settings.steps + (settings.pretrain if session.data else 0)
        )
        if session.data:
            held.append(collected(session, settings, form, space))
            _pretrain(session, settings, online, log, guard, held[-1])
            held.pop()
        _play(session, settings, online, log, guard, journal)
        log.close()
        online.close()
        model.cpu().eval().requires_grad_(False)
        shown = ring if len(ring) else collected(session, settings, form, space)
        _write(builder.folder, session, model, env, space, shown, settings)
        artifact = builder.publish(
            _metrics(builder.folder, online, settings, precision), session.provenance(began, env)
        )
    return made("train-dreamer", builder, artifact, _summary(artifact))


def _pretrain(
    session: Session, settings: DreamerSettings, online: Online, log: MetricsLog, guard: MemoryGuard, ring: Ring
) -> None:
    start = online.counts.pretrained
    if start >= settings.pretrain:
        return
    label = f"train-dreamer {session.env} (collected)"
    with console.progress(label, settings.pretrain, "updates", start) as progress:
        for figures in online.pretrain(ring, settings.pretrain):
            done, alarm = online.counts.pretrained, ""
            if done % settings.log_every == 0 or done == settings.pretrain:
                told = {name: value.item() for name, value in figures.items()}
                alarm = guard.look(log.write(done, told))
                progress.update(done, **{name: f"{told[name]:.4g}" for name in ("picture", "kl")})
            stopping = session.stop.signal is not None
            if done % settings.log_every == 0 or done == settings.pretrain or stopping or alarm:
                online.checkpoint()
            _give_up(session, log, alarm)
            if stopping:
                log.close()
                session.stop.raise_if_stopped()


def _play(
    session: Session,
    settings: DreamerSettings,
    online: Online,
    log: MetricsLog,
    guard: MemoryGuard,
    journal: ReplayWriter,
) -> None:
    counts, logged = online.counts, online.counts.steps
    label = f"train-dreamer {session.env}"
    with console.progress(label, settings.steps, "steps", counts.steps) as progress:
        for figures in online.play():
            over, alarm = bool(online.ended), ""
            if counts.steps - logged >= settings.log_every or over:
                logged = counts.steps
                told = {name: value.item() for name, value in figures.items()}
                told |= {"updates": counts.updates, "episodes": counts.episodes, "replay": len(journal.ring)}
                if online.returns:
                    told["episode_return"] = float(np.mean(online.returns))
                alarm = guard.look(log.write(counts.steps + counts.pretrained, told))
                shown = {name: f"{told[name]:.4g}" for name in ("episode_return", "picture", "kl") if name in told}
                progress.update(counts.steps, **shown)
            stopping = session.stop.signal is not None and not over
            if journal.due or stopping or over or alarm:
                online.checkpoint()
            _give_up(session, log, alarm)
            if stopping:
                log.close()
                session.stop.raise_if_stopped()


def _give_up(session: Session, log: MetricsLog, alarm: str) -> None:
    if alarm:
        log.close()
        raise MemoryProblem(f"train-dreamer {session.env}: {alarm}")


def _metrics(folder: Path, online: Online, settings: DreamerSettings, precision: Precision) -> dict[str, Any]:
    lines, counts = metrics_file.read(folder), online.counts
    told = [line for line in lines if "picture" in line]
    return {
        "env_steps": counts.steps,
        "updates": counts.updates,
        "episodes": counts.episodes,
        "ended": online.ended,
        "training_return": float(np.mean(online.returns)) if online.returns else None,
        "training_episodes": len(online.returns),
        "validation_return": online.validation,
        "validation_episodes": settings.validation_episodes if online.validation is not None else 0,
        **{name: told[-1][name] for name in ("picture", "reward", "end", "kl") if told},
        "first_picture": told[0]["picture"] if told else None,
        "parameters": sum(parameter.numel() for parameter in online.model.parameters()),
        "precision": precision.name,
        "capacity": settings.capacity,
    }


def _write(
    folder: Path,
    session: Session,
    model: Dreamer,
    env: EnvConfig,
    space: ActionSpace,
    ring: Ring,
    settings: DreamerSettings,
) -> None:
    save_dreamer(folder, model, env, space)
    lines = metrics_file.read(folder)
    known = [line for line in lines if "episode_return" in line]
    steps, returns = ([line[name] for line in known] for name in ("step", "episode_return"))
    curve = Curve("mean of the last 100 training episodes", steps, returns)
    durable.write_bytes(folder / "returns.png", draw([curve], f"{session.env}: Dreamer", "environment step", "return"))
    if (strip := open_loop_strip(model, ring, settings.stack)) is not None:
        durable.write_bytes(folder / "open-loop.png", strip)


def _summary(artifact: Artifact) -> str:
    found = artifact.metrics
    told = f"{found['env_steps']:,} env steps, {found['updates']:,} updates"
    if found["training_return"] is not None:
        told += f"; the last {found['training_episodes']} training episodes returned {found['training_return']:.2f}"
    if found["validation_return"] is not None:
        told += f", {found['validation_episodes']} validation episodes {found['validation_return']:.2f}"
    if found["first_picture"] is not None:
        told += f"; picture error {found['picture']:.1f} a frame ({found['first_picture']:.1f} at first)"
    return told
