"""`wm train-dreamer` on a tiny environment: it trains, resumes, and stays within its memory and its disk."""

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image
from torch import Tensor

from stages.session import Session
from tests.conftest import SLUG, TINY, outcome, run
from tests.tiny import TinyEnv
from wm.artifacts import durable
from wm.dreamer import online, replay_store, training, updates
from wm.envs import registry
from wm.episodes.dataset import Dataset
from wm.pipeline.train_dreamer import replay_path
from wm.report import sections
from wm.report.plots import Plot
from wm.report.run_summary import RunSummary
from wm.rollouts import loop as rollouts
from wm.rollouts.loop import EpisodeResult
from wm.settings import DreamerSettings
from wm.telemetry import metrics_log
from wm.telemetry.trend import judge
from wm.training.checkpoint import Checkpoints

SIZES = {
    "size": 32, "deter": 16, "hidden": 12, "stoch": 4, "classes": 4, "depth": 4, "units": 12, "bins": 31,
    "imagine_last": 2, "horizon": 4, "warmup": 64,
}  # fmt: skip
SETS = tuple(word for name, value in SIZES.items() for word in ("--set", f"{name}={value}"))
CAPACITY, PREFILL, PART = 256, 32, 64  # the last two follow from the first
REPLAY = f"data/{SLUG}.dreamer.zarr"


def words(*more: str, steps: int = 400) -> tuple[str, ...]:
    own = ("--steps", str(steps), "--capacity", str(CAPACITY), "--batch", "4", "--seq-len", "8", "--train-ratio", "1")
    return ("train-dreamer", "--env", TINY, *own, *SETS, *more)


def weights(folder: Path) -> str:
    manifest = json.loads((folder / "runs" / SLUG / "dreamer" / "manifest.json").read_text())
    return str(manifest["files"]["weights.safetensors"]["sha256"])


def refused(folder: Path, code: int, *more: str, **variables: str) -> str:
    done = outcome(folder, *more, **variables)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dreamer")
    assert json.loads(run(folder, *words("--json")).stdout)["status"] == "created"
    return folder


