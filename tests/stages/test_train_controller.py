import json
from pathlib import Path

import numpy as np

from stages.train_controller import LOG, Progress, _logged


def line(generation: int, validation: list[float] | None = None) -> dict[str, object]:
    found = {"generation": generation, "candidates": "x", "returns": [1.0], "env_steps": 10}
    return found | ({"validation": validation} if validation else {})


def test_a_torn_line_of_the_log_is_dropped_from_the_file_too(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text(json.dumps(line(1)) + "\n" + '{"generation": 2, "cand')
    assert [found["generation"] for found in _logged(tmp_path)] == [1]
    assert (tmp_path / LOG).read_text() == json.dumps(line(1)) + "\n"
    assert _logged(tmp_path / "nowhere") == []


def test_the_best_mean_by_validation_is_kept_not_the_last_one() -> None:
    done = Progress()
    for generation, validation in ((1, None), (2, [5.0, 7.0]), (3, None), (4, [1.0, 2.0])):
        done.add(line(generation, validation), np.array([generation], np.float32))
    assert done.best is not None
    assert done.best.tolist() == [2.0]
    assert (done.best_score, done.best_generation, done.env_steps) == (6.0, 2, 40)
