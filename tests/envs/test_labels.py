"""Labels from Atari's RAM are checked against the picture."""

import numpy as np
import pytest

from wm.envs.catalogue import EnvRecipe
from wm.envs.pixels import PixelEnv

PLAYFIELD = {"Pong": (34, 194), "Breakout": (93, 189)}
BALL = {"Pong": (236, 236, 236), "Breakout": (200, 72, 72)}


def centre(screen: np.ndarray, colour: tuple[int, ...], rows: tuple[int, int]) -> tuple[float, float, int]:
    mask = np.all(screen == np.array(colour), axis=-1)
    mask[: rows[0]] = mask[rows[1] :] = False
    mask[:, :8] &= rows[1] - rows[0] > 100
    ys, xs = np.nonzero(mask)
    return (float(xs.mean()), float(ys.mean()), len(xs)) if len(xs) else (np.nan, np.nan, 0)


def watch(env: PixelEnv, steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    env.reset(seed=1)
    seen, action = [], 1
    for step in range(steps):
        if step % 6 == 0:
            action = 1 if step % 18 == 0 else int(random.integers(env.action_space.n))  # type: ignore[attr-defined]
        *_, terminated, _, info = env.step(action)
        seen.append((env.env.unwrapped.ale.getScreenRGB(), info["labels"]))  # type: ignore[attr-defined]
        if terminated:
            env.reset()
    return seen


@pytest.mark.parametrize("name", ["Pong", "Breakout"])
def test_the_balls_label_is_where_the_ball_is(name: str) -> None:
    errors, unseen, unlabelled = [], 0, 0
    for screen, labels in watch(EnvRecipe(name).make(labelled=True), 1200):
        x, y, pixels = centre(screen, BALL[name], PLAYFIELD[name])
        if not 0 < pixels <= 12:
            unseen += bool(np.isfinite(labels[0]) and pixels == 0)
        elif np.isfinite(labels[0]):
            errors.append((labels[0] - x, labels[1] - y))
        else:
            unlabelled += 1
    assert len(errors) > 500
    assert np.median(np.abs(errors), axis=0).max() < 0.5
    assert np.percentile(np.abs(errors), 95, axis=0).max() < 1.5
    assert unseen + unlabelled < 0.03 * len(errors)


def test_the_paddles_labels_are_where_the_paddles_are() -> None:
    player, enemy, hidden = [], [], []
    for screen, labels in watch(EnvRecipe("Pong").make(labelled=True), 600):
        for colour, label, errors in (((92, 186, 92), labels[2], player), ((213, 130, 74), labels[3], enemy)):
            _, y, pixels = centre(screen, colour, PLAYFIELD["Pong"])
            if pixels >= 50:
                errors.append(label - y)
            if np.isnan(label):
                hidden.append(pixels)
    assert len(player) > 150
    assert len(enemy) > 100
    assert np.abs(np.median(player)) <= 1
    assert np.abs(np.median(enemy)) <= 1
    assert len(hidden) > 10
    assert not any(hidden)
