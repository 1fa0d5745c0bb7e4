import io

import numpy as np
from PIL import Image

from wm.report.film_strip import animation, error_map, film_strip


def frames(count: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, channels), np.uint8)


def test_a_film_strip_shows_every_frame_enlarged() -> None:
    real = frames(3)
    sheet = Image.open(io.BytesIO(film_strip([("real", real), ("dream", frames(3, 1))], ["a", "b", "c"], "title")))
    pixels = np.asarray(sheet.convert("RGB"))
    colour = tuple(int(value) for value in real[1, 0, 0])
    assert (pixels == colour).all(axis=-1).any()
    assert sheet.width > 3 * 112


def test_an_animation_has_a_picture_per_step_at_its_speed() -> None:
    movie = Image.open(io.BytesIO(animation([("a", frames(5)), ("b", frames(5))], list("abcde"), fps=10)))
    assert movie.n_frames == 5  # type: ignore[attr-defined]
    assert movie.info["duration"] == 100


def test_an_animation_keeps_the_colour_of_a_small_thing() -> None:
    still = np.full((3, 64, 64, 3), (90, 120, 80), np.uint8)
    still += np.random.default_rng(0).integers(0, 60, still.shape, np.uint8)  # grass
    still[:, 30:32, 30:32] = (187, 30, 15)  # a car so small that median cut, of 256 colours too, makes it grass
    movie = Image.open(io.BytesIO(animation([("real", still)], list("abc"), fps=10)))
    pixels = np.asarray(movie.convert("RGB")).astype(int)
    assert (np.abs(pixels - (187, 30, 15)).max(axis=-1) <= 16).sum() == 16


def test_equal_frames_have_a_black_error_map() -> None:
    assert error_map(frames(2), frames(2)).max() == 0
    assert error_map(frames(2), 255 - frames(2)).max() == 255
