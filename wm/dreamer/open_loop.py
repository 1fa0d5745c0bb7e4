"""What a Dreamer imagines: `wm dream --agent dreamer`, and the film strip that its training leaves."""

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stages import console
from stages.session import Session, stage_name
from stages.stage import Plan, Result, made, up_to_date
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Run
from wm.dreamer.online import to_batch
from wm.episodes.replay import Ring, Steps
from wm.models.dreamer.agent import Dreamer
from wm.models.dreamer.rssm import State
from wm.models.dreamer.world_model import Batch
from wm.pretrained import TrainedDreamer, find_dreamer
from wm.report.film_strip import animation, error_map, film_strip
from wm.rollouts.loop import EpisodeJob, Trajectory, record
from wm.rollouts.players import DreamerSpec, build_env, make_agent
from wm.seeding import episode_seed, generator
from wm.settings import DreamSettings

RECIPE = 1
CONTEXT, FRAMES, FPS = 16, 120, 15  # steps before the pictured trajectory, its steps, frames per second
LENGTHS = ((8, 15), (2, 5))  # steps that are seen and steps ahead; fewer where episodes are short
COLUMNS, TRIES = 8, 256
HORIZONS = (1, 5, 15, 50)
EPISODES, STARTS = 4, 32  # whose frames are foretold, and from how many places in all