@pytest.mark.slow
@pytest.mark.slow
def test_an_environment_whose_actions_changed_is_refused(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = json.loads((trained / "runs" / SLUG / "dreamer" / "manifest.json").read_text())["recipe"]
    assert recipe["inputs"]["source of tests.tiny"]
    monkeypatch.setattr(TinyEnv, "action_space", gym.spaces.Discrete(2))
    registry._inspect.cache_clear()
    for stage in ("evaluate", "dream"):
        said = refused(trained, 78, stage, "--env", TINY, "--agent", "dreamer")
        assert f"takes 2 discrete actions but runs/{SLUG}/dreamer was trained with 3 discrete actions" in said
    registry._inspect.cache_clear()


def test_its_dream_has_no_temperature(trained: Path) -> None:
    said = refused(trained, 64, "dream", "--env", TINY, "--agent", "dreamer", "--temperature", "0.5")
    assert "--temperature is 0.5 but the dream of a Dreamer has none; leave it out" in said


def test_runs_of_the_same_name_have_replays_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [None, *map(Path, ("runs/Pong", "a/Pong", "b/Pong", "b/../b/Pong")), tmp_path / "b" / "Pong"]
    paths = [replay_path(Session("Pong", run=run)).as_posix() for run in runs]
    assert paths[:2] == ["data/Pong.dreamer.zarr"] * 2
    assert paths[3:] == [paths[3]] * 3
    assert len(set(paths)) == 3


def test_its_dream_compares_a_fixed_number_of_windows(trained: Path) -> None:
    dream = ("dream", "--env", TINY, "--agent", "dreamer")
    said = refused(trained, 64, *dream, "--dreams", "5")
    assert "--dreams is 5 but a Dreamer is compared in 32 windows of 4 episodes; leave it out" in said
    run(trained, *dream, "--quick", "--dry-run")  # a preset has dreams for controllers
    said = refused(trained, 64, "curriculum", "--envs", "Catch", "--agent", "dreamer", "--set", "dream.dreams=5")
    assert "--dreams is 5" in said


@pytest.mark.parametrize(
    "words", [("--workers", "2"), ("--worker-timeout", "9"), ("--executor", "local"), ("--data", "d.zarr")]
)
def test_its_dream_refuses_what_it_would_ignore(trained: Path, words: tuple[str, ...]) -> None:
    said = refused(trained, 64, "dream", "--env", TINY, "--agent", "dreamer", *words)
    assert said == (
        f"wm: {words[0]} means nothing to the dream of a Dreamer, whose few episodes this process plays; leave it out, "
        "or name a controller with --agent."
    )


def test_it_publishes_a_model_pictures_and_a_replay(trained: Path) -> None:
    folder = trained / "runs" / SLUG / "dreamer"
    for name in ("returns.png", "open-loop.png"):
        with Image.open(folder / name) as picture:
            assert picture.width > 200
    metrics = json.loads((folder / "manifest.json").read_text())["metrics"]
    assert metrics["env_steps"] == 400
    assert metrics["updates"] == (400 - PREFILL) // (4 * 8)
    assert np.isfinite(metrics["squared_error"])
    assert Dataset.open(trained / REPLAY).rows >= CAPACITY
    assert json.loads(run(trained, *words("--json")).stdout)["status"] == "up to date"


def test_the_pieces_of_a_replay_are_not_called_episodes(trained: Path) -> None:
    info, table = run(trained, "info", REPLAY).stdout, run(trained, "ls").stdout
    page = Path(run(trained, "view", REPLAY, "--episodes", "all", "--out", str(trained / "page.html")).stdout.strip())
    cards = re.findall(r"<h2>(\w+) .*?steps · (.*?) · seed", page.read_text(), re.DOTALL)
    assert re.search(r"pieces of episodes +\d+, \d+ older pieces evicted", info)
    assert re.search(r"; \d+ a piece;", info)
    assert "return of a piece" in info
    assert re.search(rf"{SLUG}.dreamer.zarr.* [\d,]+ steps", table)
    assert {unit for unit, _ in cards} == {"Piece"}
    assert {ending for _, ending in cards} == {"terminated", "truncated", "its episode goes on"}


@pytest.mark.slow
def test_the_replay_stays_within_its_bound_on_disk(tmp_path: Path) -> None:
    run(tmp_path, *words(steps=900))
    parts = list((tmp_path / REPLAY).glob("part-*"))
    assert len(parts) <= CAPACITY // PART + 2
    rows = Dataset.open(tmp_path / REPLAY).rows
    assert CAPACITY <= rows <= CAPACITY + 3 * PART
    output = run(tmp_path, "info", REPLAY).stdout
    assert "older pieces evicted" in output
    assert "lost" not in output


@pytest.mark.slow
def test_a_disk_budget_ends_training_with_a_usable_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stages import cli

    monkeypatch.setattr(replay_store, "disk_bound", lambda *_: 0)
    monkeypatch.setattr(updates, "weight_bytes", lambda _: 0)
    monkeypatch.chdir(tmp_path)
    assert cli.run(list(words("--disk-budget", "14kB", steps=900))) == 74
    assert Dataset.open(tmp_path / REPLAY).rows > 0
    monkeypatch.undo()
    assert "resumes at step" in run(tmp_path, *words(steps=900)).stderr


def test_it_can_be_evaluated_and_filmed(trained: Path) -> None:
    words = ("evaluate", "--env", TINY, "--agent", "dreamer", "--episodes", "4", "--json")
    score = json.loads(run(trained, *words, WM_WORKERS="2").stdout)["metrics"]
    assert score["agent"] == "dreamer"
    assert score["random"]["episodes"] == 4
    durable.remove(trained / "runs" / SLUG / "evaluation")
    again = json.loads(run(trained, *words, "--record-video", "1").stdout)
    assert again["status"] == "created"
    assert again["metrics"]["returns"] == score["returns"]
    assert (trained / "runs" / SLUG / "videos" / "dreamer" / "episode-0.gif").exists()


def test_a_report_has_films_of_its_test_episodes(trained: Path) -> None:
    """A Dreamer has neither V nor M of its own, so beside the screen stands what it sees, and nothing else."""
    words = ("evaluate", "--env", TINY, "--agent", "dreamer", "--episodes", "4", "--json")
    returns = json.loads(run(trained, *words).stdout)["metrics"]["returns"]
    folder = trained / "runs" / SLUG
    assert "no film" not in run(trained, "report", f"runs/{SLUG}", "--env", TINY).stderr
    median, worst = RunSummary.of(folder).films
    assert (median.episode_return, worst.episode_return) == (sorted(returns)[1], min(returns))
    for film in (median, worst):
        assert film.parts == ["what the agent sees"]
        assert len(film.sizes) == film.length + 1 == len(film.actions) + 1
        assert (film.width, film.height, film.side) == (40, 40, SIZES["size"])
        with Image.open(io.BytesIO(film.screen[: film.sizes[0]])) as first:
            assert first.size == (40, 40)
        with Image.open(io.BytesIO(film.beside)) as sheet:
            assert sheet.size[0] == SIZES["size"] * film.columns
    page = (folder / "report.html").read_text()
    assert page.count('<section class="player"') == 2
    assert "The film is left out" not in page


@pytest.mark.slow
def test_it_ends_when_a_validation_confirms_the_target_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    validated: list[list[EpisodeResult]] = []

    def play(*arguments: Any, **named: Any) -> list[EpisodeResult]:
        first = not validated
        validated.append(list(rollouts.play(*arguments, **named)))
        return [replace(outcome, episode_return=-2e6) for outcome in validated[0]] if first else validated[-1]

    monkeypatch.setattr(online, "play", play)
    monkeypatch.setattr(online, "AVERAGED_EPISODES", 20)
    run(tmp_path, *words("--target-return", "-1e6", "--num-envs", "8", "--train-ratio", "0.1", steps=9000))
    metrics = json.loads((tmp_path / "runs" / SLUG / "dreamer" / "manifest.json").read_text())["metrics"]
    assert metrics["ended"] == "target"
    assert metrics["training_episodes"] == 20
    assert metrics["env_steps"] < 9000
    assert len(validated) == 2
    assert metrics["episodes"] >= 20 + online.VALIDATION_INTERVAL
    assert metrics["validation_episodes"] == len(validated[1]) == 20
    assert metrics["validation_return"] == pytest.approx(np.mean([outcome.episode_return for outcome in validated[1]]))


def test_its_open_loop_predictions_are_compared_with_episodes(trained: Path) -> None:
    words = ("dream", "--env", TINY, "--agent", "dreamer", "--json")
    result = json.loads(run(trained, *words).stdout)
    assert result["status"] == "created"
    assert result["metrics"]["open_loop"]["5"]["dream"] > 0
    with Image.open(trained / "runs" / SLUG / "dream-dreamer" / "dream.gif") as movie:
        assert movie.n_frames > 4  # type: ignore[attr-defined]
    assert json.loads(run(trained, *words).stdout)["status"] == "up to date"


@pytest.mark.slow
def test_a_curriculum_of_dreamers_runs_and_is_reported(tmp_path: Path) -> None:
    lines = [f"{name} = {value}" for name, value in (SIZES | {"steps": 300, "capacity": 256, "batch": 4}).items()]
    tables = {"train-dreamer": [*lines, "seq_len = 8", "train_ratio = 1"], "evaluate": ["episodes = 4"]}
    (tmp_path / "c.toml").write_text("".join(f"[{name}]\n" + "\n".join(rows) + "\n" for name, rows in tables.items()))
    words = ("curriculum", "--agent", "dreamer", "--envs", TINY, "--config", "c.toml")
    plans = json.loads(run(tmp_path, *words, "--dry-run", "--json").stdout)
    assert [plan["stage"] for plan in plans["environments"][TINY]] == ["train-dreamer", "dream", "evaluate"]
    done = run(tmp_path, *words)
    assert re.search(rf"{TINY}: done: last \d+ training episodes \S+, no threshold is set", done.stdout)
    page = (tmp_path / "runs" / "report.md").read_text()
    assert "the Dreamer" in page
    assert "persistence" in page
    assert run(tmp_path, *words).stderr.count(": up to date: ") == 3
    assert (tmp_path / REPLAY).exists()
    run(tmp_path, *words, "--keep", "artifacts")
    assert not (tmp_path / REPLAY).exists()
    assert run(tmp_path, *words).stderr.count(": up to date: ") == 3  # nothing of it is needed any more
    assert "--rounds is for V, M and C" in refused(tmp_path, 64, *words, "--rounds", "2")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights_and_another_one_others(trained: Path, tmp_path: Path) -> None:
    run(tmp_path, *words())
    assert weights(tmp_path) == weights(trained)
    run(tmp_path, *words("--seed", "1"))
    assert weights(tmp_path) != weights(trained)


def test_every_line_of_metrics_has_the_memory_and_it_is_judged(trained: Path) -> None:
    lines = metrics_log.read(trained / "runs" / SLUG / "dreamer")
    names = {"rss_anon_mb", "rss_file_mb", "children_mb", "buffers_mb", "unexplained_mb", "disk_mb", "disk_free_mb"}
    assert all(names <= set(line) for line in lines)
    (memory,) = json.loads(run(trained, "memory", f"runs/{SLUG}/dreamer", "--json").stdout)["trainings"]
    assert {row["phase"] for row in memory["trends"]} == {"filling", "full"}
    assert (trained / memory["plot"]).exists()


def test_interrupted_it_resumes_from_the_last_part(tmp_path: Path) -> None:
    """tests/faults/test_dreamer.py kills its process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", stop_after(Checkpoints.save, 2))
        assert outcome(tmp_path, *words()).returncode == 130
    partial = tmp_path / "runs" / SLUG / "dreamer.partial" / "checkpoints"
    (tmp_path / REPLAY / ".staging" / "torn").mkdir(parents=True)
    reached = max(int(path.stem.removeprefix("step-")) for path in partial.glob("step-*.json"))
    assert f"resumes at step {reached} of 400" in run(tmp_path, *words()).stderr
    steps = [line["step"] for line in metrics_log.read(tmp_path / "runs" / SLUG / "dreamer")]
    assert steps == sorted(set(steps))
    assert steps[-1] == 400
    assert not (tmp_path / REPLAY / ".staging" / "torn").exists()


@pytest.mark.slow
@pytest.mark.slow
def test_trainings_of_one_name_and_other_settings_keep_their_replays(tmp_path: Path) -> None:
    first, second = words(steps=160), words("--set", "world_learning_rate=0.0003", steps=160)
    run_path = tmp_path / "runs" / SLUG

    def parts(folder: Path) -> dict[str, str]:
        return {path.parent.name: path.read_text() for path in folder.glob("part-*/manifest.json")}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", stop_after(Checkpoints.save, 2))
        assert outcome(tmp_path, *first).returncode == 130
    reached = max(int(path.stem.removeprefix("step-")) for path in run_path.glob("dreamer.partial/*/step-*.json"))
    of_first = parts(tmp_path / REPLAY)
    said = run(tmp_path, *second).stderr
    assert f"{REPLAY}: the replay of another training moves to data/archive/{SLUG}.dreamer-" in said
    (archived,) = (tmp_path / "data" / "archive").iterdir()
    assert parts(archived) == of_first
    of_second = parts(tmp_path / REPLAY)
    said = run(tmp_path, *first).stderr
    assert f"{REPLAY}: restored from data/archive/" in said
    assert f"resumes at step {reached} of 160" in said
    assert "restored from the archive" in run(tmp_path, *second).stderr
    assert parts(tmp_path / REPLAY) == of_second


@pytest.mark.slow
def test_a_resumed_training_neither_doubles_its_replay_nor_catches_up_on_updates(tmp_path: Path) -> None:
    """I12: a resumed training has the steps and the number of updates of its checkpoint."""
    from wm.dreamer import online

    calls: dict[str, list[Any]] = {"updates": [], "steps": []}
    plain = online.OnlineTraining._updates_due

    def due(self: Any) -> int:
        updates: int = plain(self)
        calls["updates"].append(updates)
        calls["steps"].append(len(self.writer.buffer))
        return updates

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online.OnlineTraining, "_updates_due", due)
        patch.setattr(Checkpoints, "save", stop_after(Checkpoints.save, 2))
        with pytest.raises(AssertionError):
            run(tmp_path, *words(steps=900))
        checkpointed = calls["steps"][-1]
        patch.undo()
        calls["updates"].clear()
        calls["steps"].clear()
        patch.setattr(online.OnlineTraining, "_updates_due", due)
        run(tmp_path, *words(steps=900))
    assert max(calls["updates"]) <= 1
    assert calls["steps"][0] <= checkpointed + 4  # the first frames of new episodes


def stop_after(plain: Any, count: int) -> Any:
    calls = []

    def save(*arguments: Any) -> None:
        plain(*arguments)
        calls.append(1)
        if len(calls) == count:
            raise KeyboardInterrupt

    return save


@pytest.mark.slow
def test_without_its_replay_a_training_resumes_and_updates_once_it_is_filled_again(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", stop_after(Checkpoints.save, 2))
        with pytest.raises(AssertionError):
            run(tmp_path, *words(steps=600))
    durable.remove(tmp_path / REPLAY)
    run(tmp_path, *words(steps=600))
    metrics = json.loads((tmp_path / "runs" / SLUG / "dreamer" / "manifest.json").read_text())["metrics"]
    assert 12 <= metrics["updates"] <= (600 - PREFILL) // (4 * 8)


@pytest.mark.slow
def test_a_world_model_trained_on_collected_episodes_alone_is_not_scored(tmp_path: Path) -> None:
    run(tmp_path, "collect", "--env", TINY, "--episodes", "12", "--size", "32", "--gray")
    run(tmp_path, *words("--data", f"data/{SLUG}.zarr", "--pretrain", "2", steps=0))
    said = refused(tmp_path, 64, "evaluate", "--env", TINY, "--agent", "dreamer", "--episodes", "2")
    assert "has an actor that was never trained" in said
    run(tmp_path, "dream", "--env", TINY, "--agent", "dreamer")


def test_pretraining_and_validation_are_counted_for_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated: list[EpisodeResult] = []

    def play(*arguments: Any, **named: Any) -> list[EpisodeResult]:
        validated.extend(results := list(rollouts.play(*arguments, **named)))
        return results

    monkeypatch.setattr(online, "play", play)
    monkeypatch.setattr(online, "AVERAGED_EPISODES", 2)
    run(tmp_path, "collect", "--env", TINY, "--episodes", "12", "--size", "32", "--gray")
    target = ("--target-return", "-1e6", "--set", "validation_episodes=2")
    run(tmp_path, *words("--data", f"data/{SLUG}.zarr", "--pretrain", "2", *target))
    trained = json.loads((tmp_path / "runs" / SLUG / "dreamer" / "manifest.json").read_text())["metrics"]
    assert trained["ended"] == "target"
    assert trained["actor_updates"] == 1  # returns before it are those of chance
    plots: list[Plot] = []
    monkeypatch.setattr(sections, "to_svg", lambda plot: plots.append(plot) or "")
    summary = RunSummary.of(tmp_path / "runs" / SLUG)
    list(sections.dreamer_section("Tiny", summary.artifacts["dreamer"], None, summary.metrics["dreamer"]))
    returns, terms = plots
    assert returns.series[0].x[-1] == trained["env_steps"]  # pretraining updates are no steps
    assert (terms.series[0].x[0], terms.series[0].x[-1]) == (2, trained["updates"])
    evaluate = ("evaluate", "--env", TINY, "--agent", "dreamer", "--episodes", "2", "--json")
    steps = json.loads(run(tmp_path, *evaluate).stdout)["metrics"]["env_steps"]
    collected = Dataset.open(tmp_path / "data" / f"{SLUG}.zarr").env_steps
    assert len(validated) == 2
    assert steps == trained["env_steps"] + collected + sum(result.env_steps for result in validated)


@pytest.mark.slow
def test_training_on_collected_episodes_resumes_bit_for_bit(tmp_path: Path) -> None:
    run(tmp_path, "collect", "--env", TINY, "--episodes", "12", "--size", "32", "--gray")
    offline = words("--data", f"data/{SLUG}.zarr", "--pretrain", "30", steps=0)
    run(tmp_path, *offline)
    whole = weights(tmp_path)
    other = tmp_path / "other"
    durable.make_folder(other)
    (other / "data").symlink_to(tmp_path / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", stop_after(Checkpoints.save, 1))
        with pytest.raises(AssertionError):
            run(other, *offline)
    done = run(other, *offline)
    assert "resumes at step" in done.stderr
    assert weights(other) == whole
    assert not (tmp_path / REPLAY).exists()  # nothing was played


def test_collected_episodes_of_another_observation_are_refused(tmp_path: Path) -> None:
    run(tmp_path, "collect", "--env", TINY, "--episodes", "2", "--size", "32", "--observation", "motion")
    offline = words("--data", f"data/{SLUG}.zarr", "--pretrain", "30", "--set", "gray=false", steps=0)
    assert "has observation motion but this Dreamer takes rgb" in refused(tmp_path, 78, *offline)


@pytest.mark.slow
def test_it_plays_what_the_collected_episodes_show(tmp_path: Path) -> None:
    run(tmp_path, "collect", "--env", TINY, "--episodes", "12", "--size", "32", "--observation", "motion",
        "--set", "mask=0-40")  # fmt: skip
    masked = words("--data", f"data/{SLUG}.zarr", "--pretrain", "2", "--set", "mask=0-40")
    motion = ("--set", "observation=motion")
    assert "give --set gray=false" in refused(tmp_path, 64, *masked, *motion)
    run(tmp_path, *masked, *motion, "--set", "gray=false")
    frames = Dataset.open(tmp_path / REPLAY).column("frames")
    assert (frames[:, :13] == 128).all()
    assert not (frames[:, 13:] == 128).all()
    evaluate = ("evaluate", "--env", TINY, "--agent", "dreamer", "--episodes", "2", "--json")
    protocol = json.loads(run(tmp_path, *evaluate).stdout)["metrics"]["protocol"]
    assert "our agent sees grey-level differences" in protocol
    assert "our agent sees nothing between 0 and 40 % of the height" in protocol
    run(tmp_path, "dream", "--env", TINY, "--agent", "dreamer")
    run(tmp_path, "report", f"runs/{SLUG}", "--env", TINY)
    film, _ = RunSummary.of(tmp_path / "runs" / SLUG).films
    with Image.open(io.BytesIO(film.beside)) as sheet:
        assert np.allclose(np.asarray(sheet.convert("RGB"))[:8, :32].astype(int), 128, atol=2)  # the first frame's top


def test_bad_input_gets_one_sentence(tmp_path: Path, trained: Path) -> None:
    assert "--steps is 0 without --data" in refused(tmp_path, 64, *words(steps=0))
    assert "mask is '9'; expected none, flicker" in refused(tmp_path, 64, *words("--set", "mask=9"))
    for early in (words(steps=39), words("--set", "warmup=390"), words("--num-envs", "64", "--capacity", "999")):
        assert "training would end before the first update of the actor" in refused(tmp_path, 64, *early)
    assert "expected at least a window of 8 steps" in refused(
        tmp_path, 64, *words("--capacity", "64", "--num-envs", "9")
    )
    assert "give a smaller one" in refused(tmp_path, 71, *words("--capacity", "1000000000"))
    assert "a replay of 256 steps needs about" in refused(tmp_path, 74, *words("--disk-budget", "10kB"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_memory_limit_ends_with_a_checkpoint_from_which_the_same_command_resumes(tmp_path: Path) -> None:
    message = refused(tmp_path, 71, *words("--memory-limit", "50MB", "--snapshot"))
    assert "more than --memory-limit 50.0 MB; `wm memory runs/" in message
    assert list((tmp_path / "runs" / SLUG / "dreamer.partial" / "checkpoints").glob("step-*.json"))
    assert "resumes at step" in run(tmp_path, *words("--snapshot")).stderr
    assert len(list((tmp_path / "runs" / SLUG / "dreamer").glob("memory-*.json"))) == 2


@pytest.mark.slow
def test_its_memory_is_flat_past_capacity(tmp_path: Path) -> None:
    run(tmp_path, *words(steps=6000))
    assessment = judge(metrics_log.read(tmp_path / "runs" / SLUG / "dreamer"))
    assert assessment.word == "flat", assessment.reason


# Two lines in a row; the last and only one.
@pytest.mark.parametrize(("since", "log_every"), [pytest.param(1, 100, marks=pytest.mark.slow), (0, 400)])
def test_a_dreamer_whose_gradients_are_not_finite_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: int, log_every: int
) -> None:
    values, lines = training._values, list[dict[str, float]]()

    def spied(metrics: dict[str, Tensor]) -> dict[str, float]:
        lines.append(values(metrics) | ({"world_norm": math.nan} if len(lines) >= since else {}))
        return lines[-1]

    monkeypatch.setattr(training, "_values", spied)
    monkeypatch.setattr(DreamerSettings, "log_every", log_every)
    sentence = refused(tmp_path, 65, *words())
    assert "the gradient is not finite (world_norm) at step" in sentence
    assert len(lines) == (3 if since else 1)
    assert not (tmp_path / "runs" / SLUG / "dreamer").exists()
