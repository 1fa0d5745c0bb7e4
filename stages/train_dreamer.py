"""`wm train-dreamer`: a world model, an actor and a critic, trained while they act."""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from stages.session import Session, stage_name
from stages.stage import Plan, Result, plan_stage, run_stage
from wm.actions import ActionSpace
from wm.artifacts import durable, locks
from wm.artifacts.runs import SCRATCH, Artifact, Builder, Run
from wm.dreamer.online import OnlineTraining
from wm.dreamer.replay_store import (
    disk_bound,
    load_collected,
    open_replay,
    replay_buffer,
    replay_recipe,
    require_memory,
)
from wm.dreamer.training import final_metrics, save_pictures, train
from wm.dreamer.updates import (
    dreamer_config,
    new_dreamer,
    new_trainer,
    seconds_per_update,
    training_bytes,
    weight_bytes,
)
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.replay import ReplayBuffer, ReplayWriter
from wm.errors import UsageProblem
from wm.models.dreamer.agent import Dreamer
from wm.pretrained import save_dreamer
from wm.settings import DreamerSettings
from wm.telemetry.malloc import keep_freed
from wm.training.device import pick_device
from wm.training.precision import pick

RECIPE = 2
CHECKPOINTS = 9  # sizes of the weights: three checkpoints meanwhile, each with Adam's two moments


def replay_path(session: Session) -> Path:
    """The dataset to which training writes its replay."""
    name = stage_name(session, "dreamer").replace("/", "-")
    return Path("data") / f"{session.run_path.name}.{name}.zarr"


def _run(session: Session, settings: DreamerSettings) -> Run:
    inputs = {f"data-{number}": Dataset.open(path).fingerprint for number, path in enumerate(session.data)}
    return session.make_run(stage_name(session, "dreamer"), "dreamer", RECIPE, settings.result_settings(), inputs)


def _env(session: Session, settings: DreamerSettings) -> tuple[EnvConfig, ActionSpace]:
    config = EnvConfig(session.env, settings.size, settings.gray)
    with closing(config.make()) as env:
        return config, ActionSpace.of(env.action_space)


def plan(session: Session, settings: DreamerSettings) -> Plan:
    """The plan of `train_dreamer`, with the measured time of a few updates."""
    run = _run(session, settings)
    return plan_stage("train-dreamer", run, partial(_estimate, session, settings, run))


def _estimate(session: Session, settings: DreamerSettings, run: Run) -> Plan:
    _, space = _env(session, settings)
    config, device = dreamer_config(settings, space), pick_device(session.device)
    model = new_dreamer(config, session.seed).to(device)
    trainer = new_trainer(model, settings, pick(settings.precision, device))
    seconds = seconds_per_update(trainer, settings.batch, settings.seq_len, device, session.runtime.clock)
    updates = settings.steps * settings.train_ratio / (settings.batch * settings.seq_len)
    updates += settings.pretrain if session.data else 0
    weights = weight_bytes(model)
    return Plan(
        "train-dreamer",
        run.folder,
        f"{settings.steps} steps of {settings.num_envs} environments, {updates:,.0f} updates",
        disk=disk_bound(settings.capacity, settings.part_rows, config) + weights,
        memory=training_bytes(settings, config, weights),
        seconds=(updates * seconds, 1.5 * updates * seconds + settings.steps / 200),
        scratch=CHECKPOINTS * weights,
    )


def train_dreamer(session: Session, settings: DreamerSettings) -> Result:
    """Train on collected episodes, if there are any, then while acting; publish the last weights.

    After a kill it resumes from the last checkpoint: weights, optimizer, counts and replay; open episodes restart.
    """
    _check(session, settings)
    run = _run(session, settings)
    if run.current() is not None:  # neither environment nor memory are needed
        return run_stage(session, "train-dreamer", run, (0, ""), _summary, lambda _: {})
    env, space = _env(session, settings)
    config = dreamer_config(settings, space)
    require_memory(settings.capacity, config)
    replay = disk_bound(settings.capacity, settings.part_rows, config)
    session.budget(replay_path(session)).require(replay, 0, f"a replay of {settings.capacity} steps")
    model = new_dreamer(config, session.seed)
    need = (CHECKPOINTS + 1) * weight_bytes(model), "a Dreamer's checkpoints"
    work = partial(_train, session, settings, env, space, model)
    return run_stage(session, "train-dreamer", run, need, _summary, work, env)


def _check(session: Session, settings: DreamerSettings) -> None:
    if session.data:
        return
    if not settings.steps:
        raise UsageProblem("--steps is 0 without --data; give environment steps, or collected episodes.")
    if (settings.steps - settings.prefill) * settings.train_ratio < settings.batch * settings.seq_len:
        raise UsageProblem(
            f"--steps is {settings.steps} at --train-ratio {settings.train_ratio:g}: training would end before the "
            f"first update, which needs {settings.prefill} steps and then a batch's worth; give more."
        )


def _train(
    session: Session, settings: DreamerSettings, env: EnvConfig, space: ActionSpace, model: Dreamer, builder: Builder
) -> dict[str, Any]:
    """Train, and fill the artifact's folder; returns its metrics."""
    runtime, folder, path = session.runtime, builder.folder, replay_path(session)
    device = pick_device(session.device)
    precision = pick(settings.precision, device)
    keep_freed()
    trainer = new_trainer(model.to(device), settings, precision)
    capacity = settings.capacity if settings.steps else settings.num_envs * settings.seq_len
    buffer = replay_buffer(settings.num_envs, capacity, model.config, space)

    def collected() -> ReplayBuffer:
        return load_collected(session.data, settings.capacity, model.config, space, runtime.log)

    with locks.exclusive(path):
        writer = _writer(session, settings, env, buffer, resumed=builder.resumed)
        training = OnlineTraining(
            trainer, settings, env, writer, folder / SCRATCH, session.seed, device, runtime.raise_if_stopped
        )
        label = f"train-dreamer {session.env}"
        train(runtime, label, training, settings, folder, collected if session.data else None)
    model.cpu().eval().requires_grad_(False)
    save_dreamer(folder, model, env, space)
    save_pictures(folder, f"{session.env}: Dreamer", model, buffer if len(buffer) else collected())
    return final_metrics(folder, training, settings, precision.name)


def _writer(
    session: Session, settings: DreamerSettings, env: EnvConfig, buffer: ReplayBuffer, resumed: bool
) -> ReplayWriter:
    path, part_rows = replay_path(session), settings.part_rows
    recipe = replay_recipe(env, buffer.space, session.seed)
    if settings.steps:
        open_replay(path, recipe, resumed, session.runtime.log)

    def allow(size: int) -> None:
        session.budget(path).require(size, durable.folder_size(path), "a part of the replay", files=16)

    return ReplayWriter(path, recipe, buffer, part_rows, settings.capacity + part_rows, allow)


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    parts = [f"{metrics['env_steps']:,} env steps, {metrics['updates']:,} updates"]
    for name in ("training", "validation"):
        if metrics[f"{name}_return"] is not None:
            episodes = metrics[f"{name}_episodes"]
            parts.append(f"mean return of {episodes} {name} episodes {metrics[f'{name}_return']:.2f}")
    if (first := metrics["first_squared_error"]) is not None:
        parts.append(f"squared error a frame {metrics['squared_error']:.1f} ({first:.1f} at first)")
    return "; ".join(parts)
