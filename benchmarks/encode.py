"""Encoding a dataset to latents with our network, from disk, one core, against the paper's encoder in a plain loop with
frames in RAM, batch 64; frames per second. And the seconds 50 Pong episodes take, against 10."""

import itertools
import time

import numpy as np
import torch

from benchmarks.datasets import dataset
from benchmarks.measure import one_core, rates, report
from benchmarks.reference import LATENT, PlainVae
from wm.models.vae.networks import build
from wm.pretrained import encode_frames


def main() -> None:
    one_core()
    torch.set_num_threads(1)
    episodes = dataset("Pong", 50, "sticky")
    model, plain = build("small", 64, 3, LATENT), PlainVae()
    endless = itertools.chain.from_iterable(encode_frames(episodes, model) for _ in itertools.count())
    frames = np.concatenate([episodes.shard(part, "frames").all() for part in episodes.parts])
    # 4,096 frames, which stay in RAM.
    images = torch.from_numpy(np.ascontiguousarray(frames[:4096].transpose(0, 3, 1, 2)))
    starts = itertools.cycle(range(0, 4096, 64))

    @torch.no_grad()
    def reference() -> int:
        start = next(starts)
        plain.encode(images[start : start + 64].float() / 255)
        return 64

    ours, baseline, ratio = rates(lambda: len(next(endless)[1]), reference)
    report("encode", ours, baseline, 3.0, "frames/s", ratio)
    start = time.perf_counter()
    for _ in encode_frames(episodes, model):
        pass
    report("encode_pong", round(time.perf_counter() - start, 2), 10, 1.0, "s", lower_is_better=True)


if __name__ == "__main__":
    main()
