"""Others' learners and ours at equal minutes: clocks, what ours had at a cut, observations of others, and the page."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.pages import peers as pages
from benchmarks.peers import __main__ as peers
from benchmarks.peers import runs
from benchmarks.peers.minutes import CpuClock, WallClock, read, run_measured
from benchmarks.peers.settings import METHODS, PEERS, zoo
from benchmarks.peers.sights import Latents, Stacked, open_sight
from tests.conftest import SLUG, TINY
from wm.errors import MissingInput, UsageProblem, WmError
from wm.pretrained import load_controller


@pytest.mark.slow
def test_minutes_are_those_of_the_processor_and_a_command_that_resumes_adds_to_them(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 1: pass\ntime.sleep(0.5)"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    log = tmp_path / "cpu.jsonl"
    assert run_measured([sys.executable, "-c", child], tmp_path, log, tmp_path, every=0.1) == 0
    first = read(log)[-1]
    assert first[1] >= 0.9
    assert run_measured([sys.executable, "-c", child + "; sys.exit(3)"], tmp_path, log, tmp_path, every=0.1) == 3
    with log.open("a") as file:
        file.write("[17")  # where a kill left it
    readings = read(log)
    assert readings[-1][1] >= first[1] + 0.9
    clock = CpuClock(readings)
    assert clock.minutes(first[0]) == pytest.approx(first[1] / 60, abs=0.01)
    assert clock.minutes(0) == 0
    assert WallClock(100.0).minutes(160.0) == 1


def test_ours_has_at_a_cut_what_the_search_had_kept(chain: Path) -> None:
    run = chain / "runs" / SLUG
    rounds = runs.open_rounds(run)
    clock, controller = runs.clock_of(run), load_controller(run / "controller", "")
    end = clock.minutes(runs.finished(rounds[0].controller))
    done = runs.policy_at(TINY, rounds, clock, end)
    assert done is not None
    assert done.spec.parameters == tuple(controller.parameters.tolist())
    assert done.spec.env.render == "gymnasium"
    assert done.env_steps == rounds[0].controller.metrics["env_steps"] + rounds[0].mdnrnn.metrics["collected_steps"]
    assert done.score is None  # of six episodes
    before = runs.policy_at(TINY, rounds, clock, end - 1e-6)
    assert before is not None
    assert before.spec.parameters == tuple(controller.means[-2].tolist())  # the last one comes with the end
    assert before.env_steps <= done.env_steps
    assert runs.policy_at(TINY, rounds, clock, 0.0) is None
    points = runs.curve(rounds, clock)
    assert [point[2] for point in points] == [
        round(float(np.mean(line["validation"])), 2) for line in rounds[0].lines if "validation" in line
    ]
    assert 0 < points[0][0] <= points[-1][0] <= end + 0.01
    seconds, steps = runs.vae_cost(run)
    # Ends are known to the second, and on a fast machine V and C end in the same one.
    assert 0 < seconds / 60 <= end * (1 + 1e-6)
    assert steps == rounds[0].mdnrnn.metrics["collected_steps"]


def test_a_row_of_ours_has_a_score_where_there_is_a_policy(chain: Path, tmp_path: Path) -> None:
    run, file = chain / "runs" / SLUG, tmp_path / "rows.json"
    words = [TINY, "cma", "--run", str(run), "--episodes", "4", "--rows", str(file), "--minutes"]
    for minutes in ("0.0001", "1000"):
        peers.main([*words, minutes])
    (row,) = json.loads(file.read_text())
    assert [cut["minutes"] for cut in row["cuts"]] == [5, 10, 30, 60]
    assert row["cuts"][0]["episodes"] == 4
    assert {cut["mean"] for cut in row["cuts"]} == {row["cuts"][0]["mean"]}
    assert row["clock"] == "wall"
    assert row["command"].startswith("wm")
    assert str(tmp_path) not in file.read_text()
    assert "mean" not in peers.ours(TINY, "cma", 0, [0.0001], run, 4)["cuts"][0]
    with pytest.raises(MissingInput, match=r"has no trained C; finish `wm curriculum` first"):
        runs.open_rounds(tmp_path / "runs" / "Pong")


def test_ours_is_trained_by_the_curriculum_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(runs, "run_measured", lambda *given: calls.append(given) or 75)
    with pytest.raises(WmError, match=r"`wm curriculum .*--seed 2.*` ended with exit code 75; the same"):
        runs.train_ours(tmp_path / "dream", "Pong", "dream", 2)
    ((command, folder, log, path),) = calls
    assert command[1:3] == ("-m", "stages")
    assert command[command.index("--preset") + 1] == "dream"
    assert (folder, log) == (tmp_path / "dream", tmp_path / "dream" / "cpu.jsonl")
    assert (path / "stages").is_dir()


@pytest.mark.parametrize("latents", [False, True])
def test_an_end_of_an_episode_is_seen_as_the_next_step_would_have_been(latents: bool, chain: Path) -> None:
    sight = open_sight("sb3-ppo-latents" if latents else "sb3-ppo-pixels", "CartPole", 2, chain / "runs" / SLUG / "vae")
    assert isinstance(sight, Latents if latents else Stacked)
    frames = np.random.default_rng(0).integers(0, 256, (3, 2, *sight.env.frame_shape), np.uint8)
    for index in range(2):
        sight.begin(index)
    first = sight.see(frames[0])
    assert first.shape == (2, *sight.space.shape)
    kept, end = first.copy(), sight.last(1, frames[1, 1])
    assert np.allclose(sight.see(frames[1])[1], end, atol=1e-5)
    sight.begin(0)
    assert np.array_equal(first, kept), "a learner's observations of before"
    again = sight.see(frames[2])
    if latents:
        assert not again[0, len(again[0]) // 2 :].any()
        assert again[1, len(again[0]) // 2 :].any()
    else:
        assert not again[0, ..., :-3].any()
        assert np.array_equal(again[1, ..., -6:-3], frames[1, 1])


def test_settings_are_the_zoos_or_a_sentence() -> None:
    assert zoo("sb3-ppo-latents", "Breakout")["n_steps"] == 128
    for method in PEERS:
        assert zoo(method, "CartPole")["timesteps"] <= 100_000
    with pytest.raises(UsageProblem, match=r"sb3-dqn-pixels has no settings for CarRacing; expected one of Atari's"):
        zoo("sb3-dqn-pixels", "CarRacing")


def test_a_row_replaces_its_like_alone(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    for method, seed, value in (("ppo", 0, 1), ("sb3-ppo-pixels", 0, 2), ("ppo", 1, 3), ("ppo", 0, 4)):
        peers.add({"env": "Pong", "method": method, "seed": seed, "value": value}, file)
    assert [row["value"] for row in json.loads(file.read_text())] == [2, 4, 3]
    assert [peers.cuts_until(minutes) for minutes in (60, 30.5, 10, 3)] == [[5, 10, 30, 60], [5, 10, 30], [5, 10], [3]]


def row(method: str, *means: float | None, env: str = "Pong", seed: int = 0) -> dict[str, Any]:
    cuts: list[dict[str, Any]] = []
    for minutes, mean in zip((10, 30, 60), means, strict=False):
        tested = {} if mean is None else {"mean": mean, "ci95": 1.0, "episodes": 100, "spent": minutes}
        cuts.append({"minutes": minutes, "env_steps": 1000 * minutes, **tested})
    facts = {"command": "c", "commit": "f", "versions": {"torch": "2"}, "python": "3", "machine": "m"}
    curve = [[1, 500, -21.0], [9, 5000, 3.0]]
    return {"env": env, "method": method, "seed": seed, "clock": "cpu", "curve": curve, "cuts": cuts, **facts}


def test_the_page_says_first_where_ours_is_behind() -> None:
    rows = [row("sb3-ppo-pixels", -20.0, -10.0, 5.0), row("sb3-dqn-pixels", -21.0), row("dream", None, -10.5, 0.0),
            row("ppo", None, -11.0, 9.0), row("ppo", None, 4.0, 9.0, seed=1)]  # fmt: skip
    assert list(pages.comparisons(rows)) == [
        ("behind", "Pong, 10 minutes: `sb3-ppo-pixels` returns -20.0 ± 1.0; ours has no policy yet."),
        ("level", "Pong, 30 minutes: `sb3-ppo-pixels` returns -10.0 ± 1.0; our `dream` returns -10.5 ± 1.0."),
        ("ahead", "Pong, 60 minutes: `sb3-ppo-pixels` returns 5.0 ± 1.0; our `ppo` returns 9.0 ± 1.0."),
    ]
    text = pages.page(rows)
    assert text.index("Behind:") < text.index("Within the intervals") < text.index("Ahead of") < text.index("| env")
    assert "| Pong | -20.4 | `ppo` | 0, 1 | – | no policy yet | -3.5 (-11.0 to 4.0), 30 k steps |" in text
    assert "| Pong | 0.0 | 60,000 | `sb3-ppo-pixels` | 5,000 |" in text
    assert "| Pong | -5 | `ppo` | 1 | 9.0 | 5,000 |" in text
    assert "Not measured: CartPole any; Pong `sb3-ppo-latents`, `cma`; Breakout any" in text
    assert "Ours is behind at no cut that was tested." in pages.page([row("sb3-ppo-pixels", 1.0), row("ppo", 9.0)])
    assert "No peer has been tested yet" in pages.page([row("ppo", 9.0)])
    assert ("alone", "Pong, 10 minutes: `sb3-ppo-pixels` returns 1.0 ± 1.0.") in pages.comparisons([row(PEERS[0], 1.0)])
    assert [plot.x_label for plot in pages.plots(rows)] == ["minutes", "thousand environment steps"]


@pytest.mark.extra("sb3")
@pytest.mark.parametrize("method", ["sb3-ppo-pixels", "sb3-dqn-pixels"])
def test_a_peer_is_trained_tested_and_continued(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "BUILD", tmp_path)
    file, words = tmp_path / "rows.json", ["CartPole", method, "--seed", "3", "--episodes", "2", "--rows"]
    clock = [0.0]

    def spent() -> float:
        clock[0] += 0.5
        return clock[0]

    monkeypatch.setattr("benchmarks.peers.training.time.process_time", spent)
    for minutes in ("0.02", "0.04"):
        peers.main([*words, str(file), "--minutes", minutes])
    (made,) = json.loads(file.read_text())
    assert made["method"] in METHODS
    assert [cut["minutes"] for cut in made["cuts"]] == [0.04]
    assert made["cuts"][0]["env_steps"] > 0
    assert made["cuts"][0]["spent"] >= 0.04
    assert made["versions"]["stable-baselines3"]
    with pytest.raises(UsageProblem, match=r"has trained for 0\.\d minutes and kept no policy at 0\.01;"):
        peers.main([*words, str(file), "--minutes", "0.01"])
    restarted = "a replay is not kept, so the training starts anew" in capsys.readouterr().out
    assert restarted == (method == "sb3-dqn-pixels")
