"""Every odd environment that can be stored goes through every stage, and all that is shown was really paid."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import run
from tests.odd_envs import VARIANTS, Odd
from tests.test_odd_envs import CHAIN, GRAY, REFUSED, collect
from wm.envs.resize import AreaResize
from wm.evaluation.dream_fidelity import REAL_EPISODES
from wm.seeding import episode_seed
from wm.stats import Score

IN_THE_SUITE = {"IntegerBox"}
NAMES = [
    pytest.param(name, marks=() if name in IN_THE_SUITE else pytest.mark.slow)
    for name in sorted(VARIANTS.keys() - REFUSED.keys() - {"Single"})  # which needs a process for every stage
]
SHOWN = {  # what a picture shows, where it is another
    **dict.fromkeys(GRAY, lambda picture: picture[..., :1].repeat(3, axis=2)),
    "Negative": lambda picture: 255 - picture,
    "SameMemory": lambda picture: picture[:, :32],
}
ARRIVED = {  # what the environment receives for a stored action, where it is another
    "Shifted": lambda action: action + 5,
    "IntegerBox": lambda action: np.clip(np.rint(action), 0, 3).astype(np.int32),
    "SquareBox": lambda action: action.reshape(2, 2),
    "HalfBox": lambda action: action.astype(np.float16),
}


@dataclass
class Played:
    """An episode as the environment saw it: T + 1 pictures, T actions and T rewards."""

    seed: int
    pictures: list[Any]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def paid(self) -> float:
        """Its return."""
        return math.fsum(self.rewards)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Played]]:
    """Every episode that an odd environment plays, while its rewards tell states and actions apart."""
    episodes: list[Played] = []
    reset, step = Odd.reset, Odd.step

    def recorded_reset(self: Any, *, seed: int, options: Any = None) -> Any:
        result = reset(self, seed=seed, options=options)
        self.played = Played(seed, [self.picture()])
        episodes.append(self.played)
        return result

    def recorded_step(self: Any, action: Any) -> Any:
        result = step(self, action)
        self.played.pictures.append(self.picture())
        self.played.actions.append(np.array(action))
        # The step of ChangesAction calls this one and pays the action's first number.
        self.played.rewards.append(float(action[0] if type(self).__name__ == "ChangesAction" else result[1]))
        return result

    monkeypatch.setattr(Odd, "reset", recorded_reset)
    monkeypatch.setattr(Odd, "step", recorded_step)
    monkeypatch.setattr(Odd, "reward", lambda self, action: self.x / 4 + float(np.sum(action)) / 8)
    return episodes


def require_stored(name: str, folder: Path, played: list[Played]) -> None:
    """The exported episodes are what was played."""
    real = {episode.seed: episode for episode in played}
    show = SHOWN.get(name, np.asarray)
    shrink = AreaResize(*show(played[0].pictures[0]).shape, 32)
    for path in folder.iterdir():
        with np.load(path) as stored:
            episode = real[int(stored["seed"])]
            assert np.array_equal(stored["frames"], [shrink(show(picture)) for picture in episode.pictures])
            arrived = [ARRIVED.get(name, np.asarray)(action) for action in stored["actions"][:-1]]
            assert np.allclose(arrived, episode.actions)
            assert np.array_equal(stored["rewards"], np.float32([*episode.rewards, 0]))
            assert bool(stored["truncated"]) == (not stored["terminated"]) == (name == "Endless")


def require_paid(returns: list[float], played: list[Played]) -> None:
    """These returns, in any order, are those of exactly the episodes that were played."""
    assert sorted(returns) == pytest.approx(sorted(episode.paid for episode in played))


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_is_right_on_what_is_stored(name: str, played: list[Played], tmp_path: Path) -> None:
    env, runs = f"tests.odd_envs:{name}-v0", tmp_path / "runs" / f"tests.odd_envs-{name}-v0"

    def train(stage: str) -> None:
        played.clear()
        done = run(tmp_path, stage, "--env", env, *CHAIN[stage])
        assert " nan" not in done.stdout.lower(), done.stdout

    def read(path: str) -> Any:
        return json.loads((runs / path).read_text())

    dataset = collect(tmp_path, name)
    exported = run(tmp_path, "export", str(dataset.path), "--to", "npz").stdout.strip()
    require_stored(name, tmp_path / exported, played)
    train("train-vae")
    train("train-mdnrnn")
    train("train-controller")
    lines = [json.loads(line) for line in (runs / "controller" / "generations.jsonl").read_text().splitlines()]
    require_paid([paid for line in lines for key in ("returns", "validation") for paid in line.get(key, [])], played)
    assert read("controller/manifest.json")["metrics"]["env_steps"] == sum(len(episode.actions) for episode in played)
    train("dream")
    fidelity = read("dream/fidelity.json")
    compared = {episode_seed("validation", 0, "fidelity", number) for number in range(REAL_EPISODES)}
    paid = [episode.paid for episode in played if episode.seed in compared]
    assert REAL_EPISODES * sum(fidelity["real"]) + sum(fidelity["real_returns"]) == pytest.approx(sum(paid))
    assert {*np.float32(fidelity["real_returns"])} <= {*np.float32(paid)}
    assert {*fidelity["real_lengths"]} == {len(episode.actions) for episode in played}
    train("evaluate")
    agent, baseline = (read(f"evaluation/{of}/score.json") for of in ("controller", "random"))
    require_paid([*agent["returns"], *baseline["returns"]], played)
    page = Path(tmp_path, run(tmp_path, "report", str(runs)).stdout.split()[0]).read_text()
    for score in (agent, baseline):
        assert str(Score.of(np.array(score["returns"]))) in page
    assert re.search(r"\bnan\b", re.sub(r"base64,[^\"']*", "", page), re.I) is None
    for path in (path for path in runs.rglob("*") if path.suffix in (".gif", ".png")):
        with Image.open(path) as picture:
            picture.load()
