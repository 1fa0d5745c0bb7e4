import io

import numpy as np
from PIL import Image

from wm.report.film_strip import animation, error_map, film_strip


def frames(count: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, channels), np.uint8)


def test_a_film_strip_shows_every_frame_enlarged() -> None:
    shown = frames(3)
    sheet = Image.open(io.BytesIO(film_strip([("real", shown), ("dream", frames(3, 1))], ["a", "b", "c"], "title")))
    pixels = np.asarray(sheet.convert("RGB"))
    colour = tuple(int(value) for value in shown[1, 0, 0])
    assert (pixels == colour).all(axis=-1).any()
    assert sheet.width > 3 * 112


def test_an_animation_has_a_picture_per_step_at_its_speed() -> None:
    movie = Image.open(io.BytesIO(animation([("a", frames(5)), ("b", frames(5))], list("abcde"), fps=10)))
    assert movie.n_frames == 5  # type: ignore[attr-defined]
    assert movie.info["duration"] == 100


def test_equal_frames_have_a_black_error_map() -> None:
    assert error_map(frames(2), frames(2)).max() == 0
    assert error_map(frames(2), 255 - frames(2)).max() == 255
