"""`wm train-controller --algo ppo --in dream` on a tiny world, through the real commands."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import SLUG, TINY, outcome, run
from tests.policy_gradient.test_training import metrics_of, weights_of, with_data_and_inputs, with_inputs
from tests.sharing.conftest import reseal
from wm.artifacts.runs import Artifact, load
from wm.artifacts.workspace import Workspace
from wm.episodes.dataset import Dataset
from wm.episodes.latents import read_latents
from wm.evaluation.event_rates import event_warning, judge_events
from wm.evolution.fitness import Fitness
from wm.evolution.history import History
from wm.evolution.search_log import LOG, read_log
from wm.evolution.transfer import load_transfer_source
from wm.models.controller import ControllerConfig
from wm.pipeline import train_controller
from wm.policy_gradient.dream_rollouts import DreamSource
from wm.policy_gradient.earlier import earlier_policy
from wm.policy_gradient.imitation import imitated_policy
from wm.policy_gradient.network import inputs_along
from wm.policy_gradient.sources import Experience
from wm.pretrained import load_controller, load_mdnrnn
from wm.report.document import Chart, Heading
from wm.report.rounds import read_rounds, rounds_section
from wm.report.run_summary import RunSummary, find_runs
from wm.stats import Score
from wm.training import weights

WORDS = ("train-controller", "--env", TINY, "--algo", "ppo", "--in", "dream", "--set", "units=32",
         "--set", "num_envs=64", "--set", "rollout_steps=16")  # fmt: skip
SHORT = (*WORDS, "--set", "max_dream_steps=7000", "--set", "validate_steps=3000", "--set", "validation_episodes=2",
         "--set", "memory=trained", "--set", "previous_action=true", "--set", "minibatch=256",
         "--set", "sticky_share=0.25")  # fmt: skip


@pytest.fixture(scope="module")
def trained(chain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with V, an M trained on its own rollouts, and a C that has learned a little in its dreams."""
    folder = with_data_and_inputs(chain, tmp_path_factory.mktemp("trained-in-dream"))
    shutil.rmtree(folder / "runs" / SLUG / "mdnrnn")
    run(folder, "train-mdnrnn", "--env", TINY, "--network", "rollout", "--hidden", "0", "--batch", "48",
        "--steps", "130", "--set", "units=64", "--set", "warm_up=2", "--set", "rollout_steps=8",
        "--set", "learning_rate=0.007", "--set", "validate_every=130")  # fmt: skip
    run(folder, *WORDS, "--set", "max_dream_steps=6000", "--set", "learning_rate=0.005",
        "--set", "validate_steps=2000", "--set", "validation_episodes=8")  # fmt: skip
    return folder


@pytest.mark.slow
def test_it_learns_in_the_dream_alone_and_is_judged_in_reality(trained: Path, tmp_path: Path) -> None:
    trained = with_data_and_inputs(trained, tmp_path)
    run(trained, *WORDS, "--set", "max_dream_steps=18000", "--set", "learning_rate=0.005",
        "--set", "validate_steps=6000", "--set", "validation_episodes=8")  # fmt: skip
    score = json.loads(run(trained, "evaluate", "--env", TINY, "--episodes", "40", "--json").stdout)["metrics"]
    assert score["mean"] - score["ci95"] > score["random"]["mean"] + score["random"]["ci95"] + 3
    folder = trained / "runs" / SLUG / "controller"
    metrics, lines = metrics_of(folder), read_log(folder)
    assert (metrics["in"], metrics["ended"], metrics["trusted"]) == ("dream", "dream_steps", True)
    assert {line["in"] for line in lines} == {"dream"}
    assert all(len(line["returns"]) >= 64 for line in lines)  # a return for each dream
    assert 18_000 <= metrics["dream_steps"] == len(lines) * 64 * 16 < 20_000
    validations = {line["generation"]: float(np.mean(line["validation"])) for line in lines if "validation" in line}
    assert len(validations) == 3
    best = validations[metrics["best_generation"]]
    assert best == max(validations.values()) == metrics["validation_return_likeliest"]
    assert [line["generation"] for line in lines if line["env_steps"]] == list(validations)
    real = sum(line["env_steps"] for line in lines)
    assert real < metrics["env_steps"] <= 4 * 8 * 24  # of validations alone, the last one of the likeliest actions


