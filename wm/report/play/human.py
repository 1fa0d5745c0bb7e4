"""A person plays the real game in a window, and the episodes become a dataset."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from wm.actions import ActionSpace
from wm.artifacts.disk import DiskBudget
from wm.envs.registration import guarded
from wm.episodes.archive import Claim
from wm.errors import WmError
from wm.report.play.controls import Controls
from wm.rollouts.collection import Collection, open_writer, record_episode
from wm.rollouts.loop import EpisodeJob
from wm.runtime import Runtime

SIDE = 640  # pixels of the window's longer side; a picture is enlarged by a whole number, so that its pixels stay alike


class Screen(Protocol):
    """The part of a window that is used."""

    @property
    def open(self) -> bool:
        """Whether it has not been closed."""

    def show(self, frame: NDArray[np.uint8]) -> None:
        """Show an (H, W, 3) frame."""

    def keys(self) -> Sequence[str]:
        """The keys that are held."""

    def wait(self, seconds: float) -> None:
        """Return after this time, or when it is closed."""


class _Closed(WmError):
    """The person has closed the window."""


class Person:
    """Acts by the keys that are held, at a pace that a person can follow, and sees the game's own picture."""

    num_envs = 1

    def __init__(
        self,
        screen: Screen,
        picture: Callable[[], NDArray[np.uint8]],
        controls: Controls,
        space: ActionSpace,
        steps_per_second: int,
        runtime: Runtime,
    ) -> None:
        self._screen, self._picture, self._controls, self._space = screen, picture, controls, space
        self._interval, self._clock = 1 / steps_per_second, runtime.clock
        self._raise_if_stopped = runtime.raise_if_stopped
        self._steps, self._next = 0, runtime.clock()

    def begin(self, env_index: int, job: EpisodeJob) -> None:
        """A new episode."""
        self._steps, self._next = 0, self._clock()

    def act(self, frames: NDArray[Any], infos: Sequence[dict[str, Any]]) -> list[Any]:
        """Show the picture, wait for the time of this step, and act. The frames are stored; nobody looks at them."""
        self._screen.show(fitted(self._picture()))
        self._next += self._interval
        self._screen.wait(self._next - self._clock())
        self._next = max(self._next, self._clock() - self._interval)  # what was late is not caught up
        self._raise_if_stopped()
        if not self._screen.open:
            raise _Closed
        action = self._controls.action(self._screen.keys(), self._steps)
        self._steps += 1
        return [action if self._space.discrete else np.asarray(action, np.float32)]


def fitted(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An (H, W, 3) picture of a size that a person sees well, with the same proportions."""
    longer = max(picture.shape[:2])
    image = Image.fromarray(picture)
    if longer > SIDE:
        image.thumbnail((SIDE, SIDE))
        return np.asarray(image)
    factor = SIDE // longer
    return np.asarray(image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST))


def record_person(
    collection: Collection,
    claim: Claim,
    episodes: int,
    budget: DiskBudget,
    screen: Screen,
    controls: Controls,
    steps_per_second: int,
    runtime: Runtime,
) -> int:
    """Let a person play `episodes` more of a claimed dataset, or until the window is closed. Returns how many were
    played to their end; an unfinished one is dropped. Raises DiskProblem, Stopped after a signal, and EnvironmentFault
    for what the game raises, with the finished ones kept."""
    upto = claim.dataset.collected if claim.dataset else 0
    missing = claim.missing(upto + episodes)[:episodes]
    env, writer, done = collection.env.make(labelled=True, filmed=True), None, 0
    space, env_name = ActionSpace.of(env.action_space), collection.env.name
    person = Person(screen, env.screen, controls, space, steps_per_second, runtime)
    try:
        for index in missing:
            runtime.raise_if_stopped()
            episode = guarded(env_name, partial(record_episode, collection, index, env, person, space))
            writer = writer or open_writer(claim, [episode], episodes, budget, env_name)
            writer.add(episode)
            writer.seal()  # nobody plays an episode twice
            done += 1
            runtime.log(f"episode {index}: return {episode.rewards.sum():.1f} in {episode.rows - 1} steps")
    except _Closed:
        runtime.log("the window was closed; an unfinished episode is not kept")
    finally:
        env.close()
    return done
