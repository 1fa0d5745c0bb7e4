"""Film strips and animations, drawn with Pillow."""

import io
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Frames = NDArray[np.uint8]
# The colours of the pages (wm/report/plots.py), in which a PNG stands out least.
_PAPER, _INK = (250, 250, 248), (40, 40, 40)
_TEXT = 14


def _rgb(frame: Frames) -> Frames:
    return np.repeat(frame, 3, axis=-1) if frame.shape[-1] == 1 else frame


def _enlarged(frame: Frames, side: int) -> Image.Image:
    return Image.fromarray(_rgb(frame)).resize((side, side), Image.Resampling.NEAREST)


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=_TEXT)


def film_strip(rows: Sequence[tuple[str, Frames]], captions: Sequence[str], title: str, side: int = 112) -> bytes:
    """A PNG: one labelled row of (N, S, S, C) frames under another, a caption over every column."""
    columns = max(len(frames) for _, frames in rows)
    margin, gap, head = 118, 6, 54
    width = margin + columns * (side + gap) + gap
    height = head + len(rows) * (side + gap) + gap
    sheet = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((gap, gap), title, _INK, _font())
    for column, caption in enumerate(captions):
        draw.text((margin + column * (side + gap), head - _TEXT - 6), caption, _INK, _font())
    for row, (label, frames) in enumerate(rows):
        top = head + row * (side + gap)
        draw.multiline_text((gap, top + side // 2 - _TEXT), label, _INK, _font())
        for column, frame in enumerate(frames):
            sheet.paste(_enlarged(frame, side), (margin + column * (side + gap), top))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


Panels = Sequence[tuple[str, Frames]]


def sheets(panels: Panels, captions: Sequence[str], side: int = 144) -> Iterator[Image.Image]:
    """Labelled panels of (N, S, S, C) frames side by side with a caption below, one sheet per time step. A shorter
    panel repeats its last frame."""
    gap, head = 8, _TEXT + 12
    width = len(panels) * (side + gap) + gap
    for step, caption in enumerate(captions):
        sheet = Image.new("RGB", (width, side + 2 * head), _PAPER)
        draw = ImageDraw.Draw(sheet)
        for number, (label, frames) in enumerate(panels):
            left = gap + number * (side + gap)
            draw.text((left, 4), label, _INK, _font())
            sheet.paste(_enlarged(frames[min(step, len(frames) - 1)], side), (left, head))
        draw.text((gap, head + side + 4), caption, _INK, _font())
        yield sheet


def animation(panels: Panels, captions: Sequence[str], fps: int) -> bytes:
    """The sheets as a GIF."""
    # Median cut loses small things: on CarRacing's red car 64 colours are off by 55 of 255, an octree's 256 by 0.2, in
    # half the bytes and a third of the time.
    octree = Image.Quantize.FASTOCTREE
    # 256 colours are all that a GIF has.
    first, *others = [sheet.quantize(256, octree, dither=Image.Dither.NONE) for sheet in sheets(panels, captions)]
    buffer = io.BytesIO()
    # Hundredths of a second are a GIF's unit; viewers slow down what is faster than 50 a second.
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=round(1000 / fps), loop=0, optimize=True)
    return buffer.getvalue()


def error_map(real: Frames, reconstructed: Frames) -> Frames:
    """Absolute difference of frames, brightened four times, as gray frames."""
    # int16, because a difference of bytes wraps around.
    difference = np.abs(real.astype(np.int16) - reconstructed.astype(np.int16)).max(axis=-1, keepdims=True)
    # Four times: errors of V are a few levels, and the eye sees none of them.
    return np.minimum(difference * 4, 255).astype(np.uint8)
