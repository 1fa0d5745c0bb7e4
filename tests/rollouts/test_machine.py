import os
import pickle
import time
from pathlib import Path

import pytest

from tests.rollouts.clusters import nothing, pool_of, workers_behind
from wm.errors import RecipeMismatch
from wm.rollouts import task_host
from wm.rollouts.machine import CPU, describe_machine, differences
from wm.rollouts.task_host import TaskHost, Terms, expected_machine


def test_a_machine_does_not_differ_from_itself() -> None:
    assert differences(describe_machine(), describe_machine()) == []
    assert set(describe_machine()) >= {"python", "numpy", "torch", "gymnasium", "ale-py", "wm", CPU}


def test_a_variable_that_chooses_instructions_is_part_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    before = describe_machine()
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert differences(before, describe_machine()) == [f"{CPU} has ATEN_CPU_CAPABILITY=default"]


def reply_to(tmp_path: Path, expected: dict[str, str]) -> tuple[str, object]:
    host = TaskHost("tcp://a:1", tmp_path, nothing, print)
    terms = Terms("token", "machine", 1.0, time.monotonic, [])
    assert pickle.loads(host.answer(terms, b"", {})) == ("lacks", ["machine"])
    kind, value = pickle.loads(host.answer(terms, b"", {"machine": expected}))
    return kind, value


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"torch": "1.0"}, r"worker tcp://a:1 would not .* torch is 2\S+ and not 1\.0; give it the packages"),
        ({CPU: f"{describe_machine()[CPU]} avx9"}, r": CPU lacks avx9; leave it out, .* --executor-any-cpu\."),
    ],
)
def test_a_worker_whose_returns_would_differ_is_refused_in_a_sentence(
    tmp_path: Path, changed: dict[str, str], sentence: str
) -> None:
    kind, value = reply_to(tmp_path, describe_machine() | changed)
    assert kind == "refused"
    assert isinstance(value, RecipeMismatch)
    with pytest.raises(RecipeMismatch, match=sentence):
        raise value


def test_with_any_cpu_only_packages_count(tmp_path: Path) -> None:
    _, expected = expected_machine(any_cpu=True)
    assert CPU not in expected
    assert reply_to(tmp_path, expected)[0] == "done"


def test_a_worker_that_is_older_than_its_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_host, "_IMPORTED", "00000000")
    kind, value = reply_to(tmp_path, describe_machine())
    assert kind == "refused"
    assert "began before its files of wm changed; restart it" in str(value)


@pytest.mark.slow
def test_two_commands_that_take_turns_keep_their_processes() -> None:
    with pool_of(1) as pool, workers_behind(pool, 1) as one, workers_behind(pool, 1) as other:
        seen = [list(workers.map(os.getpid, [()])) for workers in (one, other, one, other)]
    assert seen[:2] == seen[2:]
    assert seen[0] != seen[1]
