"""Area resize of Atari's 210x160 frames to 64x64 on one core, against Pillow's BOX filter; frames per second."""

import numpy as np
from PIL import Image

from benchmarks.measure import rate, report
from wm.envs.resize import AreaResize


def main() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (210, 160, 3), np.uint8)
    resize = AreaResize(210, 160, 3, 64)
    ours = rate(lambda: resize(frame))
    reference = rate(lambda: np.asarray(Image.fromarray(frame).resize((64, 64), Image.Resampling.BOX)))
    report("resize_pong", ours, reference, 2.0, "frames/s")


if __name__ == "__main__":
    main()
