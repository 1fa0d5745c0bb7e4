import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wm.artifacts.chained_log import chain_all
from wm.errors import BadData
from wm.evolution.cma_es import Search, replay
from wm.evolution.evolve import Evolution, load_whitener, logged, save_whitener
from wm.evolution.search_log import LOG, WHITENER
from wm.runtime import Runtime
from wm.settings import ControllerSettings
from wm.settings import train_controller as settings_module


def test_an_incomplete_last_line_is_cut_off_the_log(tmp_path: Path) -> None:
    line = {"generation": 1, "in": "real", "candidates": "c", "returns": [1.0], "env_steps": 10, "seconds": 1.0}
    complete = chain_all("", [line]).decode()
    (tmp_path / LOG).write_text(complete + '{"generation": 2, "cand')
    assert [line.value["generation"] for line in logged(tmp_path)] == [1]
    assert (tmp_path / LOG).read_text() == complete
    assert logged(tmp_path / "nowhere") == []


class LinearFitness:
    """A candidate's return is its first parameter; in the real environment times `real_scale`."""

    def __init__(self, real_scale: float = 1.0, pause: float = 0.0) -> None:
        self.real_scale, self.pause = real_scale, pause

    def dream_returns(self, candidates: Any, generation: int, temperature: float) -> Any:
        return candidates[:, 0].astype(float)

    def real_returns(self, candidates: Any, generation: int) -> Any:
        time.sleep(self.pause)
        return candidates[:, 0] * self.real_scale, 10

    def validation_returns(self, mean: Any) -> Any:
        return np.array([1.0, 1.1]) * float(mean[0]) * self.real_scale, 20

    def dream_validation_returns(self, mean: Any, temperature: float) -> Any:
        return np.array([1.0, 1.1]) * float(mean[0])


def evolve(folder: Path, fitness: LinearFitness, messages: list[str] | None = None, **values: Any) -> Evolution:
    settings = ControllerSettings(**({"popsize": 6, "validate_every": 2, "validation_episodes": 2} | values))
    runtime = Runtime(time.monotonic, log=(messages if messages is not None else []).append)
    evolution = Evolution(runtime, settings, fitness, 1.0, folder)  # type: ignore[arg-type]
    evolution.run(Search(np.zeros(3, np.float32), 6, 0.3, 0), validate_start=False)
    return evolution


def test_candidates_play_in_the_real_environment_once_the_search_exploits_the_dream(tmp_path: Path) -> None:
    messages: list[str] = []
    evolution = evolve(tmp_path, LinearFitness(real_scale=-1.0), messages, in_="mixed", max_generations=20)
    places = [line["in"] for line in evolution.history.lines]
    assert not evolution.trusts_dream
    assert places == sorted(places)  # dream, then real
    assert 4 < places.count("dream") < 20
    assert any("exploits the dream" in message for message in messages)
    replayed = evolve(tmp_path, LinearFitness(), in_="mixed", max_generations=20)
    assert not replayed.trusts_dream


def test_an_accurate_dream_is_used_to_the_end(tmp_path: Path) -> None:
    evolution = evolve(tmp_path, LinearFitness(), in_="mixed", max_generations=20)
    assert evolution.trusts_dream
    assert evolution.history.env_steps == 10 * 20  # the validations


def test_a_search_in_the_dream_plays_no_real_step(tmp_path: Path) -> None:
    assert evolve(tmp_path, LinearFitness(), in_="dream", max_generations=6).history.env_steps == 0


def test_it_stops_when_a_validation_reaches_the_target(tmp_path: Path) -> None:
    evolution = evolve(tmp_path, LinearFitness(), max_generations=50, target_return=0.5)
    assert evolution.stop_reason() == "target"
    assert evolution.history.generation < 50
    assert evolution.history.generation % 2 == 0  # a validated one


def test_it_stops_at_its_time_limit_with_a_validation(tmp_path: Path) -> None:
    fitness = LinearFitness(pause=0.05)
    evolution = evolve(tmp_path, fitness, max_generations=500, max_hours=0.3 / 3600, validate_every=100)
    assert evolution.stop_reason() == "hours"
    assert "validation" in evolution.history.lines[-1]
    assert 2 < evolution.history.generation < 10


def test_the_time_of_earlier_sessions_counts_from_their_start_up(tmp_path: Path) -> None:
    settings = ControllerSettings(popsize=6, validate_every=2, validation_episodes=2, max_generations=2)
    first = Evolution(Runtime(time.monotonic), settings, LinearFitness(), 1.0, tmp_path)  # type: ignore[arg-type]
    first.run(Search(np.zeros(3, np.float32), 6, 0.3, 0), validate_start=False, began=time.monotonic() - 60)
    assert first.earlier_seconds == 0
    resumed = evolve(tmp_path, LinearFitness(), max_generations=4)
    assert resumed.earlier_seconds >= 60 > first.history.seconds


