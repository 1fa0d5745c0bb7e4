"""Records films of test episodes: the environment's screen, and what V and M make of what the agent sees."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from wm.actions import ActionSpace
from wm.envs.pixel_env import PixelEnv
from wm.models.vae.networks import Vae, to_frames
from wm.pretrained import load_mdnrnn
from wm.report.agent_film import Film
from wm.report.page.player import encode, sheet
from wm.report.play.controls import action_names, measure_pace
from wm.rollouts.loop import EpisodeJob, EpisodeResult, play
from wm.rollouts.players import NUM_ENVS, DreamerSpec, PolicySpec, build_vae, make_agent, map_playing
from wm.rollouts.worker_process import heartbeat
from wm.rollouts.workers import open_workers
from wm.runtime import Runtime

Frames = NDArray[np.uint8]
FRAMES = 240  # of a film, at most
EVERY = 2  # where an episode is longer, every second frame, so that twice the steps are shown and things still move
SCREEN_BYTES = 1_500_000  # of all frames: 240 of CarRacing are 1.1 MB, of LunarLander 0.3 MB, of Pong 0.04 MB
LOSSLESS = 4_000  # bytes of a frame: drawings are smaller, and exact; what is larger is a texture or a photograph
LONGEST_SIDE = 800  # pixels; a larger screen is shrunk
SHEET = 8  # columns of the sheet of small pictures
PARTS = ["what the agent sees", "V's reconstruction", "what M expected"]


class Recorder:
    """An environment whose first frames are kept: screens, observations, actions and rewards."""

    def __init__(self, env: PixelEnv) -> None:
        self.env, self.every = env, 1
        self.screens, self.observations = list[bytes](), list[Frames]()
        self.actions, self.rewards = list[Any](), list[float]()
        self.size, self._bytes, self._lossy, self._full = (0, 0), 0, False, False

    @property
    def steps(self) -> int:
        """Of the environment in this episode."""
        return self.env.steps

    def reset(self, *, seed: int | None = None) -> tuple[Frames, dict[str, Any]]:
        """Begin the episode."""
        observation, info = self.env.reset(seed=seed)
        self._keep(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """One action."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not self._full:
            self.actions.append(np.array(action).tolist())
            self.rewards.append(reward)
            self._keep(observation)
        return observation, reward, terminated, truncated, info

    def _keep(self, observation: Frames) -> None:
        """Keep what is seen after the latest action, until the film has enough of it."""
        # A copy: the environment may draw the next frame into the same array.
        self.observations.append(observation.copy())
        if len(self.screens) == FRAMES and self.every < EVERY:
            self.screens, self.every = self.screens[::EVERY], EVERY
        if len(self.actions) % self.every:
            return
        image = self._encode(self.env.screen())
        self._bytes += len(image)
        self._full = len(self.screens) == FRAMES or self._bytes > SCREEN_BYTES
        if not self._full:
            self.screens.append(image)

    def _encode(self, pixels: Frames) -> bytes:
        picture = Image.fromarray(pixels)
        picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        self.size, drawn = picture.size, np.asarray(picture)
        if not self._lossy:
            # method 1: of a lossless picture more effort saves little.
            image = encode(drawn, "WEBP", lossless=True, quality=30, method=1)
            self._lossy = len(image) > LOSSLESS
        # With 65 of 100 the 240 frames of CarRacing take 1.1 of SCREEN_BYTES' 1.5 MB.
        return encode(drawn, "WEBP", quality=65, method=2) if self._lossy else image


def film_jobs(spec: PolicySpec | DreamerSpec, names: Sequence[str], jobs: Sequence[EpisodeJob]) -> list[Film]:
    """Play jobs in lockstep as an evaluation does, and keep a film of each, with these names. Runs in a worker."""
    agent = make_agent(spec, NUM_ENVS)
    with ExitStack() as stack:
        recorders = [Recorder(stack.enter_context(closing(spec.env.make(filmed=True)))) for _ in jobs]
        results = {result.key: result for result in play(agent, recorders, jobs, heartbeat=heartbeat)}
    films = zip(names, jobs, recorders, strict=True)
    return [_film(spec, name, job, agent.space, recorder, results[job.key]) for name, job, recorder in films]


def _film(
    spec: PolicySpec | DreamerSpec,
    name: str,
    job: EpisodeJob,
    space: ActionSpace,
    recorder: Recorder,
    result: EpisodeResult,
) -> Film:
    steps = recorder.every * (len(recorder.screens) - 1)
    observations, actions = np.stack(recorder.observations[: steps + 1]), recorder.actions[:steps]
    rows = [observations, *(_made_of(spec, observations, space, actions) if isinstance(spec, PolicySpec) else ())]
    pictures = np.concatenate([frames[:: recorder.every] for frames in rows], axis=2)
    return Film(
        name=name,
        episode=job.key,
        seed=job.seed,
        episode_return=result.episode_return,
        length=result.length,
        terminated=result.terminated,
        every=recorder.every,
        rate=measure_pace(spec.env)[0],
        width=recorder.size[0],
        height=recorder.size[1],
        side=observations.shape[1],
        columns=SHEET,
        sizes=[len(image) for image in recorder.screens],
        parts=PARTS[: len(rows)],
        space=space.as_json(),
        action_names=action_names(spec.env.name, space),
        actions=actions,
        rewards=recorder.rewards[:steps],
        screen=b"".join(recorder.screens),
        beside=encode(sheet(pictures, SHEET), "WEBP", quality=75, method=4),
    )


@torch.inference_mode()
def _made_of(spec: PolicySpec, observations: Frames, space: ActionSpace, actions: list[Any]) -> tuple[Frames, Frames]:
    """V's reconstruction of (T + 1, S, S, C) frames, and what M expected of each from the real frames and actions
    before it; black for the first, of which it expects nothing."""
    vae, mdnrnn = build_vae(spec), load_mdnrnn(spec.mdnrnn, "wm train-mdnrnn").model
    # 64 at a time, so that hundreds of frames need little memory.
    z = torch.cat([vae.encode(part)[0] for part in torch.from_numpy(observations).split(64)])
    column = space.column(len(actions))
    column[:] = actions
    before, encoded = z[None, :-1], torch.from_numpy(space.encode(column))[None]
    expected = _decode(vae, mdnrnn.one_step(before, encoded, z[None, 1:]).z[0]) if len(actions) else observations[:0]
    return _decode(vae, z), np.concatenate([np.zeros_like(observations[:1]), expected])


def _decode(vae: Vae, z: torch.Tensor) -> Frames:
    frames: Frames = torch.cat([to_frames(vae.decode(part)) for part in z.split(64)]).numpy()
    return frames


def film_episodes(
    runtime: Runtime, spec: PolicySpec | DreamerSpec, names: Sequence[str], jobs: Sequence[EpisodeJob]
) -> list[Film]:
    """Play test episodes again and film them, with these names. In one process where two environments share state."""
    together = spec.env.envs_per_process != 1
    tasks = (
        [(spec, names, jobs)] if together else [(spec, [name], [job]) for name, job in zip(names, jobs, strict=True)]
    )
    with open_workers(runtime) as workers:
        films = dict(map_playing(workers, film_jobs, tasks))
    return [film for number in sorted(films) for film in films[number]]