@torch.inference_mode()
def follow(model: Dreamer, batch: Batch, context: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features (B, T - context, F) that follow the actions of the last steps without looking, after `context` steps
    that were seen, and the rewards expected there."""
    world = model.world
    embeds = world.see(batch.frames[:, :context])
    states, _, _ = world.rssm.observe(embeds, batch.actions[:, :context], batch.first[:, :context], source)
    state, found = State(states.deter[:, -1], states.stoch[:, -1]), []
    for step in range(context, batch.first.shape[1]):
        state = world.rssm.imagine(state, batch.actions[:, step], source)
        found.append(state.features)
    features = torch.stack(found, 1)
    return features, world.outcome(features)[0]


def _window(ring: Ring, context: int, ahead: int, stack: int) -> tuple[Steps, int] | None:
    """Steps of one episode, and how many of them are seen: of some windows the one whose calmest step moves most."""
    random, most, found = generator(0, "open loop"), -1.0, None
    for _ in range(TRIES if ring.starts(context + ahead).sum() else 0):
        steps = ring.sample(1, context + ahead, random, stack)
        moves = (steps.frames[0, 1:] != steps.frames[0, :-1]).mean((1, 2, 3)).min()
        if moves > most and not steps.first[0, 1:].any():
            most, found = moves, (steps, context)
    return found


@torch.inference_mode()
def open_loop_strip(model: Dreamer, ring: Ring, stack: int) -> bytes | None:
    """A PNG of 15 steps that follow the real actions without looking, after 8 steps that were seen: what happened, what
    was imagined, and the error. None if the replay has no window that long without an episode's end."""
    found = next((found for lengths in LENGTHS if (found := _window(ring, *lengths, stack)) is not None), None)
    if found is None:
        return None
    steps, context = found
    batch = to_batch(steps, torch.from_numpy(steps.frames), torch.device("cpu"))
    features, _ = follow(model, batch, context, torch.Generator().manual_seed(0))
    real = steps.frames[0, context:, ..., -model.form.channels :]
    return _strip(real, model.world.picture(features[0]).numpy(), context)


def _strip(real: NDArray[np.uint8], imagined: NDArray[np.uint8], context: int) -> bytes:
    chosen = np.unique(np.linspace(0, len(real) - 1, COLUMNS).round().astype(int))
    rows = [
        ("what\nhappened", real[chosen]),
        ("imagined", imagined[chosen]),
        ("error x4", error_map(real[chosen], imagined[chosen])),
    ]
    captions = [f"{step + 1} ahead" for step in chosen]
    return film_strip(rows, captions, f"Following the real actions without looking, after {context} steps")


def _run(session: Session, settings: DreamSettings, trained: TrainedDreamer) -> Run:
    inputs = {"dreamer": trained.artifact.fingerprint}
    name = stage_name(session, f"dream-{settings.agent}")
    return session.make_run(name, "dream", RECIPE, settings.result_settings(), inputs)


def plan(session: Session, settings: DreamSettings) -> Plan:
    """What `imagine` would do."""
    run = _run(session, settings, find_dreamer(session.workspace, settings.agent))
    done = run.current() is not None
    what = "up to date" if done else f"{EPISODES} episodes foretold, an animation and a film strip"
    return Plan("dream", run.folder, what, 0 if done else 4_000_000, 700_000_000, (0, 0) if done else (5, 60))


def imagine(session: Session, settings: DreamSettings) -> Result:
    """Play validation episodes, foretell their frames and rewards from the actions alone, and draw one of them."""
    began = time.monotonic()
    trained = find_dreamer(session.workspace, settings.agent)
    run = _run(session, settings, trained)
    if (current := run.current()) is not None:
        return up_to_date("dream", current, _summary(current))
    session.budget(run.folder).require(4_000_000, 0, "the dream's pictures")
    with run.build(session.keep_current, console.say) as builder:
        if builder.restored is not None:
            return up_to_date("dream", builder.restored, _summary(builder.restored), "restored")
        played = _play(session, trained, settings.max_steps)
        longest = max(played, key=lambda episode: len(episode.frames))
        context = min(CONTEXT, max(len(longest.frames) // 4, 1))  # fewer where episodes are short
        metrics = _compare(trained, played, context)
        features, _ = follow(trained.model, _batch(trained, longest, 0, context + FRAMES), context, _source(session))
        imagined = trained.model.world.picture(features[0]).numpy()
        real = longest.frames[context : context + len(imagined)]
        durable.write_bytes(builder.folder / "dream.png", _strip(real, imagined, context))
        panels = [("reality", real), ("imagined", imagined)]
        captions = [f"{step + 1} steps ahead" for step in range(len(real))]
        durable.write_bytes(builder.folder / "dream.gif", animation(panels, captions, FPS))
        artifact = builder.publish(metrics | {"agent": "dreamer"}, session.provenance(began, trained.env))
    return made("dream", builder, artifact, _summary(artifact))


def _source(session: Session) -> torch.Generator:
    return torch.Generator().manual_seed(session.seed)


def _play(session: Session, trained: TrainedDreamer, most: int) -> list[Trajectory]:
    player = DreamerSpec(trained.env, trained.artifact.folder, trained.artifact.fingerprint)
    agent, env, found = make_agent(player, num_envs=1), build_env(player), []
    for number in range(EPISODES):
        session.stop.raise_if_stopped()
        job = EpisodeJob(number, episode_seed("validation", session.seed, "imagine", number))
        found.append(record(agent, env, job, agent.space.column, most))
    return found


def _batch(trained: TrainedDreamer, played: Trajectory, start: int, count: int) -> Batch:
    """Rows of an episode as one window."""
    rows = slice(start, min(start + count, len(played.frames)))
    stack, space = trained.model.form.stack, trained.space
    places = [np.maximum(np.arange(rows.start, rows.stop) - back, 0) for back in range(stack - 1, -1, -1)]
    frames = np.concatenate([played.frames[place] for place in places], -1)
    before = np.roll(space.encode(played.actions), 1, axis=0)[rows]
    rewards = np.roll(played.rewards, 1)[rows]
    first = np.zeros(len(frames), np.float32)
    first[0] = 1
    columns = (before, rewards, first, np.zeros_like(first))
    return Batch(torch.from_numpy(frames)[None], *(torch.from_numpy(np.ascontiguousarray(c))[None] for c in columns))


@torch.inference_mode()
def _compare(trained: TrainedDreamer, played: list[Trajectory], context: int) -> dict[str, Any]:
    """Squared error a pixel (of 255) by horizon, beside keeping the last frame that was seen; and rewards foretold."""
    form, longest = trained.model.form, HORIZONS[-1]
    errors: dict[int, list[tuple[float, float]]] = {ahead: [] for ahead in HORIZONS}
    rewards: list[tuple[float, float]] = []
    for number, episode in enumerate(played):
        room = len(episode.frames) - context - 1
        for start in np.unique(np.linspace(0, room, STARTS // len(played)).astype(int)) if room > 0 else ():
            batch = _batch(trained, episode, int(start), context + longest)
            features, told = follow(trained.model, batch, context, torch.Generator().manual_seed(number))
            drawn = trained.model.world.picture(features[0]).numpy().astype(float)
            real = batch.frames[0, :, ..., -form.channels :].numpy().astype(float)
            rewards.append((float(told.sum()), float(batch.rewards[0, context:].sum())))
            for ahead in HORIZONS:
                if ahead <= len(drawn):
                    wanted = real[context + ahead - 1]
                    kept = float(np.square(wanted - real[context - 1]).mean())
                    errors[ahead].append((float(np.square(wanted - drawn[ahead - 1]).mean()), kept))
    found: dict[str, Any] = {"open_loop": {}}
    for ahead, pairs in errors.items():
        names = ("dream", "persistence")
        means = dict(zip(names, np.mean(pairs, axis=0).tolist(), strict=True)) if pairs else None
        found["open_loop"][str(ahead)] = means and {**means, "starts": len(pairs)}
    foretold, real_rewards = np.array(rewards).reshape(-1, 2).T
    varied = len(rewards) > 2 and np.ptp(foretold) > 0 and np.ptp(real_rewards) > 0
    found["reward_correlation"] = float(np.corrcoef(foretold, real_rewards)[0, 1]) if varied else None
    return found


def _summary(artifact: Artifact) -> str:
    told = []
    for ahead in HORIZONS:
        if (errors := artifact.metrics["open_loop"][str(ahead)]) is not None:
            told.append(f"{ahead} ahead {errors['dream']:.1f} ({errors['persistence']:.1f})")
    text = f"squared error a pixel, beside keeping the last frame: {', '.join(told) or 'episodes are too short'}"
    rho = artifact.metrics["reward_correlation"]
    return text + ("" if rho is None else f"; rewards foretold correlate {rho:.2f} with real ones")