def test_spaced_means_are_equally_spaced(tmp_path: Path) -> None:
    evolution = evolve(tmp_path, LinearFitness(), max_generations=10)
    generations, means = evolution.spaced_means(4)
    assert generations == [1, 4, 7, 10]
    assert np.array_equal(means, np.stack(evolution.means)[[0, 3, 6, 9]])
    assert evolution.spaced_means(20)[0] == list(range(1, 11))


class WhiteningFitness(LinearFitness):
    """Also computes a whitener, another one at each call, after a pause."""

    calls = 0

    def whitener(self, mean: Any) -> Any:
        self.calls += 1
        time.sleep(self.pause)
        return np.random.default_rng(self.calls).normal(size=(3, 3)), 50


def test_a_resumed_search_uses_the_whiteners_it_has_written(tmp_path: Path) -> None:
    values: dict[str, Any] = {"whiten_at": "3,6", "validate_every": 4}
    whole, cut = WhiteningFitness(), WhiteningFitness()
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    expected = evolve(tmp_path / "whole", whole, max_generations=10, **values)
    evolve(tmp_path / "cut", cut, max_generations=7, **values)
    cut.calls = 7  # another call would return another whitener
    resumed = evolve(tmp_path / "cut", cut, max_generations=10, **values)
    assert (whole.calls, cut.calls) == (2, 7)
    assert candidates(resumed) == candidates(expected)
    assert np.array_equal(resumed.means[-1], expected.means[-1])
    assert expected.history.env_steps == 10 * 10 + 3 * 20 + 2 * 50


def candidates(evolution: Evolution) -> list[str]:
    return [line["candidates"] for line in evolution.history.lines]


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, whitener=np.eye(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (_npz(), "is no npy file"),
        (b"", "is no npy file"),
        (np.eye(2), r"has shape \(2, 2\) and type float64; expected a finite square matrix .* divides 3 parameters"),
        (np.eye(3)[:2], "expected a finite square matrix"),
        (np.float64(1), "expected a finite square matrix"),
        (np.zeros((0, 0)), "expected a finite square matrix"),
        (np.full((3, 3), np.inf), "expected a finite square matrix"),
        (np.eye(3, dtype=complex), "expected a finite square matrix"),
    ],
)
def test_a_whitener_of_another_form_is_refused(written: Any, sentence: str, tmp_path: Path) -> None:
    if isinstance(written, bytes):
        (tmp_path / WHITENER.format(0)).write_bytes(written)
    else:
        save_whitener(tmp_path, 0, written)
    with pytest.raises(BadData, match=rf"whitener-0\.npy .*{sentence}.*restore it, or remove"):
        load_whitener(tmp_path, 0, None, parameters=3)


def test_candidates_differ_after_a_whitened_restart(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "whitened").mkdir()
    plain = candidates(evolve(tmp_path / "plain", WhiteningFitness(), max_generations=6))
    whitened = candidates(evolve(tmp_path / "whitened", WhiteningFitness(), max_generations=6, whiten_at="4"))
    assert plain[:4] == whitened[:4]
    assert plain[4] != whitened[4]


def test_the_candidate_search_that_validates_best_continues_also_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "GENERATIONS_PER_RESTART", 2)
    values = {"restarts": 3, "validate_every": 100, "max_generations": 9}
    evolution = evolve(tmp_path, LinearFitness(), **values)
    whole = evolution.history
    scores = {line["generation"]: np.mean(line["validation"]) for line in whole.validated}
    assert list(scores) == [2, 4, 6, 9]
    best = max((2, 4, 6), key=lambda end: scores[end])
    means = dict(zip([line["generation"] for line in whole.lines], evolution.means, strict=True))
    assert len({means[end - 1].tobytes() for end in (2, 4, 6)}) == 3  # their random seeds differ

    search = Search(np.zeros(3, np.float32), 6, 0.3, 0)
    for number in range(3):
        for line in whole.lines[2 * number : 2 * number + 2]:
            replay(search, line["candidates"], line["returns"])
        if number < 2:
            search.restart()
    assert best != 6  # the last one would continue anyway
    search.continue_candidate_search(best // 2 - 1)
    assert np.array_equal(search.mean, means[best])
    replay(search, whole.lines[6]["candidates"], whole.lines[6]["returns"])

    lines = (tmp_path / LOG).read_text().splitlines(keepends=True)
    for length in (3, 5, 7):
        (tmp_path / LOG).write_text("".join(lines[:length]))
        resumed = evolve(tmp_path, LinearFitness(), **values).history
        assert [line["candidates"] for line in resumed.lines] == [line["candidates"] for line in whole.lines]


def test_a_search_whose_time_ends_while_it_whitens_is_validated(tmp_path: Path) -> None:
    fitness = WhiteningFitness(pause=0.3)
    values = {"whiten_at": "1", "max_hours": 0.5 / 3600}
    evolution = evolve(tmp_path, fitness, max_generations=500, validate_every=100, **values)
    assert (evolution.stop_reason(), evolution.history.generation) == ("hours", 1)
    assert evolution.history.best is not None
