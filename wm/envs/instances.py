"""Whether several instances of an environment can be played in turn in one process, tried out in a few steps.

A simulator may have one world per process: a physics client, a library's global variables. Stepping one instance then
moves the others, and scores of episodes in lockstep are wrong.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wm.envs import process_state
from wm.envs.pixel_env import PixelEnv
from wm.envs.registration import one_line
from wm.errors import WmError

STEPS = 16  # of each of six short episodes: simulators of 20 ms a step take two seconds
MORE_STEPS = 256  # where reset() seeds generators of the process, from which an instance may draw at any later step


@dataclass(frozen=True)
class Instances:
    """`entangled` says how one instance disturbs another, empty if it does not. `repeats` says whether an episode with
    the same seed and actions is the same again."""

    entangled: str = ""
    repeats: bool = True


def _nothing() -> None:
    pass


def compare_instances(first: PixelEnv, make: Callable[[], PixelEnv], alive: Callable[[], None] = _nothing) -> Instances:
    """Play the first steps of episodes with `first` and with another instance from `make`, alone and in turn, and call
    `alive` at each. An environment that raises alone is not judged: playing it says what is wrong."""
    # Any seed would do; it only has to be the same in all processes.
    first.action_space.seed(0)
    actions = [first.action_space.sample() for _ in range(MORE_STEPS)]
    steps = STEPS

    def play(*envs: PixelEnv, seed: int = 0) -> list[_Returned]:
        return _play_in_turn(envs, actions[:steps], seed, alive)

    try:
        if _seeds_the_process(first):
            steps = MORE_STEPS
        alone = play(first)
        if play(first) != alone:
            return Instances(repeats=False)
    except (Exception, SystemExit):  # environments outside this project may raise anything
        # An environment that raises is reported when it is played, with the step; here its instances stay unjudged.
        return Instances()
    try:
        second = make()
    except (Exception, SystemExit) as error:
        reason = str(error).rstrip(".") if isinstance(error, WmError) else one_line(error)
        return Instances(f"a second one fails: {reason}")
    try:
        if play(first, second) != alone + play(second, seed=1):
            return Instances("stepping one changes what another returns")
        return Instances(repeats=play(second) == alone)
    except (Exception, SystemExit) as error:
        return Instances(f"played in turn, one raised {one_line(error)}")
    finally:
        second.close()


def _seeds_the_process(env: PixelEnv) -> bool:
    """Whether episodes with other seeds leave the generators of Python and NumPy, which all instances share, in other
    states."""
    states = []
    # Two seeds, because an environment may set the same state after each reset.
    for seed in (0, 1):
        env.reset(seed=seed)
        states.append(process_state.generators())
    return states[0] != states[1]


_Returned = list[tuple[bytes, float, bool, bool]]


def _play_in_turn(
    envs: Sequence[PixelEnv], actions: Sequence[Any], seed: int, alive: Callable[[], None]
) -> list[_Returned]:
    """What each environment returns for these actions, in episodes with rising seeds."""
    returned: list[_Returned] = []
    for number, env in enumerate(envs):
        frame, _ = env.reset(seed=seed + number)
        returned.append([(frame.tobytes(), 0.0, False, False)])
    for action in actions:
        for env, so_far in zip(envs, returned, strict=True):
            _, _, terminated, truncated = so_far[-1]
            if not (terminated or truncated):
                frame, reward, terminated, truncated, _ = env.step(action)
                alive()
                so_far.append((frame.tobytes(), reward, bool(terminated), bool(truncated)))
    return returned
