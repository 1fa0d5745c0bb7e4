"""Recorded test episodes: written as videos, or shown in a window while they are played."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wm.artifacts import durable, links
from wm.models.vae.networks import to_frames
from wm.report.film_strip import Panels, animation, sheets
from wm.report.video import can_film, film
from wm.report.window import Window, why_no_window
from wm.rollouts.loop import EpisodeJob, record
from wm.rollouts.players import DreamerSpec, PolicySpec, build_env, build_vae, make_agent, map_playing
from wm.rollouts.worker_process import heartbeat
from wm.rollouts.workers import open_workers
from wm.runtime import Runtime

MAX_FRAMES = 600  # of an animation; longer episodes are shown with every second, third, ... frame
FPS = 30
VIDEO_BYTES = 8_000_000  # at most, of one episode's GIF and MP4


@dataclass(frozen=True)
class Recording:
    """Some frames (N, S, S, C) of an episode, their steps, and the return up to each."""

    frames: NDArray[np.uint8]
    steps: NDArray[np.int64]
    returns: NDArray[np.float64]


def record_job(spec: PolicySpec | DreamerSpec, job: EpisodeJob) -> Recording:
    """Play a job and keep at most `MAX_FRAMES` of its frames. Runs in a worker."""
    agent, env = make_agent(spec, num_envs=1), build_env(spec)
    episode = record(agent, env, job, agent.space.column, heartbeat=heartbeat)
    last = len(episode.frames) - 1
    every = max(-(-last // (MAX_FRAMES - 1)), 1)
    steps = np.union1d(np.arange(0, last, every), last)
    returns = np.concatenate([[0.0], np.cumsum(episode.rewards[:-1], dtype=np.float64)])
    return Recording(episode.frames[steps], steps, returns[steps])


def record_videos(
    runtime: Runtime, folder: Path, spec: PolicySpec | DreamerSpec, jobs: Sequence[EpisodeJob]
) -> list[Path]:
    """Write a GIF of each job into `folder`, and an MP4 where that is installed. Returns the files. Raises BadData if
    `folder`, or the one it is in, is a link."""
    links.refuse(folder.parent)
    durable.make_folder(links.refuse(folder))
    written, films = list[Path](), can_film(runtime.log)
    with open_workers(runtime) as workers:
        for number, recording in map_playing(workers, record_job, [(spec, job) for job in jobs]):
            panels, captions = _panels(spec, recording.frames), _captions(recording.steps, recording.returns)
            path = folder / f"episode-{number}.gif"
            durable.write_bytes(path, animation(panels, captions, FPS))
            written.append(path)
            if films:
                movie = path.with_suffix(".mp4")
                _film(movie, panels, captions)
                written.append(movie)
    return sorted(written)


def _film(path: Path, panels: Panels, captions: Sequence[str]) -> None:
    """Write an MP4, whole or not at all. Its library opens files by name, so it is given one in a new folder."""
    staging = durable.staging_path(path)
    staging.mkdir()
    try:
        film(staging / path.name, panels, captions, FPS)
        os.replace(staging / path.name, path)
    finally:
        durable.remove(staging)


def show_episode(runtime: Runtime, title: str, spec: PolicySpec | DreamerSpec, job: EpisodeJob) -> None:
    """Play a job in a window, at most as fast as a video. Without a display, log that and return."""
    if reason := why_no_window():
        runtime.log(f"no window: {reason}; --record-video writes videos instead")
        return
    agent, env = make_agent(spec, num_envs=1), build_env(spec)
    agent.begin(0, job)
    frame, info = env.reset(seed=job.seed)
    step, episode_return, ended = 0, 0.0, False
    with Window(f"{title}: {job.seed}") as window:
        while not ended and window.open:
            runtime.raise_if_stopped()
            began = runtime.clock()
            (sheet,) = sheets(_panels(spec, frame[None]), _captions([step], [episode_return]), side=288)
            window.show(np.asarray(sheet))
            frame, reward, terminated, truncated, info = env.step(agent.act(frame[None], [info])[0])
            step, episode_return, ended = step + 1, episode_return + float(reward), bool(terminated or truncated)
            window.wait(1 / FPS - (runtime.clock() - began))
    runtime.log(f"shown: {step} steps, return {episode_return:.1f}")


@torch.inference_mode()
def _panels(spec: PolicySpec | DreamerSpec, frames: NDArray[np.uint8]) -> Panels:
    if isinstance(spec, DreamerSpec):
        return [("observation", frames)]
    vae = build_vae(spec)
    parts = [to_frames(vae.decode(vae.encode(part)[0])).numpy() for part in torch.from_numpy(frames).split(64)]
    return [("observation", frames), ("V's reconstruction", np.concatenate(parts))]


def _captions(steps: Sequence[int] | NDArray[Any], returns: Sequence[float] | NDArray[Any]) -> list[str]:
    return [f"step {step}, return {value:.1f}" for step, value in zip(steps, returns, strict=True)]
