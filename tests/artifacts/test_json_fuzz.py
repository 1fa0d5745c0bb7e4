"""Any bytes, read by every schema of the code: a value, or one sentence that names the file."""

import importlib
import json
import pkgutil
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stages
import wm
from tests.faults.edits import LEAVES, NASTY
from wm import extras
from wm.artifacts import json_reader, schemas
from wm.artifacts.json_reader import Schema
from wm.errors import BadData

KINDS = ("vae", "latents", "mdnrnn", "controller", "dreamer", "dream", "evaluation")
NEEDS = {f"wm.sweeps.{name}": "sweep" for name in ("sweep", "trials", "watch")}  # extras to import modules
WORDS = ("step", "files", "recipe", "settings", "metrics", "attributes", "episodes", "count", "low", "high", "env")
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)
BYTES = JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20) | st.sampled_from(NASTY)


def all_schemas() -> dict[str, Schema]:
    """Every table among the constants of `wm` and `stages`, and the manifest of every kind."""
    found = {f"manifest of {kind}": schemas.artifact(kind) for kind in KINDS}
    for package in (wm, stages):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            needed = NEEDS.get(each.name)
            if each.name != "stages.__main__" and (needed is None or extras.is_installed(needed)):
                constants = vars(importlib.import_module(each.name))
                found |= {
                    f"{each.name}.{name}": value
                    for name, value in constants.items()
                    if getattr(value, "__module__", "") == json_reader.__name__
                    and getattr(value, "__qualname__", "") == "table.<locals>.check"
                }
    return found


def refused(read: Callable[[], Any]) -> Any:
    """What is read, or None if it is refused in one sentence."""
    try:
        return read()
    except BadData as error:
        sentence = str(error)
        assert sentence.startswith("runs/x/file.json")
        assert sentence.endswith(".")
        assert len(sentence) < 1000
        return None


@pytest.mark.parametrize("examples", [1000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_any_bytes_are_a_value_or_one_sentence(examples: int) -> None:
    by_name = all_schemas()
    assert len(by_name) > 25

    @settings(
        max_examples=examples,
        derandomize=examples <= 1000,
        database=None,
        deadline=timedelta(seconds=20),
        suppress_health_check=list(HealthCheck),
    )
    @given(data=BYTES)
    def check(data: bytes) -> None:
        value = refused(lambda: json_reader.parse(data, "runs/x/file.json", json_reader.ANYTHING))
        if value is not None:  # what is no JSON is refused before its schema is looked at
            json.dumps(value, allow_nan=False)
            for schema in by_name.values():
                refused(lambda schema=schema: json_reader.validate(value, "runs/x/file.json", schema))

    check()
