"""Our renderers against gymnasium's: whole episodes of the unmodified environment, with equal seeds and actions."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from wm.envs.palette_resize import PaletteResize, gives_same_pixels, palette_of
from wm.envs.registry import EnvConfig
from wm.envs.renderers import atari, car_racing
from wm.envs.renderers.source_check import source_digest
from wm.envs.resize import AreaResize
from wm.errors import MissingPackage, UsageProblem


def play(name: str, seed: int, steps: int, **how: Any) -> tuple[np.ndarray, list[tuple[Any, ...]]]:
    """Frames, and everything else a step gives."""
    env = EnvConfig(name, **how).make(labelled=True)
    env.action_space.seed(seed)
    frame, info = env.reset(seed=seed)
    frames, others = [frame], [(0.0, False, False, *info.get("labels", ()))]
    for step in range(steps):
        if step % 3 == 0:
            action = env.action_space.sample()
        frame, reward, terminated, truncated, info = env.step(action)
        frames.append(frame)
        others.append((float(reward), terminated, truncated, *info.get("labels", ())))
        if terminated or truncated:
            break
    env.close()
    return np.stack(frames).astype(int), others


def compare(name: str, seed: int, steps: int, size: int, render: str = "exact") -> np.ndarray:
    """Mean absolute difference of every frame, in 1/255; everything else must be equal."""
    (theirs, others), (ours, same) = (play(name, seed, steps, size=size, render=r) for r in ("gymnasium", render))
    assert len(theirs) > 8
    assert np.array_equal(np.array(others, float), np.array(same, float), equal_nan=True)
    return np.abs(theirs - ours).mean(axis=(1, 2, 3))


@pytest.mark.parametrize(
    ("name", "seed", "steps", "size", "worst"),
    [
        ("Pong", 3, 500, 64, 0),
        ("Breakout", 1, 1000, 64, 0),
        pytest.param("ALE/Seaquest-v5", 2, 300, 48, 0, marks=pytest.mark.slow),
        pytest.param("CarRacing", 0, 90, 96, 0.05, marks=pytest.mark.slow),
        ("CarRacing", 4, 90, 64, 0.05),
        ("LunarLander", 1, 1000, 64, 0.05),
        pytest.param("LunarLander", 2, 1000, 37, 0.05, marks=pytest.mark.slow),
        ("CartPole", 7, 500, 64, 0),
        ("Acrobot", 0, 120, 64, 0.001),
    ],
)
def test_exact_frames_rewards_and_labels_are_gymnasiums(
    name: str, seed: int, steps: int, size: int, worst: float
) -> None:
    assert compare(name, seed, steps, size).max() <= worst


@pytest.mark.parametrize(("name", "steps"), [("CarRacing", 60), ("Pong", 200)])
def test_without_a_renderer_rewards_and_ends_are_the_same(name: str, steps: int) -> None:
    blind, plain = EnvConfig(name).make_unrendered(), EnvConfig(name)._build()
    for env in (blind, plain):
        env.reset(seed=3)
        env.action_space.seed(3)
    for _ in range(steps):
        one, two = (env.step(env.action_space.sample())[1:4] for env in (blind, plain))
        assert one == two


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CarRacing", "LunarLander"])
def test_exact_frames_are_gymnasiums_over_whole_episodes(name: str) -> None:
    differences = np.concatenate([compare(name, seed, 1000, 64) for seed in range(10, 14)])
    assert differences.mean() < 0.1
    assert differences.max() < 0.1


@pytest.mark.parametrize(("name", "worst"), [("CarRacing", 2.5), ("LunarLander", 1.5)])
def test_fast_frames_are_close_to_gymnasiums(name: str, worst: float) -> None:
    differences = compare(name, 1, 80, 64, "fast")
    assert 0.05 < differences.mean() < worst


@cache
def drive(size: int, steps: int) -> tuple[Any, Any]:
    """The frames (steps, size, size, 3) of the same episode with both renderers."""
    exact, fast = (EnvConfig("CarRacing", size=size, render=render).make() for render in ("exact", "fast"))
    for env in (exact, fast):
        env.reset(seed=2)
    actions = [np.array([np.sin(step / 5), 0.5, 0.0], np.float32) for step in range(steps)]
    one, two = (np.array([env.step(action)[0] for action in actions], int) for env in (exact, fast))
    return one, two


@pytest.mark.parametrize("size", [32, 64, *(pytest.param(size, marks=pytest.mark.slow) for size in (96, 128))])
def test_fast_frames_have_the_exact_dashboard_and_car(size: int) -> None:
    exact, fast = (frames[:60] for frames in drive(size, 110 if size == 64 else 40))
    dashboard = np.s_[:, size * 7 // 8 :]
    assert np.abs(exact[dashboard] - fast[dashboard]).max() <= 1
    assert exact[dashboard].max() > 100
    car = np.s_[:, size * 66 // 96 : size * 78 // 96, size * 36 // 96 : size * 60 // 96]
    assert np.abs(exact[car] - fast[car]).mean() < 0.1  # 1.7 to 3.7 with a coarse and brighter car
    assert exact[car].std() > 20


@pytest.mark.parametrize("render", ["exact", "fast"])
def test_a_bar_of_the_dashboard_covers_another(render: str) -> None:
    theirs, ours = (EnvConfig("CarRacing", render=how).make() for how in ("gymnasium", render))
    for env in (theirs, ours):
        env.reset(seed=2)
    for _ in range(12):  # spins to the left, steers to the right: the red bar reaches the green one
        frames = []
        for env in (theirs, ours):
            env.env.unwrapped.car.hull.angularVelocity = 12.0  # type: ignore[attr-defined]
            frames.append(env.step(np.array([1.0, 0.0, 0.0], np.float32))[0][56:].astype(int))
        assert np.abs(frames[0] - frames[1]).max() <= 1


def test_fast_frames_are_as_bright() -> None:
    exact, fast = (frames[:60] for frames in drive(64, 110))
    assert np.abs((exact - fast).mean(axis=(0, 1, 2))).max() < 0.5


def test_fast_frames_show_visited_tiles_in_their_new_color() -> None:
    exact, fast = drive(64, 110)
    behind = np.s_[60:90, 53:56, 30:34]  # the road, a car's length behind it
    assert abs((exact[behind] - fast[behind]).mean()) < 1  # 2.4 in the old colors


def test_fast_frames_show_the_edge_of_the_playfield() -> None:
    exact, fast = drive(64, 110)  # the first from high above
    assert exact[0, :8, 48:].max() == fast[0, :8, 48:].max() == 0
    assert np.abs(exact[0] - fast[0]).mean() < 2


@pytest.mark.parametrize(("name", "episodes", "steps"), [("Breakout", 6, 25), ("ALE/Qbert-v5", 2, 50)])
def test_an_atari_episode_does_not_depend_on_the_one_before(name: str, episodes: int, steps: int) -> None:
    used, fresh = EnvConfig(name).make(), EnvConfig(name, render="gymnasium").make()
    used.reset(seed=9)
    for seed in range(episodes):
        for _ in range(10):
            used.step(1)  # repeated and sticky, it would fire in the next episode
        one, two = (env.reset(seed=seed)[0] for env in (used, fresh))
        frames, same = [one], [two]
        for _ in range(steps):
            frames.append(used.step(3)[0])
            same.append(fresh.step(3)[0])
        assert np.array_equal(frames, same), seed


def test_an_emulator_with_another_state_loads_the_rom_for_every_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "_seeded", lambda state, seed: b"?")
    env = EnvConfig("Pong").make()
    env.reset(seed=0)
    loads = []
    monkeypatch.setattr(type(env.env.unwrapped), "load_game", lambda self: loads.append(1))  # type: ignore[attr-defined]
    env.reset(seed=1)
    assert loads


def test_a_gymnasium_with_another_renderer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(car_racing, "_KNOWN", ("0123456789abcdef",))
    with pytest.raises(MissingPackage, match="--render gymnasium"):
        EnvConfig("CarRacing").make()
    EnvConfig("CarRacing", render="gymnasium").make().close()


def test_a_changed_line_changes_the_digest() -> None:
    assert source_digest([play]) != source_digest([compare])


def test_fast_is_refused_where_no_fast_renderer_exists() -> None:
    with pytest.raises(UsageProblem, match="LunarLander, CarRacing have one"):
        EnvConfig("Pong", render="fast").make()


@pytest.mark.parametrize(("shape", "size"), [((60, 90, 3), 32), ((100, 40, 4), 37)])
def test_a_patched_frame_equals_the_resized_image(shape: tuple[int, int, int], size: int) -> None:
    random = np.random.default_rng(0)
    resize = AreaResize(*shape, size)
    before = random.integers(0, 256, shape, np.uint8)
    after = before.copy()
    after[20:41, 7:22] = 0
    patched, banded = resize(before), resize(before)
    resize.patch(patched, after, (7, 20, 15, 21))
    assert np.abs(patched.astype(int) - resize(after)).max() <= 1
    bands = resize.bands((before != after).reshape(shape[0], -1))
    resize.redo(banded, bands, after[resize.sources[bands]])
    assert np.array_equal(banded, resize(after))


@pytest.mark.parametrize(("shape", "size"), [((210, 160), 64), ((250, 160), 64), ((210, 160), 32), ((35, 20), 32)])
def test_pixels_taken_again_are_those_of_the_resized_image(shape: tuple[int, int], size: int) -> None:
    random = np.random.default_rng(0)
    palette = random.integers(0, 256, (256, 4), np.uint8)
    by_pixel, resize = PaletteResize(*shape, size), AreaResize(*shape, 4, size, out_channels=3)
    before = random.integers(0, 256, shape, np.uint8)
    small = resize(palette[before])
    for changes in (1, 40, 300, before.size):
        after = before.copy()
        after.ravel()[random.integers(0, before.size, changes)] = random.integers(0, 256, changes)
        old, new = (image.ravel().view(np.uint32) for image in (before, after))
        by_pixel.redo(small, after.ravel(), by_pixel.changed(new, old), palette_of(palette))
        assert np.array_equal(small, resize(palette[after])), changes
        before = after


def test_sizes_at_which_an_average_may_round_otherwise_are_refused() -> None:
    assert not gives_same_pixels(210, 160, 84)  # averages halfway between two levels
    assert not gives_same_pixels(251, 156, 64)  # and nearer to halfway than float32 can tell
    with pytest.raises(ValueError, match="210x160 at 84x84"):
        PaletteResize(210, 160, 84)


def test_atari_frames_follow_the_screen_whether_little_or_all_of_it_changes() -> None:
    random, env = np.random.default_rng(0), EnvConfig("Pong").make()
    env.reset(seed=0)
    renderer: Any = env.renderer
    colors = np.unique(env.env.unwrapped._screen)  # type: ignore[attr-defined]
    palette = renderer._palette.view(np.uint8).reshape(256, 4)
    screen = np.full((210, 160), colors[0], np.uint8)
    for changes in (0, 30, 3000, 30, 33600, 1):
        screen.ravel()[random.integers(0, screen.size, changes)] = random.choice(colors, changes)
        expected = AreaResize(210, 160, 4, 64, out_channels=3)(palette[screen])
        assert np.array_equal(renderer.frame(screen), expected), changes
