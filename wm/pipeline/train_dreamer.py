"""A Dreamer: a world model, an actor and a critic, trained on collected episodes, then while they act."""

import os
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from wm.actions import ActionSpace
from wm.artifacts import durable, locks
from wm.artifacts.manifest import sha256_json
from wm.artifacts.runs import Artifact, Builder, Run
from wm.dreamer import replay_store, updates
from wm.dreamer.cost import publishing_bytes
from wm.dreamer.environment import playing_env
from wm.dreamer.online import OnlineTraining
from wm.dreamer.training import final_metrics, save_pictures, summarize, train
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.mixture import distinct
from wm.episodes.replay import ReplayBuffer, ReplayWriter
from wm.errors import UsageProblem
from wm.models.dreamer.agent import Dreamer
from wm.pipeline.session import Session, stage_name
from wm.pipeline.stage import RESTORED, Result, run_stage
from wm.pretrained import save_dreamer
from wm.settings import DreamerSettings
from wm.training.device import pick_device
from wm.training.precision import pick

# Raised by each change after which the same settings give another Dreamer.
RECIPE = 4


def replay_path(session: Session) -> Path:
    """The dataset to which training writes its replay. That of a run outside of runs/ has a digest of the run's path in
    its name, for another run may have the same name elsewhere."""
    run, name = session.run_path, stage_name(session, "dreamer")
    usual = run.resolve() == (Path("runs") / run.name).resolve()
    # 32 bits of the path: a replay of a run elsewhere must not take the usual one's name.
    digest = "" if usual else f"-{sha256_json(os.path.relpath(run))[:8]}"
    return Path("data") / f"{run.name}{digest}.{name}.zarr"


def open_datasets(session: Session) -> list[Dataset]:
    """The collected episodes on which training begins; none without --data."""
    return [Dataset.open(path, env=session.env) for path in distinct(session.data)]


def dreamer_run(session: Session, settings: DreamerSettings, datasets: Sequence[Dataset]) -> Run:
    """The place of a Dreamer in a run, trained first on these episodes."""
    inputs = {f"data-{number}": dataset.fingerprint for number, dataset in enumerate(datasets)}
    inputs |= EnvConfig(session.env, settings.size, settings.gray).code.sources
    return session.make_run(stage_name(session, "dreamer"), "dreamer", RECIPE, settings.result_settings(), inputs)


def require_used(session: Session, settings: DreamerSettings, typed: Collection[str]) -> None:
    """Raise UsageProblem for a training that ends before the actor's first update, and for updates of a pretraining
    without episodes. `typed` are the settings of the command line."""
    if "pretrain" in typed and not session.data:
        raise UsageProblem(
            f"--pretrain is {settings.pretrain} but there are no episodes to train on; give them with --data, or leave "
            "it out."
        )
    settings.require_update(bool(session.data))


def train_dreamer(session: Session, settings: DreamerSettings) -> Result:
    """Train on collected episodes, if there are any, then while acting; publish the last weights.

    After a kill it resumes from the last checkpoint: weights, optimizer, counts and replay; open episodes restart.
    """
    settings.require_update(bool(session.data))
    run = dreamer_run(session, settings, datasets := open_datasets(session))
    if run.current() is not None:  # neither environment nor memory are needed
        return run_stage(session, "train-dreamer", run, (0, ""), _summary, lambda _: {})
    env, space = playing_env(session.env, settings, session.data, session.runtime)
    config = updates.dreamer_config(settings, space)
    replay_store.require_collected(datasets, env, config, space)
    replay_store.require_memory(settings.capacity, config)
    replay = replay_store.disk_bound(settings.capacity, settings.part_rows, config)
    session.budget(replay_path(session)).require(replay, 0, f"a replay of {settings.capacity} steps")
    model = updates.new_dreamer(config, session.seed)
    need = publishing_bytes(model), "a Dreamer's checkpoints"
    work = partial(_train, session, settings, env, space, model, datasets)
    result = run_stage(session, "train-dreamer", run, need, _summary, work, env)
    if result.status == RESTORED:
        with locks.exclusive(path := replay_path(session)):
            replay_store.swap_in(path, run.recipe.fingerprint, True, session.runtime.log)
    return result


def _train(
    session: Session,
    settings: DreamerSettings,
    env: EnvConfig,
    space: ActionSpace,
    model: Dreamer,
    datasets: list[Dataset],
    builder: Builder,
) -> dict[str, Any]:
    """Train, and fill the artifact's folder; returns its metrics."""
    runtime, folder, path = session.runtime, builder.folder, replay_path(session)
    device = pick_device(session.device)
    precision = pick(settings.precision, device)
    trainer = updates.new_trainer(model.to(device), settings, precision)
    capacity = settings.capacity if settings.steps else settings.num_envs * settings.seq_len
    buffer = replay_store.replay_buffer(settings.num_envs, capacity, model.config, space)

    def collected() -> ReplayBuffer:
        return replay_store.load_collected(datasets, settings.capacity, model.config, space, runtime.log)

    with locks.exclusive(path):
        writer = _writer(session, settings, env, buffer, builder)
        training = OnlineTraining(
            trainer, settings, env, writer, folder, session.seed, device, runtime.raise_if_stopped
        )
        label = f"train-dreamer {session.env}"
        earlier_seconds = train(runtime, label, training, settings, folder, collected if datasets else None)
    model.cpu().eval().requires_grad_(False)
    save_dreamer(folder, model, env, space)
    save_pictures(folder, f"{session.env}: Dreamer", model, buffer if len(buffer) else collected())
    earlier = {"earlier_seconds": earlier_seconds} if earlier_seconds else {}
    collected_steps = {"collected_steps": sum(dataset.env_steps for dataset in datasets)}
    metrics = final_metrics(
        folder,
        training,
        precision.name,
        capacity=settings.capacity,
        validation_episodes=settings.validation_episodes,
    )
    return metrics | collected_steps | earlier


def _writer(
    session: Session, settings: DreamerSettings, env: EnvConfig, buffer: ReplayBuffer, builder: Builder
) -> ReplayWriter:
    path, part_rows = replay_path(session), settings.part_rows
    recipe = replay_store.replay_recipe(env, buffer.space, session.seed)
    if settings.steps:
        training = builder.run.recipe.fingerprint
        replay_store.open_replay(path, recipe, training, builder.resumed, session.runtime.log)

    def allow(size: int) -> None:
        # A part has ten files and their folders.
        session.budget(path).require(size, durable.folder_size(path), "a part of the replay", files=16)

    return ReplayWriter(path, recipe, buffer, part_rows, settings.capacity + part_rows, allow)


def _summary(artifact: Artifact) -> str:
    return summarize(artifact.metrics)
