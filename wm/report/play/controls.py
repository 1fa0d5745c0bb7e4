"""How a person acts: keys and buttons for the actions of an environment, and the pace."""

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

from wm.actions import MOST_OPPOSED, ActionSpace
from wm.envs.registry import EnvConfig


@dataclass(frozen=True)
class Button:
    """A button, its keys as JavaScript names them, and what it does while it is held: a discrete `action`, or in a box
    the values of some dimensions, {dimension: value}."""

    label: str
    symbol: str
    keys: tuple[str, ...]
    action: int = 0
    values: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Controls:
    """Buttons, and the action without any: of several, one after the other, where there is no action that does
    nothing."""

    buttons: tuple[Button, ...]
    idle: tuple[Any, ...]

    def action(self, keys: Sequence[str], step: int) -> Any:
        """What these keys, in the order in which they were pressed, do in this step of an episode."""
        pressed = [button for key in keys for button in self.buttons if key in button.keys]
        idle = self.idle[step % len(self.idle)]
        if not isinstance(idle, tuple):
            return pressed[-1].action if pressed else idle
        action = list(idle)
        for button in pressed:
            for dimension, value in button.values.items():
                action[dimension] = value
        return action

    def as_json(self) -> dict[str, Any]:
        """Plain values for page.js."""
        return {"buttons": [asdict(button) for button in self.buttons], "idle": list(self.idle)}


_ARROWS = {"left": ("←", "a"), "right": ("→", "d"), "up": ("↑", "w"), "down": ("↓", "s")}


def _arrow(direction: str, label: str = "", **effect: Any) -> Button:
    symbol, letter = _ARROWS[direction]
    return Button(label or direction, symbol, (f"Arrow{direction.capitalize()}", letter), **effect)


def _fire(action: int) -> Button:
    return Button("fire", "●", (" ",), action)


# Atari's reduced action sets: 0 NOOP, 1 FIRE, 2 RIGHT (Pong's up), 3 LEFT (Pong's down).
_DISCRETE = {
    "Pong": Controls((_arrow("up", action=2), _arrow("down", action=3)), (0,)),
    "Breakout": Controls((_arrow("left", action=3), _fire(1), _arrow("right", action=2)), (0,)),
    # The left engine turns the lander so that it flies to the left, as action 1 and as a value below 0.
    "LunarLander": Controls(
        (_arrow("left", action=1), _arrow("up", "main engine", action=2), _arrow("right", action=3)), (0,)
    ),
    "CarRacing": Controls(
        (
            _arrow("left", action=2),
            _arrow("up", "gas", action=3),
            _arrow("down", "brake", action=4),
            _arrow("right", action=1),
        ),
        (0,),
    ),
    # Without a key the two pushes take turns: nothing else keeps the cart where it is.
    "CartPole": Controls((_arrow("left", action=0), _arrow("right", action=1)), (0, 1)),
    "Acrobot": Controls((_arrow("left", action=0), _arrow("right", action=2)), (1,)),
    "Catch": Controls((_arrow("left", action=0), _arrow("right", action=2)), (1,)),
}
_BOX = {
    "LunarLander": Controls(
        (
            _arrow("left", values={1: -1.0}),
            _arrow("up", "main engine", values={0: 1.0}),
            _arrow("right", values={1: 1.0}),
        ),
        ((-1.0, 0.0),),
    ),
    "CarRacing": Controls(
        (
            _arrow("left", values={0: -1.0}),
            _arrow("up", "gas", values={1: 1.0}),
            _arrow("down", "brake", values={2: MOST_OPPOSED}),
            _arrow("right", values={0: 1.0}),
        ),
        ((0.0, 0.0, 0.0),),
    ),
}
_PAIRS = ("left", "right"), ("down", "up")  # keys for the first two dimensions of an unknown box
# Steps a second: of an unknown environment, of Atari (60 pictures, frame skip 4), and what a hand can follow.
_USUAL, _ATARI, _FASTEST = 15, 15, 30
_DIGITS = 9  # keys 1 to 9, for the first discrete actions of an unknown environment


def controls_for(env: str, space: ActionSpace) -> Controls:
    """The environment's own, where its actions are those that are known; else a key for every action."""
    known = (_DISCRETE if space.discrete else _BOX).get(env)
    return known if known is not None and _fits(known, space) else _generic(space)


def action_names(env: str, space: ActionSpace) -> list[str]:
    """What an environment's actions are called, those of a known one by its buttons: each discrete action, or each
    dimension of a box."""
    controls = controls_for(env, space)
    if space.discrete:
        names = {button.action: button.label for button in controls.buttons}
        return [
            names.get(action, "nothing" if action in controls.idle else str(action)) for action in range(space.count)
        ]
    own = [[button.label for button in controls.buttons if number in button.values] for number in range(space.width)]
    return ["/".join(labels) or f"action {number}" for number, labels in enumerate(own)]


def _fits(controls: Controls, space: ActionSpace) -> bool:
    if space.discrete:
        return max(button.action for button in controls.buttons) < space.count
    return all(len(action) == space.width for action in controls.idle)


def _generic(space: ActionSpace) -> Controls:
    """A button for every discrete action, of which the first stands for none; arrows for two dimensions of a box, whose
    middle is held without a key."""
    if space.discrete:
        names = [str(action + 1) for action in range(space.count)]
        keys = [(name,) if action < _DIGITS else () for action, name in enumerate(names)]
        buttons = (Button(f"action {action}", names[action], keys[action], action) for action in range(space.count))
        return Controls(tuple(buttons), (0,))
    arrows = []
    for dimension, (less, more) in enumerate(_PAIRS[: space.width]):
        arrows += [
            _arrow(less, values={dimension: space.low[dimension]}),
            _arrow(more, values={dimension: space.high[dimension]}),
        ]
    middle = tuple((low + high) / 2 for low, high in zip(space.low, space.high, strict=True))
    return Controls(tuple(arrows), (middle,))


def measure_pace(env: EnvConfig) -> tuple[int, int]:
    """Steps a second at which a person plays, and the steps after which an episode of this environment is truncated."""
    with closing(env.make_unrendered()) as built:
        limit, pictures = env.longest(built.own_limit), _rate((built.metadata or {}).get("render_fps"))
    if env.spec().is_atari:
        pictures = _ATARI
    # At least one step a second, and no more than a hand follows.
    return max(min(round(pictures / env.action_repeat), _FASTEST), 1), limit


def _rate(named: Any) -> float:
    """The pictures a second that an environment names; the usual number if they are no positive number."""
    try:
        rate = float(named)
    except (TypeError, ValueError, OverflowError):
        return _USUAL
    return rate if 0 < rate < math.inf else _USUAL
