"""Windows of latents for M: batch = f(seed, step)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wm.episodes.latents import Latents
from wm.seeding import generator

MOST_OFTEN = 4  # times as often as it happens is an event seen at most: of a few, M would learn the episodes by heart


@dataclass(frozen=True)
class WindowBatch:
    """B windows of L steps. Step t leads from row t to row t + 1; `mask` is 0 outside of the episode.

    means, logvars (B, L + 1, z); actions (B, L, A) encoded; rewards, ends, mask (B, L) float32.
    `ends` is 1 at the last step of an episode that terminated (not: was truncated).
    """

    means: NDArray[np.float32]
    logvars: NDArray[np.float32]
    actions: NDArray[np.float32]
    rewards: NDArray[np.float32]
    ends: NDArray[np.float32]
    mask: NDArray[np.float32]


class Windows:
    """Windows of `length` steps from the episodes of a mask.

    Episodes are sampled in proportion to their steps. First steps are sampled from half a window before the episode on,
    where negative ones count as 0. With a `context` the step after it is sampled, any of the episode alike, and steps
    before the episode are masked. Past the end of the episode a window is masked. If it were moved back to end with
    the episode instead, M would learn to predict the end by counting to `length`: with windows of 64 steps and
    episodes of 87 it predicted 611 ends where 221 happened.

    With a `context`, each kind of event - a reward of a sign, an end - is behind it in a share `events` of the windows,
    if it happens more rarely.
    """

    def __init__(
        self,
        latents: Latents,
        mask: NDArray[np.bool_],
        length: int,
        batch: int,
        seed: int,
        context: int | None = None,
        events: float = 0.0,
    ) -> None:
        self.latents, self.length, self.batch, self.seed, self._context = latents, length, batch, seed, context
        self._episodes = np.flatnonzero(mask)
        self._steps = (latents.ends - latents.starts - 1)[self._episodes]
        self._rare = self._rare_events(mask, events) if context is not None and events else []
        self._drawn: tuple[int, NDArray[np.int64]] | None = None  # the last batch, of which pieces are cut in turn

    def at(self, step: int, rows: tuple[int, int] | None = None) -> WindowBatch:
        """The batch of a step, or those `rows` of it."""
        return self.cut(self._addresses(step)[slice(*rows) if rows else slice(None)])

    def existing(self, step: int) -> NDArray[np.float32]:
        """In how many windows of a step's batch each of their steps is within the episode, (L,)."""
        mask: NDArray[np.float32] = self._rows(self._addresses(step))[1].sum(axis=0)
        return mask

    def describe(self, step: int) -> str:
        """The batch of a step, described for messages."""
        episodes = sorted({int(episode) for episode in self._addresses(step)[:, 0]})
        # Eight of up to hundreds of episodes: enough to look at the batch that made a loss infinite.
        return f"batch {step}, windows of episodes {', '.join(map(str, episodes[:8]))}" + ", ..." * (len(episodes) > 8)

    def _addresses(self, step: int) -> NDArray[np.int64]:
        if self._drawn is None or self._drawn[0] != step:
            self._drawn = step, self._draw(step)
        return self._drawn[1]

    def _draw(self, step: int) -> NDArray[np.int64]:
        random = generator(self.seed, "windows", step)
        numbers = random.choice(len(self._episodes), self.batch, p=self._steps / self._steps.sum())
        if self._context is None:
            # From half a window before the episode on, then cut at its start: its first steps are drawn as often as
            # others.
            starts = np.maximum(random.uniform(-self.length / 2, self._steps[numbers]), 0).astype(np.int64)
        else:
            starts = random.integers(0, self._steps[numbers]) - self._context
        addresses = np.stack([self._episodes[numbers], starts], axis=1)
        first = 0
        for places, count in self._rare:
            assert self._context is not None
            around = places[random.integers(len(places), size=count)]
            before = self._context + random.integers(self.length - self._context, size=count)
            # Not from longer before the episode than its first steps of context: nothing is predicted there.
            starts = np.maximum(around[:, 1] - before, -self._context)
            addresses[first : first + count] = np.stack([around[:, 0], starts], axis=1)
            first += count
        return addresses

    def _rare_events(self, mask: NDArray[np.bool_], share: float) -> list[tuple[NDArray[np.int64], int]]:
        """Of each kind of event that happens in a smaller share of the windows: the (N, 2) addresses, episode and step,
        and how many windows of a batch are drawn around them."""
        data, kinds = self.latents, []
        ended = np.zeros(data.rows, bool)
        ended[data.ends[data.terminated] - 2] = True
        for happened in (data.rewards > 0, data.rewards < 0, ended):
            rows = np.flatnonzero(happened)
            episodes = np.searchsorted(data.ends, rows, side="right")
            used = mask[episodes] & (rows < data.ends[episodes] - 1)  # the last row has no action
            rows, episodes = rows[used], episodes[used]
            # In what share of the windows an event of this kind would be seen if none were drawn around it.
            usual = len(rows) * (self.length - (self._context or 0)) / self._steps.sum()
            if len(rows) and usual < share:
                count = round(min(share, MOST_OFTEN * usual) * self.batch)
                kinds.append((np.stack([episodes, rows - data.starts[episodes]], 1), count))
        return kinds

    def cut(self, addresses: NDArray[np.int64]) -> WindowBatch:
        """The windows at (N, 2) addresses: episode and first step, negative before the episode."""
        data = self.latents
        rows, mask = self._rows(addresses)
        steps, last = rows[:, :-1], data.ends[addresses[:, 0], None] - 1
        final = (steps == last - 1) & data.terminated[addresses[:, 0]][:, None]
        return WindowBatch(
            means=data.means[rows],
            logvars=data.logvars[rows],
            actions=data.space.encode(data.actions[steps]),
            rewards=data.rewards[steps] * mask,
            ends=final.astype(np.float32) * mask,
            mask=mask,
        )

    def _rows(self, addresses: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The rows (N, L + 1) of the windows at these addresses, and their mask (N, L)."""
        first = self.latents.starts[addresses[:, 0], None]
        last = self.latents.ends[addresses[:, 0], None] - 1  # the row of the final frame
        rows = first + addresses[:, 1:] + np.arange(self.length + 1)
        mask = ((rows[:, :-1] >= first) & (rows[:, :-1] < last)).astype(np.float32)
        # Rows outside the episode repeat its edge; the mask takes them out of the loss.
        return np.clip(rows, first, last), mask
