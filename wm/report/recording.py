"""Test episodes to look at: filmed, or played in a window."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stages import console
from stages.session import Session
from wm.artifacts import durable
from wm.models.vae.networks import to_frames
from wm.report.film_strip import Panels, animation, sheets
from wm.report.video import can_film, film
from wm.report.window import Window, why_no_window
from wm.rollouts.loop import EpisodeJob, record
from wm.rollouts.players import DreamerSpec, PolicySpec, build_env, build_vae, make_agent
from wm.rollouts.workers import heartbeat
from wm.settings import EvaluateSettings

MOST_FRAMES = 600  # of an animation; of longer episodes every second, third, ... frame is shown
FPS = 30


@dataclass(frozen=True)
class Filmed:
    """Some frames (N, S, S, C) of an episode, the steps they were seen at, and the return until then."""

    frames: NDArray[np.uint8]
    steps: NDArray[np.int64]
    returns: NDArray[np.float64]


def film_job(player: PolicySpec | DreamerSpec, job: EpisodeJob) -> Filmed:
    """Play a job and keep what can be shown of it. Runs in a worker."""
    agent, env = make_agent(player, num_envs=1), build_env(player)
    played = record(agent, env, job, agent.space.column, heartbeat=heartbeat)
    last = len(played.frames) - 1
    every = max(-(-last // (MOST_FRAMES - 1)), 1)
    steps = np.union1d(np.arange(0, last, every), last)
    returns = np.concatenate([[0.0], np.cumsum(played.rewards[:-1], dtype=np.float64)])
    return Filmed(played.frames[steps], steps, returns[steps])


def film_episodes(
    session: Session, settings: EvaluateSettings, player: PolicySpec | DreamerSpec, jobs: Sequence[EpisodeJob]
) -> list[Path]:
    """Write an animation of each job to `videos/<who plays>`; returns the files."""
    folder = session.run_path / "videos" / settings.agent
    durable.make_folder(folder)
    session.budget(folder).require(len(jobs) * 8_000_000, 0, f"{len(jobs)} films")
    written: list[Path] = []
    with session.open_workers() as workers:
        for number, filmed in workers.map(film_job, [(player, job) for job in jobs]):
            panels, captions = _panels(player, filmed.frames), _captions(filmed.steps, filmed.returns)
            path = folder / f"episode-{number}.gif"
            durable.write_bytes(path, animation(panels, captions, FPS))
            written.append(path)
            if can_film():
                movie = path.with_suffix(".mp4")
                film(movie.with_name(f".{movie.name}"), panels, captions, FPS)
                os.replace(movie.with_name(f".{movie.name}"), movie)
                written.append(movie)
    return sorted(written)


def show_episode(session: Session, player: PolicySpec | DreamerSpec, job: EpisodeJob) -> None:
    """Play a job in a window, at most as fast as a film; where no window can be opened, say so."""
    if why := why_no_window():
        console.say(f"no window: {why}; --record-video makes films instead")
        return
    agent, env = make_agent(player, num_envs=1), build_env(player)
    agent.begin(0, job)
    frame, info = env.reset(seed=job.seed)
    step, total, over = 0, 0.0, False
    with Window(f"{session.env}: {job.seed}") as window:
        while not over and window.open:
            session.stop.raise_if_stopped()
            began = time.monotonic()
            (sheet,) = sheets(_panels(player, frame[None]), _captions([step], [total]), side=288)
            window.show(np.asarray(sheet))
            frame, reward, terminated, truncated, info = env.step(agent.act(frame[None], [info])[0])
            step, total, over = step + 1, total + float(reward), bool(terminated or truncated)
            time.sleep(max(1 / FPS - (time.monotonic() - began), 0))
    console.say(f"shown: {step} steps, return {total:.1f}")


@torch.inference_mode()
def _panels(player: PolicySpec | DreamerSpec, frames: NDArray[np.uint8]) -> Panels:
    if isinstance(player, DreamerSpec):
        return [("what the agent sees", frames)]
    vae = build_vae(player)
    seen = [to_frames(vae.decode(vae.encode(part)[0])).numpy() for part in torch.from_numpy(frames).split(64)]
    return [("what the agent sees", frames), ("what V makes of it", np.concatenate(seen))]


def _captions(steps: Sequence[int] | NDArray[Any], returns: Sequence[float] | NDArray[Any]) -> list[str]:
    return [f"step {step}, return {total:.1f}" for step, total in zip(steps, returns, strict=True)]