def test_events_are_judged_in_dreams_as_it_has_them(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[tuple[float, int]] = []

    def judge(model: Any, latents: Any, episodes: Any, temperature: float, steps: int) -> dict[str, Any]:
        judged.append((temperature, steps))
        rates = judge_events(model, latents, episodes, temperature, steps)["rates"]
        rates["end"] |= {"dream": 3 * rates["end"]["real"], "events": 99.0}
        return {"rates": rates, "warning": event_warning(rates, temperature)}

    monkeypatch.setattr(train_controller, "judge_events", judge)
    short = (*WORDS, "--set", "max_dream_steps=1024", "--set", "validation_episodes=2")
    done = run(with_inputs(trained, tmp_path), *short, "--temperature", "0.25")
    assert judged == [(0.25, 16)]
    assert re.search(r"warning: Dreams at temperature 0\.25 have .*ends .* per 1,000 steps; train M", done.stderr)
    run(tmp_path, *short, "--temperature", "0.25")  # up to date: nothing is trained in them
    assert len(judged) == 1


@pytest.mark.slow
def test_the_other_commands_take_its_controller(trained: Path) -> None:
    shown = json.loads(run(trained, "dream", "--env", TINY, "--dreams", "4", "--max-steps", "20", "--json").stdout)
    assert shown["metrics"]["policies"] == len(metrics_of(trained / "runs" / SLUG / "controller")["means"])
    run(trained, "report", f"runs/{SLUG}", "--out", "report.html")
    text = (trained / "report.html").read_text()
    assert "Validation in the real environment, whole episodes" in text
    assert "Policy in the dream, training episodes" in text
    run(trained, "compare", f"runs/{SLUG}", "--out", "plot.png")
    plan = json.loads(run(trained, *SHORT, "--dry-run", "--json").stdout)["plan"][0]
    assert "7,000 dream steps by policy gradient (dream)" in plan["what"]
    assert 0 < plan["seconds"][0] < plan["seconds"][1] < 120


def break_in_the_middle(patch: pytest.MonkeyPatch) -> None:
    """End a training in its fifth iteration."""
    play = DreamSource.play

    def broken(source: DreamSource, parameters: Any, iteration: int) -> Experience:
        if iteration == 5:
            raise OSError("the machine went away")
        return play(source, parameters, iteration)

    patch.setattr(DreamSource, "play", broken)


def test_a_broken_training_resumes_bit_for_bit(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, broken = (with_inputs(trained, tmp_path / name) for name in ("whole", "broken"))
    run(whole, *SHORT)
    break_in_the_middle(monkeypatch)
    assert outcome(broken, *SHORT).returncode != 0
    monkeypatch.undo()
    assert "resumes at iteration 3" in run(broken, *SHORT).stderr
    assert weights_of(whole) == weights_of(broken)
    logs = [read_log(folder / "runs" / SLUG / "controller") for folder in (whole, broken)]
    assert [line | {"seconds": 0} for line in logs[0]] == [line | {"seconds": 0} for line in logs[1]]


@pytest.mark.slow
def test_it_plays_and_learns_by_one_thread(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play, threads = DreamSource.play, set[int]()

    def counted(source: DreamSource, parameters: Any, iteration: int) -> Experience:
        threads.add(torch.get_num_threads())
        return play(source, parameters, iteration)

    monkeypatch.setattr(DreamSource, "play", counted)
    torch.set_num_threads(3)
    try:
        run(with_inputs(trained, tmp_path), *SHORT)
        assert (threads, torch.get_num_threads()) == ({1}, 3)
    finally:
        torch.set_num_threads(1)


def test_a_c_that_exploits_the_dream_ends_the_training(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(History, "exploited", lambda history: len(history.validated) == 2)
    done = run(with_inputs(trained, tmp_path), *SHORT)
    assert "warning: C exploits the dream" in done.stderr
    assert "; C exploits the dream" in done.stdout
    metrics = metrics_of(tmp_path / "runs" / SLUG / "controller")
    assert (metrics["ended"], metrics["trusted"]) == ("exploited", False)
    assert metrics["dream_steps"] == 6 * 64 * 16


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--in", "real", "--set", "max_dream_steps=5"),
            "--set max_dream_steps is 5, which means nothing with --algo ppo --in real; leave it out, or",
        ),
        (
            ("--in", "real", "--set", "sticky_share=0.25"),
            "--set sticky_share is 0.25, which means nothing with --algo ppo --in real; leave it out, or",
        ),
        (
            ("--in", "dream", "--set", "render=fast"),
            "--set render is fast, which means nothing with --algo ppo --in dream; leave it out, or use --in real",
        ),
        (("--in", "mixed"), "--algo ppo learns in one place; use --in real or --in dream, or --algo cma"),
        (
            ("--in", "dream", "--temperature", "auto"),
            "--temperature auto compares candidates; give a number, or use --algo cma",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    done = outcome(tmp_path, "train-controller", "--env", TINY, "--algo", "ppo", *words)
    assert done.returncode == 64
    assert sentence in done.stderr


@pytest.fixture(scope="module")
def continued(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second round of the trained folder, in which C has gone on learning."""
    folder = with_inputs(trained, tmp_path_factory.mktemp("continued"))
    shutil.copytree(trained / "data", folder / "data")
    shutil.copytree(trained / "runs" / SLUG / "controller", folder / "runs" / SLUG / "controller")
    shutil.copytree(with_inputs(trained, tmp_path_factory.mktemp("inputs")) / "runs" / SLUG, folder / "runs" / NEXT)
    run(folder, *CONTINUED)
    return folder


def tensors_of(artifact: Path) -> dict[str, torch.Tensor]:
    return weights.load_tensors((artifact / "weights.safetensors").read_bytes(), "")


NEXT = f"{SLUG}.round2"
CONTINUED = (*WORDS, "--run", f"runs/{NEXT}", "--init-from", f"runs/{SLUG}", "--set", "max_dream_steps=7000",
             "--set", "validate_steps=3000", "--set", "validation_episodes=8")  # fmt: skip


def test_a_training_continues_with_actor_and_critic_of_another_run(continued: Path) -> None:
    first, second = (continued / "runs" / name / "controller" for name in (SLUG, NEXT))
    before, after = load_controller(first, ""), load_controller(second, "")
    metrics = metrics_of(second)
    distances = [np.abs(after.means[0] - policy).max() for policy in (before.parameters, before.means[0])]
    assert distances[0] < distances[1] / 2  # one update after the other's best policy
    assert metrics["env_steps_before"] == metrics_of(first)["env_steps"]
    assert metrics["validation_return"] >= metrics_of(first)["validation_return"]
    if metrics["earlier_is_best"]:
        assert np.array_equal(after.parameters, before.parameters)


@pytest.mark.slow
def test_on_another_v_the_earlier_policy_is_imitated_and_its_cost_counted(continued: Path, tmp_path: Path) -> None:
    """As in a round that trains V anew."""
    folder = tmp_path / "all"
    shutil.copytree(continued, folder)
    again = folder / "runs" / NEXT
    for name in ("vae", "mdnrnn", "controller", "latents"):
        shutil.rmtree(again / name, ignore_errors=True)
    run(folder, "train-vae", "--env", TINY, "--run", f"runs/{NEXT}", "--steps", "20", "--set", "latent=7")
    run(folder, "train-mdnrnn", "--env", TINY, "--run", f"runs/{NEXT}", "--network", "rollout", "--hidden", "0",
        "--batch", "48", "--steps", "20", "--set", "warm_up=2", "--set", "rollout_steps=8")  # fmt: skip
    refused = outcome(folder, *CONTINUED)
    assert "has another V than" in refused.stderr
    run(folder, *CONTINUED, "--set", "imitate=true")
    first = folder / "runs" / SLUG
    earlier, metrics = metrics_of(first / "controller"), metrics_of(again / "controller")
    spent = sum(load(first / name, name, "").wall_seconds for name in ("vae", "mdnrnn"))
    spent += earlier["seconds"] + metrics_of(first / "mdnrnn")["encoding_seconds"]
    assert metrics["seconds_before"] == pytest.approx(spent)
    assert metrics["env_steps_before"] == earlier["env_steps"]
    assert not metrics["earlier_is_best"]
    source = load_transfer_source(str(first), TINY)
    learned, mdnrnn = load_controller(again / "controller", ""), load_mdnrnn(again / "mdnrnn", "")
    controller, workspace = learned.model, Workspace(TINY, again, ())
    pupil = imitated_policy(source, workspace, mdnrnn, learned.config, controller, 0)
    latents = [read_latents(path / "latents") for path in (first, again)]
    old, new = (inputs_along(c, None, of_v, zip(of_v.starts, of_v.ends, strict=True))
                for c, of_v in zip((source.controller.model, controller), latents, strict=True))  # fmt: skip
    of_both = (
        (source.controller.model, source.controller.parameters, old),
        (controller, pupil.parameter_vector(), new),
    )
    before, after = (c.pack(torch.as_tensor(parameters), len(x))(x).argmax(-1) for c, parameters, x in of_both)
    assert (before == after).float().mean() > 0.8  # by chance: a third
    alone = outcome(folder, *WORDS, "--set", "imitate=true")
    assert "takes the policy of an earlier run; add --init-from, or leave it out" in alone.stderr


def test_an_earlier_policy_stays_the_best_if_none_validates_better(
    continued: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(continued, tmp_path / "all")
    monkeypatch.setattr(Fitness, "validation_returns", lambda *_: (np.zeros(8), 1))
    done = run(tmp_path / "all", *CONTINUED, "--set", "entropy=0.5")
    assert "best policy still an earlier run's" in done.stdout
    folders = [tmp_path / "all" / "runs" / name / "controller" for name in (SLUG, NEXT)]
    assert metrics_of(folders[1])["earlier_is_best"]
    earlier, later = (load_controller(folder, "") for folder in folders)
    assert np.array_equal(earlier.parameters, later.parameters)
    assert earlier.config == later.config
    assert not np.array_equal(later.latest, later.parameters)
    source = load_transfer_source(str(folders[1].parent), TINY)
    again = earlier_policy(source, source.mdnrnn, later.config, later.model, 0, 8)  # for a third round
    assert np.array_equal(again.network.parameter_vector(), earlier.parameters)
    assert again.validations is not None


def test_an_earlier_policy_that_acts_better_by_samples_stays_the_best(
    continued: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one that surpasses it where both act likeliest is worse than what was there."""
    shutil.copytree(continued, tmp_path / "all")
    shutil.rmtree(tmp_path / "all" / "runs" / NEXT / "controller")
    folder = tmp_path / "all" / "runs" / SLUG / "controller"
    kept = {"validation_return": 10.0, "validation_return_sampled": 10.0, "validation_return_likeliest": 5.0}
    reseal(folder, metrics=metrics_of(folder) | kept)
    monkeypatch.setattr(Fitness, "validation_returns", lambda *_: (np.full(8, 6.0), 1))
    assert "best policy still an earlier run's" in run(tmp_path / "all", *CONTINUED).stdout
    metrics = metrics_of(tmp_path / "all" / "runs" / NEXT / "controller")
    assert {name: metrics[name] for name in kept} == kept


@pytest.mark.slow
def test_a_continued_training_that_is_broken_resumes_bit_for_bit(
    continued: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(continued, broken)
    whole = tensors_of(broken / "runs" / NEXT / "controller")
    shutil.rmtree(broken / "runs" / NEXT / "controller")
    break_in_the_middle(monkeypatch)
    assert outcome(broken, *CONTINUED).returncode != 0
    monkeypatch.undo()
    assert "resumes at iteration" in run(broken, *CONTINUED).stderr
    resumed = tensors_of(broken / "runs" / NEXT / "controller")
    assert resumed.keys() == whole.keys()
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_a_report_shows_the_rounds_in_the_last_one(continued: Path) -> None:
    runs = continued / "runs"
    assert [path.name for path in find_runs((runs,))] == [NEXT]  # the first is part of it
    assert find_runs((runs / SLUG,)) == [runs / SLUG]
    first, second = read_rounds(runs / NEXT)
    assert (first.number, second.number) == (1, 2)
    lines = read_log(runs / NEXT / "controller")
    assert second.validation == Score.of(np.array(lines[-1]["validation"], float))
    assert second.real_reward == pytest.approx(1000 * sum(lines[-1]["validation"]) / lines[-1]["env_steps"])
    dreamt = lines[-1]["returns"]
    assert second.dreamt_reward == pytest.approx(1000 * sum(dreamt) / (64 * 16))
    shorter = replace(second, lines=[lines[-1] | {"returns": [value / 2 for value in dreamt for _ in range(2)]}])
    assert shorter.dreamt_reward == pytest.approx(second.dreamt_reward)  # twice as many dreams in as many steps
    blocks = list(rounds_section(NEXT, [first, second]))
    assert isinstance(blocks[0], Heading)
    assert blocks[0].text == f"{NEXT}: round by round"
    assert sum(isinstance(block, Chart) for block in blocks) >= 3
    assert not list(rounds_section(SLUG, [first]))
    said = "Round 2 trained V and M anew"
    assert not any(said in getattr(block, "text", "") for block in blocks)
    recipe = second.mdnrnn.manifest["recipe"]
    recipe = recipe | {"inputs": recipe["inputs"] | {"vae": "0" * 64}}
    anew = replace(second, mdnrnn=Artifact(second.mdnrnn.folder, second.mdnrnn.manifest | {"recipe": recipe}))
    assert any(said in getattr(block, "text", "") for block in rounds_section(NEXT, [first, anew]))


def test_a_report_names_what_is_damaged_in_an_earlier_round(continued: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(continued / "runs", runs)
    assert RunSummary.of(runs / NEXT).damaged == []
    log = runs / SLUG / "controller" / LOG
    log.write_bytes(log.read_bytes()[:-9])
    (damaged,) = RunSummary.of(runs / NEXT).damaged
    assert str(log) in damaged


def test_an_evolved_c_cannot_be_continued_by_gradient(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain, tmp_path / "all")
    done = outcome(tmp_path / "all", *WORDS, "--run", f"runs/{NEXT}", "--init-from", f"runs/{SLUG}")
    assert done.returncode == 66  # the new run has no V yet
    shutil.copytree(with_inputs(chain, tmp_path / "inputs") / "runs" / SLUG, tmp_path / "all" / "runs" / NEXT)
    done = outcome(tmp_path / "all", *WORDS, "--run", f"runs/{NEXT}", "--init-from", f"runs/{SLUG}")
    assert done.returncode == 78
    assert "use the same settings, or leave --init-from out" in done.stderr


def test_the_latest_policy_collects_other_episodes_than_the_first_ones(trained: Path, tmp_path: Path) -> None:
    folder = with_inputs(trained, tmp_path)
    shutil.copytree(trained / "runs" / SLUG / "controller", folder / "runs" / SLUG / "controller")
    words = ("collect", "--env", TINY, "--episodes", "6", "--size", "32")
    seeds = []
    for number, policy in enumerate(("random", "controller", "latest")):
        run(folder, *words, "--policy", policy, "--data", f"{number}.zarr")
        seeds.append(set(Dataset.open(folder / f"{number}.zarr").table["seed"].tolist()))
    assert not seeds[0] & seeds[1]


def test_only_a_controller_holds_random_actions_and_only_a_policy_gradient_has_a_latest(
    chain: Path, tmp_path: Path
) -> None:
    words = ("collect", "--env", TINY, "--episodes", "2", "--size", "32", "--data", "x.zarr")
    done = outcome(tmp_path, *words, "--policy", "random", "--set", "random_share=0.1")
    assert done.returncode == 64
    assert "--set random_share is 0.1, but --policy random is no controller; leave it out" in done.stderr
    shutil.copytree(chain / "runs", tmp_path / "runs")
    done = outcome(tmp_path, *words, "--policy", "latest")
    assert done.returncode == 64
    assert "--policy latest needs a C trained with --algo ppo" in done.stderr
    assert not (tmp_path / "x.zarr").exists()


def test_an_earlier_validation_of_other_episodes_does_not_count(continued: Path) -> None:
    source = load_transfer_source(str(continued / "runs" / SLUG), TINY)
    config = source.controller.config

    def validations(config: ControllerConfig = config, seed: int = 0, episodes: int = 8) -> tuple[float, float] | None:
        return earlier_policy(source, source.mdnrnn, config, source.controller.model, seed, episodes).validations

    assert validations() is not None
    assert validations(episodes=9) is None
    assert validations(seed=1) is None
    assert validations(replace(config, memory="untrained")) is None
    source.controller.parameters[0] += 1  # networks of another policy than the one that was validated
    assert validations() is None


def test_a_round_after_the_target_still_trains(continued: Path, tmp_path: Path) -> None:
    shutil.copytree(continued, tmp_path / "all")
    done = run(tmp_path / "all", *CONTINUED, "--target-return", "-1000")
    assert "target reached" in done.stdout
    metrics = metrics_of(tmp_path / "all" / "runs" / NEXT / "controller")
    assert len(read_log(tmp_path / "all" / "runs" / NEXT / "controller")) == len(metrics["means"]) == 1
