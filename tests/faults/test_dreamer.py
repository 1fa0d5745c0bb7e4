"""A Dreamer killed twenty times, and the memory of every training over thousands of steps."""

import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import SLUG, TINY, command, environment, run
from tests.stages.test_train_dreamer import CAPACITY, PART, REPLAY, words
from wm.artifacts import durable
from wm.episodes.dataset import Dataset
from wm.telemetry import metrics_log as metrics
from wm.telemetry.trend import judge

KILLS = 20


@pytest.mark.slow
def test_twenty_kills_lose_nothing_but_the_open_part(tmp_path: Path) -> None:
    asked, moments, deaths, reached = words(steps=6000), random.Random(0), 0, 0
    partial = tmp_path / "runs" / SLUG / "dreamer.partial"
    while deaths < KILLS:
        process = subprocess.Popen(
            command(*asked), cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < 60:
            if any(line["step"] > reached for line in metrics.read(partial)):
                break
            time.sleep(0.05)
        time.sleep(moments.uniform(0.0, 2.0))
        assert process.poll() is None, "it ended before it could be killed"
        process.send_signal(signal.SIGKILL)
        errors = process.communicate()[1]
        deaths += 1
        if resumed := re.search(r"resumes at step (\d+)", errors):
            assert reached - int(resumed[1]) <= PART + 40, "more than the open part was lost"
        else:
            assert reached <= PART + 40
        reached = max([reached, *(line["step"] for line in metrics.read(partial))])
        rows = Dataset.open(tmp_path / REPLAY).rows
        assert rows <= CAPACITY + 3 * PART
    run(tmp_path, *asked)
    steps = [line["step"] for line in metrics.read(tmp_path / "runs" / SLUG / "dreamer")]
    assert steps == sorted(set(steps))
    assert steps[-1] == 6000
    assert "agree with their checksums" in run(tmp_path, "verify", "data").stdout
    assert not list((tmp_path / REPLAY).glob(".*.tmp"))


@pytest.mark.slow
def test_five_times_the_capacity_stays_within_the_bound_on_disk(tmp_path: Path) -> None:
    run(tmp_path, *words(steps=5 * CAPACITY))
    size = durable.folder_size(tmp_path / REPLAY)
    bound = (-(-CAPACITY // PART) + 2) * PART * (32 * 32 + 64)
    assert size < bound


@pytest.mark.slow
def test_v_m_and_c_do_not_grow(tmp_path: Path) -> None:
    run(tmp_path, "collect", "--env", TINY, "--episodes", "40", "--size", "32")
    run(tmp_path, "train-vae", "--env", TINY, "--steps", "4000", "--batch", "16", "--latent", "4")
    run(tmp_path, "train-mdnrnn", "--env", TINY, "--steps", "4000", "--batch", "8", "--seq-len", "8", "--hidden", "16")
    run(tmp_path, "train-controller", "--env", TINY, "--popsize", "4", "--max-generations", "120")
    for name in ("vae", "mdnrnn", "controller"):
        assessment = judge(metrics.read(tmp_path / "runs" / SLUG / name))
        assert assessment.word == "flat", f"{name}: {assessment.reason}"
