"""Every odd environment is stored with right values, or refused in one sentence by the first stage that can know."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.session import Session
from tests.conftest import SLUG, TINY, command, environment, outcome, run, small_config
from tests.odd_envs import DOT, FATAL, STEPS, VARIANTS
from wm.actions import ActionSpace
from wm.artifacts.runs import load
from wm.dreamer.environment import playing_env
from wm.envs.registry import EnvConfig
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.errors import UsageProblem, WorkerFailed
from wm.evaluation.score import random_agent, score_agent
from wm.model_json import read_env
from wm.rollouts.collection import _open, describe
from wm.rollouts.loop import EpisodeJob, play
from wm.rollouts.players import play_jobs, trained_policy
from wm.rollouts.policies import RandomPolicy
from wm.runtime import Runtime
from wm.settings import DreamerSettings

REFUSED = {
    "FloatSigned": (70, "the result of render() has floats from -0.764706 to 0.568627"),
    "FloatBytes": (70, "the result of render() has floats from 30 to 200"),
    "GrowsRendered": (70, "the result of render() is (64, 48, 3) uint8 after 4 steps of the episode with seed"),
    "GrowsObserved": (70, "its observation is (64, 48, 3) uint8 after 4 steps of the episode with seed"),
    "FloatsLater": (70, "and was (32, 48, 3) uint8 before; expected one shape and type for all pictures of an episode"),
    "NanPicture": (70, "the result of render() has NaN"),
    "Integers": (70, "the result of render() is int64"),
    "ListOfPictures": (70, "the result of render() is of type list"),
    "NoPicture": (70, "the result of render() is None"),
    "Blind": (64, "has no pictures"),
    "FourFrames": (64, "has no pictures: its observations are stacks of gray frames, and it does not render"),
    "Undrawn": (70, "has no pictures: its render() is not implemented; let it return an array"),
    "NoActions": (64, "the action space is an empty Box"),
    "WideIntegers": (64, "the action space is a Box of int64 with a bound beyond 8388608"),
    "Unbounded": (64, "the action space is an unbounded Box"),
    "MultiDiscrete": (64, "the action space is MultiDiscrete"),
    "NanReward": (70, "returned the reward nan at step 4 of the episode with seed"),
    "InfiniteReward": (70, "returned the reward inf at step 0 of the episode with seed"),
    "NoReward": (70, "returned the reward None at step 0"),
    "ArrayReward": (70, "returned the reward array of shape (2,) at step 0"),
    "TextEnd": (70, "returned terminated of type str at step 0"),
    "NoInfo": (70, "returned info None at step 0"),
    "Exit": (70, "raised SystemExit: no licence at its first step()"),
    "LateExit": (70, "raised SystemExit: 0."),
    "LateError": (70, "raised RuntimeError: out of fuel."),
    "LateFile": (70, "raised FileNotFoundError: [Errno 2] No such file: 'map.xml'."),
    "LatePipe": (70, "raised BrokenPipeError: the simulator is gone."),
    "LateStop": (70, "raised StopIteration."),
    "Nameless": (70, "raised _Nameless at its first step()"),
    "NoResetInfo": (70, "returned info None from reset() of the episode with seed 0; expected a dict"),
    "ManyActions": (64, "the action space is a Discrete of 1000000000 actions"),
    "WideBox": (64, "the action space is a Box of 9000 dimensions"),
    "FarBox": (64, "the action space is a Box with a bound beyond 1e+38"),
    "ChoosesActions": (70, "has the action space Discrete(2) in the episode with seed 0 but was built with"),
    "HugeReward": (70, "returned the reward 1e+30 at step 0 of the episode with seed"),
    "OldReset": (70, "at its first reset(), which returns (observation, info)"),
    "OldStep": (70, "at its first step(), which returns (observation, reward, terminated, truncated, info)"),
    "BrokenReset": (70, "raised RuntimeError: the simulator is gone at its first reset()"),
    "PanicBuilt": (64, "cannot be built; its constructor raised _RustPanic: called unwrap() on a None value."),
    "PanicReset": (70, "raised _RustPanic: called unwrap() on a None value at its first reset()"),
    "PanicStep": (70, "raised _RustPanic: called unwrap() on a None value at its first step()"),
    "PanicRender": (70, "raised _RustPanic: called unwrap() on a None value at its first reset()"),
    "BrokenClose": (70, "raised RuntimeError: the simulator is gone in close()"),
    "PanicClose": (70, "raised _RustPanic: called unwrap() on a None value in close()"),
    "BrokenStep": (70, "raised RuntimeError: the simulator is gone at its first step()"),
}
GRAY = ("Flat", "OneChannel")
OBSERVED = ("Observed", "ObservedFirst", "OneChannel", "Negative", "NoModes")


def collect(folder: Path, name: str) -> Dataset:
    limit = ("--set", f"max_steps={STEPS}") if name == "Endless" else ()
    run(folder, "collect", "--env", f"tests.odd_envs:{name}-v0", "--episodes", "3", "--size", "32", *limit)
    return Dataset.open(folder / "data" / f"tests.odd_envs-{name}-v0.zarr")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_stored_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    code, sentence = REFUSED[name]
    done = outcome(tmp_path, "collect", "--env", f"tests.odd_envs:{name}-v0", "--episodes", "3", "--size", "32")
    assert done.returncode == code, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert f"{sentence}" in last
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="names of signals")
@pytest.mark.parametrize(
    ("name", "stage"),
    [*((name, ("collect", "--episodes", "2")) for name in FATAL), ("Quits", ("train-dreamer", "--steps", "2000"))],
)
def test_what_would_take_the_command_with_it_is_tried_in_another_process(
    name: str, stage: tuple[str, ...], tmp_path: Path
) -> None:
    patience = "3" if name == "Hangs" else "100"  # seconds, those of the worker's start among them
    words = (*stage, "--env", f"tests.odd_envs:{name}-v0", "--worker-timeout", patience)
    done = outcome(tmp_path, *words, WM_WORKERS="1")
    happened = {"Quits": "ended with exit code 0", "Hangs": "sent no heartbeat"}
    assert done.returncode == 70
    (sentence,) = done.stderr.splitlines()
    assert f"cannot take its first steps (its worker {happened.get(name, 'ended with signal SIGSEGV')}" in sentence
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", sorted(VARIANTS.keys() - REFUSED.keys()))
def test_what_is_stored_has_the_right_values(name: str, tmp_path: Path) -> None:
    dataset = collect(tmp_path, name)
    rows = 1 if name == "OneStep" else STEPS
    assert dataset.rows == 3 * (rows + 1)
    if name == "ChangesAction":
        taken = np.delete(dataset.column("actions")[:, 0], dataset.ends - 1)
        assert np.array_equal(taken, np.delete(dataset.column("rewards"), dataset.ends - 1))
        assert taken.all()
    elif name == "Faint":
        assert dataset.table["return"].tolist() == pytest.approx([STEPS * 2e-8] * 3)
    elif name != "Drifting":
        assert dataset.table["return"].tolist() == [rows] * 3
    assert dataset.label_names == []
    assert dataset.recipe["frames"] == ("observation" if name in OBSERVED else "render")
    frames = FrameReader(dataset).read(0, dataset.rows)
    if name == "Constant":
        assert (frames == 90).all()
        return
    if name == "Negative":
        frames = 255 - frames
    corner, dot = frames[:, 2, 2], frames[:, 15].reshape(-1, 3)
    assert (corner == 30).all()
    assert dot.max(0).tolist() == ([DOT[0]] * 3 if name in GRAY else list(DOT))


CHAIN = {
    "train-vae": ("--steps", "20", "--latent", "4", "--batch", "16", "--set", "validate_every=10"),
    "train-mdnrnn": ("--steps", "20", "--batch", "8", "--hidden", "16", "--set", "validate_every=10"),
    "train-controller": ("--max-generations", "2", "--popsize", "4", "--set", "validate_every=2",
                         "--set", "validation_episodes=2"),
    "dream": ("--dreams", "2", "--max-steps", "12"),
    "evaluate": ("--episodes", "3"),
}  # fmt: skip


@pytest.mark.slow
def test_the_limit_of_collecting_ends_the_episodes_of_every_later_stage(tmp_path: Path) -> None:
    collect(tmp_path, "Endless")
    env, folder = ("--env", "tests.odd_envs:Endless-v0"), tmp_path / "runs" / "tests.odd_envs-Endless-v0"
    for stage in ("train-vae", "train-mdnrnn", "train-controller"):
        run(tmp_path, stage, *env, *CHAIN[stage])
    run(tmp_path, "dream", *env, "--dreams", "2")
    fidelity = json.loads((folder / "dream" / "fidelity.json").read_text())
    assert max(fidelity["dream_lengths"]) <= max(fidelity["real_lengths"]) == STEPS

    def score(*options: str) -> Any:
        return json.loads(run(tmp_path, "evaluate", *env, "--episodes", "3", *options, "--json").stdout)["metrics"]

    metrics = score()
    assert metrics["returns"] == [STEPS] * 3
    assert metrics["random"]["mean"] == score("--agent", "random")["mean"] == STEPS
    assert f"every episode is truncated after {STEPS} actions" in metrics["protocol"]
    assert score("--set", "max_steps=5")["returns"] == [5] * 3
    assert score("--set", "max_steps=50")["returns"] == [STEPS] * 3


@pytest.mark.parametrize("name", ["CartPole", "tests.tiny:Tiny-v0"])
def test_an_environment_with_a_limit_of_its_own_keeps_it_in_later_stages(name: str) -> None:
    collection, recipe = describe(EnvConfig(name, 32), "auto", 0, max_steps=5)
    assert (collection.max_steps, collection.env.max_steps, "max_steps" in recipe["env"]) == (5, 0, False)


def test_a_dreamer_plays_the_limit_and_the_frames_of_its_data(tmp_path: Path) -> None:
    collect(tmp_path, "Endless")
    data = tmp_path / "data" / "tests.odd_envs-Endless-v0.zarr"
    session = Session(env="tests.odd_envs:Endless-v0", data=(data,))
    config, _ = playing_env(session.env, DreamerSettings(size=32, max_steps=50), session.data, session.runtime)
    assert (config.max_steps, config.frames) == (STEPS, "render")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Shared", "share state (stepping one changes what another returns); each process plays one at a time"),
        ("Single", "share state (a second one fails: tests.odd_envs:Single-v0 cannot be built; its constructor raised"),
        ("SeedsProcess", "share state (stepping one changes what another returns); each process plays one at a time"),
        ("SeedsInVain", ""),
        ("Drifting", "does not repeat an episode with the same seed"),
        ("Plain", ""),
    ],
)
def test_instances_that_disturb_each_other_are_recorded_and_told(name: str, said: str) -> None:
    _open.cache_clear()  # of the environment that an earlier test has played in this process
    lines: list[str] = []
    config = EnvConfig(f"tests.odd_envs:{name}-v0", 32)
    collection, recipe = describe(config, "auto", 0, 0, log=lines.append)
    one = name in ("Shared", "Single", "SeedsProcess")
    assert collection.env.envs_per_process == recipe["env"].get("envs_per_process", 0) == int(one)
    assert said in " ".join(lines)
    assert bool(lines) == bool(said)
    chosen, recipe = describe(replace(config, envs_per_process=8), "auto", 0, 0, log=lines.append)
    assert (chosen.env.envs_per_process, "envs_per_process" in recipe["env"]) == (0, False)


def test_a_process_with_one_environment_plays_what_eight_would(chain: Path) -> None:
    spec = Session(TINY, run=chain / "runs" / SLUG).workspace
    jobs = [EpisodeJob(key, seed=key) for key in range(5)]

    def returns(env: EnvConfig) -> list[float]:
        results = play_jobs(replace(trained_policy(spec, random_share=0.0, latest=False), env=env), None, jobs)
        return [result.episode_return for result in sorted(results, key=lambda result: result.key)]

    assert returns(EnvConfig(TINY, 32, envs_per_process=1)) == returns(EnvConfig(TINY, 32))
    shared = EnvConfig("tests.odd_envs:Shared-v0", 32)
    assert returns(shared) != [STEPS] * 5
    assert returns(replace(shared, envs_per_process=1)) == [STEPS] * 5


def test_a_dreamer_of_an_environment_whose_instances_share_state_plays_one() -> None:
    name, runtime = "tests.odd_envs:Shared-v0", Runtime()
    with pytest.raises(UsageProblem, match=r"can have 1 instance .* plays 2; give --num-envs 1"):
        playing_env(name, DreamerSettings(num_envs=2), (), runtime)
    config, _ = playing_env(name, DreamerSettings(num_envs=1), (), runtime)
    assert config.envs_per_process == 1  # its score would have eight
    with pytest.raises(UsageProblem, match="leave out --target-return"):
        playing_env(name, DreamerSettings(num_envs=1, target_return=1.0), (), runtime)


@pytest.mark.slow
def test_episodes_of_seven_steps_go_through_a_curriculum(tmp_path: Path) -> None:
    done = run(tmp_path, "curriculum", "--envs", "Catch", "--config", small_config(tmp_path))
    assert "failed" not in done.stdout + done.stderr
    assert (tmp_path / "runs" / "Catch" / "dream" / "dream.gif").is_file()


@pytest.mark.slow
def test_a_reward_that_becomes_nan_later_ends_the_search_and_the_evaluation_in_one_sentence(tmp_path: Path) -> None:
    collect(tmp_path, "LaterNan")
    env = ("--env", "tests.odd_envs:LaterNan-v0")
    for stage in ("train-vae", "train-mdnrnn"):
        run(tmp_path, stage, *env, *CHAIN[stage])
    sentence = "LaterNan-v0 returned the reward nan at step 0 of the episode with seed"
    done = outcome(tmp_path, "train-controller", *env, *CHAIN["train-controller"], ODD_NAN="1")
    assert (done.returncode, sentence in done.stderr) == (70, True), done.stderr
    run(tmp_path, "train-controller", *env, *CHAIN["train-controller"])
    for stage in ("dream", "evaluate"):
        done = outcome(tmp_path, stage, *env, *CHAIN[stage], ODD_NAN="1")
        assert (done.returncode, sentence in done.stderr) == (70, True), done.stderr


def test_returns_that_are_shown_as_zero_are_told(tmp_path: Path) -> None:
    words = ("collect", "--episodes", "2", "--size", "32", "--env")
    assert "the returns are at most 2.4e-07 in size" in run(tmp_path, *words, "tests.odd_envs:Faint-v0").stderr
    assert "in size" not in run(tmp_path, *words, "tests.odd_envs:Plain-v0").stderr


def test_frames_say_where_they_come_from(tmp_path: Path) -> None:
    words = ("collect", "--episodes", "1", "--size", "32", "--env")
    assert "frames are the environment's observations" in run(tmp_path, *words, "tests.odd_envs:Observed-v0").stderr
    assert "frames are what its render() returns" in run(tmp_path, *words, "tests.odd_envs:Symbols-v0").stderr


def test_a_chosen_source_of_frames_is_recorded_and_kept_by_later_stages(tmp_path: Path) -> None:
    env = ("--env", "tests.odd_envs:Negative-v0")
    words = ("collect", *env, "--episodes", "3", "--size", "32", "--frames", "render")
    assert "frames are what its render() returns" in run(tmp_path, *words).stderr
    dataset = Dataset.open(tmp_path / "data" / "tests.odd_envs-Negative-v0.zarr")
    assert FrameReader(dataset).read(0, 1)[0, 2, 2].tolist() == [30, 30, 30]
    assert (dataset.recipe["frames"], "frames" in dataset.recipe["env"]) == ("render", False)
    run(tmp_path, "train-vae", *env, *CHAIN["train-vae"])
    artifact = load(tmp_path / "runs" / "tests.odd_envs-Negative-v0" / "vae", "vae", "")
    assert read_env(artifact).make().reset(seed=0)[0][2, 2].tolist() == [30, 30, 30]


def test_a_choice_of_frames_that_cannot_be_is_one_sentence() -> None:
    for config, sentence in (
        (EnvConfig("tests.odd_envs:Plain-v0", frames="observation"), "are a Box of shape (4,), no picture; use"),
        (EnvConfig("tests.odd_envs:NoNumbers-v0", frames="observation"), "are a Box of shape (0,), no picture; use"),
        (EnvConfig("tests.odd_envs:Dict-v0", frames="observation"), "are a Dict, no picture; use --frames render"),
        (EnvConfig("tests.odd_envs:Blind-v0", frames="render"), "it does not render, and --frames is render; add"),
        (EnvConfig("tests.odd_envs:FourFrames-v0", frames="observation"), "(4, 32, 48), a stack of 4 gray frames; let"),
        (EnvConfig("Pong", frames="observation"), "--render exact draws Pong itself; add --render gymnasium"),
    ):
        with pytest.raises(UsageProblem, match=re.escape(sentence)):
            describe(config, "auto", 0, 0)


def test_a_small_observation_that_is_chosen_is_stored() -> None:
    config = EnvConfig("tests.odd_envs:Symbols-v0", 32, frames="observation")
    assert (config.make().reset(seed=0)[0] == 1).all()


def test_what_an_environment_prints_does_not_reach_stdout(tmp_path: Path) -> None:
    env = ("--env", "tests.odd_envs:Prints-v0")
    words = command("collect", *env, "--episodes", "3", "--size", "32", "--json")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=environment(), check=True)
    assert json.loads(done.stdout)["status"] == "created"
    assert "noise of the simulator" in done.stderr
    assert "noise of its library" in done.stderr


def test_the_length_of_an_episode_counts_the_environments_steps(tmp_path: Path) -> None:
    """Every step returns 1, so return and length agree, though the last action ends an episode early."""
    config = EnvConfig("tests.odd_envs:Plain-v0", 32, action_repeat=5)
    (result,) = play(RandomPolicy(ActionSpace(count=3)), [config.make()], [EpisodeJob(0, seed=1)])
    assert (result.length, result.env_steps, result.episode_return) == (3, STEPS, STEPS)
    score = score_agent(Runtime(lambda: 0.0), random_agent(config), "Plain", 3, "Plain")
    assert score["mean_length"] == score["mean"] == STEPS


def test_what_an_environment_raises_while_it_is_scored_names_it() -> None:
    config = EnvConfig("tests.odd_envs:LateError-v0", 32)
    with pytest.raises(WorkerFailed, match=r"^playing tests.odd_envs:LateError-v0 raised RuntimeError: out of fuel\.$"):
        score_agent(Runtime(lambda: 0.0), random_agent(config), "LateError", 3, "LateError")


def test_the_random_policy_plays_what_steps_in_its_render_mode_alone() -> None:
    config = EnvConfig("tests.odd_envs:DrawsInSteps-v0", 32)
    score = score_agent(Runtime(lambda: 0.0), random_agent(config), "DrawsInSteps", 3, "DrawsInSteps")
    assert score["returns"] == [STEPS] * 3
    assert EnvConfig("tests.odd_envs:Observed-v0", 32).make_unrendered().render_mode is None


def test_collected_steps_are_those_of_the_environment_when_parts_are_extended_too(tmp_path: Path) -> None:
    words = ("--env", "tests.odd_envs:Plain-v0", "--size", "32", "--set", "action_repeat=5")
    for episodes in ("2", "3"):
        run(tmp_path, "collect", *words, "--episodes", episodes)
    dataset = Dataset.open(tmp_path / "data" / "tests.odd_envs-Plain-v0.zarr")
    assert dataset.rows == 3 * (-(-STEPS // 5) + 1)
    assert dataset.env_steps == dataset.table["return"].sum() == 3 * STEPS
    assert dataset.first(2).env_steps == 2 * STEPS
