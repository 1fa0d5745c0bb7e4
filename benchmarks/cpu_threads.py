"""Training V and M on all cores of a CPU, steps per second: a share of the rows for each thread, against the same step
by torch's own threads, alone and beside a process that keeps one core busy. Frames and latents are random."""

import os
import subprocess
import sys
from contextlib import ExitStack
from functools import partial

import torch

from benchmarks.cuda_graph import mdnrnn_steps, vae_steps
from benchmarks.measure import rates, report
from benchmarks.train_mdnrnn import ROLLOUTS
from wm.settings import MdnRnnSettings, VaeSettings

# Times torch's own threads, with two idle cores and with one that is taken.
ALONE, BUSY = 1.2, 1.0  # goals


def main() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1:
        print("one core here; the rows of several stay as they are", file=sys.stderr)
        return
    torch.set_num_threads(cores)
    cpu, rollout = torch.device("cpu"), MdnRnnSettings(network="rollout", hidden=0, batch=ROLLOUTS)
    for name, build in (
        ("cpu_threads_vae", partial(vae_steps, VaeSettings(network="attentive"))),
        ("cpu_threads_rollout", partial(mdnrnn_steps, rollout)),
        ("cpu_threads_mdnrnn", partial(mdnrnn_steps, MdnRnnSettings())),
    ):
        with ExitStack() as stack:
            ours, plain = build(stack, cpu), build(None, cpu)
            ours_alone, plain_alone, ratio = rates(ours, plain, seconds=3.0, windows=5)
            report(name, ours_alone, plain_alone, ALONE, "steps/s", ratio)
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
            ours_busy, plain_busy, ratio = rates(ours, plain, seconds=5.0, windows=3)
            report(f"{name}_busy", ours_busy, plain_busy, BUSY, "steps/s", ratio)


if __name__ == "__main__":
    main()
