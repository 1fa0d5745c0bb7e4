"""A dataset from episodes that others recorded, checked against the environment before they are believed."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wm.actions import ActionSpace
from wm.episodes import recordings
from wm.episodes.recordings import MOST_ROWS, Recording
from wm.episodes.schema import FramePacker, PackedEpisode, action_repeat, frame_shape
from wm.episodes.size_estimate import estimate_size, sample_suffices
from wm.episodes.writer import Writer
from wm.errors import BadData
from wm.seeding import episode_seed, split_of
from wm.stats import LARGEST_REWARD

# Gray and RGB. An alpha channel would have to be painted on some background, which nobody can know.
_CHANNELS = (1, 3)
_ROUNDING = 1e-6  # of a bound, by which an action of 32 bits may exceed it


class FrameConverter(Protocol):
    """Makes frames of pictures, as collecting does."""

    def begin(self) -> None:
        """A new episode begins with the next picture."""

    def __call__(self, picture: NDArray[Any], what: str) -> NDArray[np.uint8]:
        """The frame of a picture."""


class Import:
    """A dataset to write from the recordings in files: `sources`, which `recordings.read` takes.

    `recipe` is what a dataset's says of its environment, and `policy` who played. Construction reads the first
    episodes to estimate the size of all. Raises BadData for a recording that does not fit, or is there twice.
    """

    def __init__(self, sources: Sequence[Path], recipe: dict[str, Any], policy: str, convert: FrameConverter) -> None:
        origin = {"operation": "import", "files": recordings.digest_of(sources)}
        self.read, self.recipe, self._convert = sources, recipe | {"policy": policy, "origin": origin}, convert
        self._space = ActionSpace.from_json(recipe["action_space"])
        self._env = str(recipe["env"]["name"])
        self._seen: dict[str, str] = {}
        self.episodes, source = recordings.read(sources)
        self._episodes = (self._episode(recording, index) for index, recording in enumerate(source))
        self._first: list[PackedEpisode] = []
        for episode in self._episodes:
            self._first.append(episode)
            if sample_suffices(self._first, self.episodes):
                break
        if not self._first:
            raise BadData(f"{sources[0]} has no episode; give files with episodes.")

    @property
    def need(self) -> tuple[int, int]:
        """About how many bytes and files it takes."""
        estimate = estimate_size(self.recipe, self._first, self.episodes)
        return estimate.bytes, estimate.files

    def write(self, writer: Writer, progress: Callable[[int], None]) -> None:
        """Add every episode."""
        for episode in itertools.chain(self._first, self._episodes):
            writer.add(episode)
            progress(writer.next)

    def _episode(self, recording: Recording, index: int) -> PackedEpisode:
        """Episode `index`. Raises BadData, naming the file, where a length, a type or a value does not fit."""
        digest = hashlib.sha256()
        packed, shape = self._frames(recording, digest.update)
        steps = shape[0] - 1
        actions, rewards = self._actions(recording, steps), _rewards(recording, steps)
        # Actions and rewards are part of the digest: two episodes of equal pictures are two episodes.
        digest.update(actions.data)
        digest.update(rewards.data)
        if (other := self._seen.get(digest.hexdigest())) is not None:
            raise BadData(f"{recording.name} has the same episode as {other}; leave out one of them.")
        self._seen[digest.hexdigest()] = recording.name
        return PackedEpisode(
            index=index,
            seed=_seed(recording, digest.hexdigest()),
            packed=packed,
            shape=shape,
            actions=actions,
            rewards=rewards,
            labels=np.zeros((shape[0], 0), np.float32),
            terminated=recording.terminated,
            truncated=recording.truncated,
            env_steps=steps * action_repeat(self.recipe),
        )

    def _frames(self, recording: Recording, digest: Callable[[Any], None]) -> tuple[bytes, tuple[int, ...]]:
        """The frames, packed, and their shape, (T + 1, size, size, channels); `digest` is told each. Never are all of
        them in memory: any number of equal pictures compresses to little."""
        size = frame_shape(self.recipe)[0]
        if recording.rows > MOST_ROWS:
            raise BadData(f"{recording.name} has {recording.rows:,} frames; expected at most {MOST_ROWS:,} an episode.")
        self._convert.begin()
        packer, rows = FramePacker(), 0
        for rows, picture in enumerate(recording.frames, 1):
            if rows > MOST_ROWS:
                raise BadData(f"{recording.name} has more than {MOST_ROWS:,} frames; split the episode.")
            what = f"{recording.name} frame {rows - 1}"
            frame = np.ascontiguousarray(self._convert(_picture(picture, size, what), what))
            digest(frame.data)
            packer.add(frame)
        if rows < 2:
            raise BadData(f"{recording.name} has {rows} frames; expected two or more, one after each action.")
        return packer.finish()

    def _actions(self, recording: Recording, steps: int) -> NDArray[Any]:
        """(T + 1,) or (T + 1, dimensions); the last one is zero."""
        actions, space = _of_steps(recording, "actions", recording.actions, steps), self._space
        takes = f"{self._env} takes {space}"
        column = space.column(steps + 1)
        if actions.ndim == 2 and actions.shape[1] == 1 and column.ndim == 1:
            actions = actions[:, 0]
        kinds = "iu" if space.discrete else "iuf"
        if actions.shape[1:] != column.shape[1:] or actions.dtype.kind not in kinds:
            raise BadData(
                f"{recording.name} has actions of shape {recording.actions.shape} and type {actions.dtype} but "
                f"{takes}; import it with --env of the environment it was recorded in."
            )
        low, high = (0, space.count - 1) if space.discrete else (np.array(space.low), np.array(space.high))
        slack = 0 if space.discrete else _ROUNDING * np.maximum(1, np.maximum(np.abs(low), np.abs(high)))
        outside = ~((actions >= low - slack) & (actions <= high + slack))  # also for NaN
        if outside.any():
            step = int(np.argwhere(outside)[0, 0])
            raise BadData(f"{recording.name} has the action {actions[step]} at step {step} but {takes}; correct it.")
        column[:-1] = actions if space.discrete else np.clip(actions, low, high)
        return column


def _picture(picture: NDArray[Any], size: int, what: str) -> NDArray[np.uint8]:
    """A picture (height, width, 3 or 1) of at least `size` pixels a side. Raises BadData for another."""
    if picture.ndim == 2:
        picture = picture[..., None]
    if picture.ndim != 3 or picture.shape[2] not in _CHANNELS or picture.dtype != np.uint8:
        raise BadData(
            f"{what} has the shape {picture.shape} and type {picture.dtype}; expected (height, width, 3 or 1) uint8."
        )
    if min(picture.shape[:2]) < size:
        height, width = picture.shape[:2]
        raise BadData(f"{what} has {width}x{height} pixels; expected {size} a side or more, so give a smaller --size.")
    return picture


def _of_steps(recording: Recording, name: str, values: NDArray[Any], steps: int) -> NDArray[Any]:
    """The values of T steps. Raises BadData unless there are T of them, or T + 1 with an unused last one."""
    if values.ndim == 0 or len(values) not in (steps, steps + 1):
        length = "one value" if values.ndim == 0 else f"{len(values)} {name}"
        raise BadData(f"{recording.name} has {length} for {steps + 1} frames; expected {steps} (or one unused more).")
    return values[:steps]


def _rewards(recording: Recording, steps: int) -> NDArray[np.float32]:
    """(T + 1,) float32; the last one is zero."""
    values = _of_steps(recording, "rewards", recording.rewards, steps)
    if values.ndim != 1 or values.dtype.kind not in "iufb":
        kind = f"of shape {recording.rewards.shape} and type {values.dtype}"
        raise BadData(f"{recording.name} has rewards {kind}; expected a number for each step.")
    rewards = np.zeros(steps + 1, np.float32)
    # A reward beyond 32 bits becomes infinite without a warning, and is refused below.
    with np.errstate(over="ignore"):
        rewards[:-1] = values
    fits = np.abs(rewards) <= LARGEST_REWARD  # not where it is NaN
    if not fits.all():
        step = int(fits.argmin())
        raise BadData(
            f"{recording.name} has the reward {values[step]} at step {step}; expected finite numbers of at most "
            f"{LARGEST_REWARD:g} in size."
        )
    return rewards


def _seed(recording: Recording, digest: str) -> int:
    """The seed of a recording, or one that follows from its content: it decides whether the episode is for validation.
    Raises BadData for the seed of an episode on which agents are validated or tested."""
    if recording.seed is None or (split := split_of(recording.seed)) is None:
        # By its content, so that importing the same files twice gives the same split into training and validation.
        return episode_seed("train", 0, "import", digest)
    if split != "train":
        raise BadData(
            f"{recording.name} has the seed {recording.seed} of a {split} episode; agents must not learn from those, "
            "so leave it out."
        )
    return recording.seed
