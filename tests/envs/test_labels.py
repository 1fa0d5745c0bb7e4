"""Labels from Atari's RAM are checked against the picture."""

from functools import cache

import gymnasium as gym
import numpy as np
import pytest

from wm.envs import labels
from wm.envs.registry import EnvConfig

STEPS = 800
PLAYFIELD = {"Pong": (34, 194), "Breakout": (93, 189)}
BALL = {"Pong": (236, 236, 236), "Breakout": (200, 72, 72)}


def centre(screen: np.ndarray, colour: tuple[int, ...], rows: tuple[int, int]) -> tuple[float, float, int]:
    mask = np.all(screen == np.array(colour), axis=-1)
    mask[: rows[0]] = mask[rows[1] :] = False
    mask[:, :8] &= rows[1] - rows[0] > 100
    ys, xs = np.nonzero(mask)
    return (float(xs.mean()), float(ys.mean()), len(xs)) if len(xs) else (np.nan, np.nan, 0)


@cache
def watch(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The screen and the labels after every step."""
    env, random = EnvConfig(name).make(labelled=True), np.random.default_rng(0)
    env.reset(seed=1)
    screens, action = [], 1
    for step in range(STEPS):
        if step % 6 == 0:
            action = 1 if step % 18 == 0 else int(random.integers(env.action_space.n))  # type: ignore[attr-defined]
        *_, terminated, _, info = env.step(action)
        screens.append((env.env.unwrapped.ale.getScreenRGB(), info["labels"]))  # type: ignore[attr-defined]
        if terminated:
            env.reset()
    return screens


@pytest.mark.parametrize("name", ["Pong", pytest.param("Breakout", marks=pytest.mark.slow)])
def test_the_balls_label_is_where_the_ball_is(name: str) -> None:
    errors, unseen, unlabelled = [], 0, 0
    for screen, values in watch(name):
        x, y, pixels = centre(screen, BALL[name], PLAYFIELD[name])
        if not 0 < pixels <= 12:
            unseen += bool(np.isfinite(values[0]) and pixels == 0)
        elif np.isfinite(values[0]):
            errors.append((values[0] - x, values[1] - y))
        else:
            unlabelled += 1
    assert len(errors) > 0.4 * STEPS
    assert np.median(np.abs(errors), axis=0).max() < 0.5
    assert np.percentile(np.abs(errors), 95, axis=0).max() < 1.5
    assert unseen + unlabelled < 0.03 * len(errors)


def test_the_paddles_labels_are_where_the_paddles_are() -> None:
    player, enemy, hidden = [], [], []
    for screen, values in watch("Pong"):
        for colour, label, errors in (((92, 186, 92), values[2], player), ((213, 130, 74), values[3], enemy)):
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


def test_the_lander_is_where_its_colour_is_and_nowhere_above_the_picture() -> None:
    env = EnvConfig("LunarLander").make(labelled=True)
    env.reset(seed=3)
    wrong, above = [], []
    for step in range(200):
        frame, _, ended, _, info = env.step(2 if step > 20 else 0)  # the main engine: up and out of sight
        blue = np.clip(frame[..., 2].astype(float) - frame[..., 0] - 8, 0, None)
        x = info["labels"][0]
        if np.isnan(x):
            above.append(blue[8:].sum())
        elif blue.sum() > 500:
            wrong.append((x + 1) * 32 - (blue.sum(0) @ np.arange(64)) / blue.sum())
        if ended:
            break
    assert len(wrong) > 40
    assert np.percentile(np.abs(wrong), 90) < 1.5
    assert len(above) > 10
    assert not any(above)


def test_the_road_is_where_the_car_sees_it() -> None:
    env = gym.make("CarRacing-v3").unwrapped
    env.reset(seed=0)
    read = labels.car_racing.bind(env)
    hull = env.car.hull  # type: ignore[attr-defined]
    x, y = hull.position
    right = np.array([np.cos(hull.angle), np.sin(hull.angle)])
    straight = read(None)
    hull.position = tuple(np.array([x, y]) + 3 * right)
    assert read(None)[4] == pytest.approx(straight[4] - 3, abs=0.3)  # the road is further to the left
    hull.angle += 0.3
    assert read(None)[3] == pytest.approx(straight[3] + 0.3, abs=0.05)
    hull.angle += np.pi  # driving against it, the road looks the same
    assert read(None)[3] == pytest.approx(straight[3] + 0.3, abs=0.05)
    hull.position = (1000.0, 1000.0)
    assert np.isnan(read(None)[3:]).all()
