import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.session import Session
from wm.evolution.cma_es import Search, replay
from wm.evolution.evolve import Evolution, logged
from wm.evolution.stopping import LOG
from wm.settings import ControllerSettings


def test_a_torn_line_of_the_log_is_dropped_from_the_file_too(tmp_path: Path) -> None:
    whole = json.dumps({"generation": 1}) + "\n"
    (tmp_path / LOG).write_text(whole + '{"generation": 2, "cand')
    assert [found["generation"] for found in logged(tmp_path)] == [1]
    assert (tmp_path / LOG).read_text() == whole
    assert logged(tmp_path / "nowhere") == []


class Hill:
    """Candidates are worth what the dream or reality says of their first parameter."""

    def __init__(self, reality: float = 1.0, pause: float = 0.0) -> None:
        self.reality, self.pause = reality, pause

    def dreamt(self, candidates: Any, number: int, temperature: float, episodes: int = 0) -> Any:
        return candidates[:, 0].astype(float)

    def real(self, candidates: Any, number: int) -> Any:
        time.sleep(self.pause)
        return candidates[:, 0] * self.reality, 10

    def validation(self, mean: Any) -> Any:
        return np.array([1.0, 1.1]) * float(mean[0]) * self.reality, 20

    def dreamt_validation(self, mean: Any, temperature: float) -> Any:
        return np.array([1.0, 1.1]) * float(mean[0])


def evolve(folder: Path, hill: Hill, **chosen: Any) -> Evolution:
    settings = ControllerSettings(**({"popsize": 6, "validate_every": 2, "validation_episodes": 2} | chosen))
    evolution = Evolution(Session("Pong"), settings, hill, 1.0, folder)  # type: ignore[arg-type]
    evolution.run(Search(np.zeros(3, np.float32), 6, 0.3, 0), warm=False)
    return evolution


def test_a_dream_that_lies_is_no_longer_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evolution = evolve(tmp_path, Hill(reality=-1.0), in_="mixed", max_generations=20)
    where = [line["in"] for line in evolution.history.lines]
    assert not evolution.trusted
    assert where == sorted(where)  # dreams first, and after the last of them reality
    assert 4 < where.count("dream") < 20
    assert "the dream is being exploited" in capsys.readouterr().err
    assert evolve(tmp_path, Hill(), in_="mixed", max_generations=20).trusted is False  # replayed, it decides the same


def test_a_dream_that_tells_the_truth_is_trusted_to_the_end(tmp_path: Path) -> None:
    evolution = evolve(tmp_path, Hill(), in_="mixed", max_generations=20)
    assert evolution.trusted
    assert evolution.history.env_steps == 10 * 20  # the validations


def test_in_the_dream_alone_reality_is_not_touched(tmp_path: Path) -> None:
    assert evolve(tmp_path, Hill(), in_="dream", max_generations=6).history.env_steps == 0


def test_it_ends_when_the_target_is_reached(tmp_path: Path) -> None:
    evolution = evolve(tmp_path, Hill(), max_generations=50, target_return=0.5)
    assert evolution.ended() == "target"
    assert evolution.history.generation < 50
    assert evolution.history.generation % 2 == 0  # a validation said so


def test_it_ends_when_its_time_is_over_with_a_validation(tmp_path: Path) -> None:
    evolution = evolve(tmp_path, Hill(pause=0.05), max_generations=500, max_hours=0.3 / 3600, validate_every=100)
    assert evolution.ended() == "hours"
    assert "validation" in evolution.history.lines[-1]
    assert 2 < evolution.history.generation < 10


class Uneven(Hill):
    """A hill that also tells what evens it out; counts how often it was asked."""

    asked = 0

    def basis(self, mean: Any) -> Any:
        self.asked += 1
        return np.random.default_rng(self.asked).normal(size=(3, 3)), 50


def test_a_search_that_was_evened_out_goes_on_with_the_same_candidates(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"even_after": 3, "even_times": 2, "validate_every": 4}
    whole, cut = Uneven(), Uneven()
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    expected = evolve(tmp_path / "whole", whole, max_generations=10, **chosen)
    evolve(tmp_path / "cut", cut, max_generations=7, **chosen)
    cut.asked = 7  # asked again, it would tell something else
    found = evolve(tmp_path / "cut", cut, max_generations=10, **chosen)
    assert (whole.asked, cut.asked) == (2, 7)
    assert [line["candidates"] for line in found.history.lines] == [
        line["candidates"] for line in expected.history.lines
    ]
    assert np.array_equal(found.history.means[-1], expected.history.means[-1])
    assert expected.history.env_steps == 10 * 10 + 3 * 20 + 2 * 50


def test_candidates_are_others_once_the_search_is_evened_out(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "evened").mkdir()
    plain = evolve(tmp_path / "plain", Uneven(), max_generations=6)
    evened = evolve(tmp_path / "evened", Uneven(), max_generations=6, even_after=4)
    names = [[line["candidates"] for line in each.history.lines] for each in (plain, evened)]
    assert names[0][:4] == names[1][:4]
    assert names[0][4] != names[1][4]


def test_the_start_that_validates_best_goes_on_and_a_resumed_race_has_the_same_winner(tmp_path: Path) -> None:
    race = {"starts": 3, "start_generations": 2, "validate_every": 100, "max_generations": 9}
    whole = evolve(tmp_path, Hill(), **race).history
    scores = {line["generation"]: np.mean(line["validation"]) for line in whole.validated}
    assert list(scores) == [2, 4, 6, 9]
    winner = max((2, 4, 6), key=lambda end: scores[end])
    means = dict(zip([line["generation"] for line in whole.lines], whole.means, strict=True))
    starts = [means[end - 1] for end in (2, 4, 6)]
    assert len({mean.tobytes() for mean in starts}) == 3  # each by chance of its own

    alone = Search(np.zeros(3, np.float32), 6, 0.3, 0)
    for start in range(3):
        for line in whole.lines[2 * start : 2 * start + 2]:
            replay(alone, line["candidates"], line["returns"])
        if start < 2:
            alone.restart()
    assert winner != 6  # the last would go on anyway
    alone.continue_candidate_search(winner // 2 - 1)
    assert np.array_equal(alone.mean, means[winner])
    replay(alone, whole.lines[6]["candidates"], whole.lines[6]["returns"])

    lines = (tmp_path / LOG).read_text().splitlines(keepends=True)
    for kept in (3, 5, 7):
        (tmp_path / LOG).write_text("".join(lines[:kept]))
        again = evolve(tmp_path, Hill(), **race).history
        assert [line["candidates"] for line in again.lines] == [line["candidates"] for line in whole.lines]
