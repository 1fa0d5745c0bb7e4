"""The record of a checkpoint, edited at any key to any value and sealed again: one sentence that names it, or its state
is loaded."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SLUG, arguments, outcome, write_dataset
from tests.faults.edits import keys
from tests.policy_gradient.test_training import SHORT
from tests.stages.test_train_dreamer import words
from wm.artifacts import durable, manifest
from wm.errors import BadData
from wm.training.checkpoint import Checkpoints

COMMANDS = {
    "vae": arguments("train-vae"),
    "dreamer": words(),
    "controller": SHORT,
}
VALUES = (None, True, -1, 0, 0.5, 2**53 + 1, 1e101, "x", [], [[]], {}, {"a": 1}, {"1": 99})
# What is refused at each key, besides values of other types.
SPECIFIC = {
    "vae": [(("rate",), "1"), (("scaler",), {"scale": 1.0}), (("more",), 1)],
    "dreamer": [
        (("counts", "updates_started"), -2),
        (("counts", "more"), 1),
        (("returns",), [None]),
        (("validation",), "high"),
        (("replay", "envs"), {"0": 9}),
        (("replay", "envs"), {"x": 0}),
        (("replay", "parts"), {"part": 3}),
    ],
    "controller": [
        (("scale", "running"), [0.0]),
        (("snapshots",), list(range(17))),
        (("spacing",), 0),
        (("slots",), []),
        (("slots", 0, "actions"), ["left"]),
        (("slots", 0, "actions"), [99]),
        (("slots", 0, "actions"), [[0.5]]),
        (("slots", 0, "agent"), {"memory": [["x"]]}),
        (("slots", 0, "agent", "memory"), []),
        (("slots", 0, "agent", "memory", 0), [0.5]),
        (("slots", 0, "agent", "z"), [0.5]),
    ],
}


def write_inputs(folder: Path, request: pytest.FixtureRequest, name: str) -> None:
    """What the training reads; only a controller's takes the whole chain."""
    if name == "vae":
        durable.make_folder(folder / "data")
        write_dataset(folder / "data" / f"{SLUG}.zarr", 12)
    elif name == "controller":
        chain: Path = request.getfixturevalue("chain")
        for made in ("vae", "latents", "mdnrnn"):
            shutil.copytree(chain / "runs" / SLUG / made, folder / "runs" / SLUG / made)


def stopped(folder: Path, name: str) -> Checkpoints:
    """The checkpoints of a training that was interrupted after a few."""
    plain, saved = Checkpoints.save, []

    def save(checkpoints: Checkpoints, *arguments: Any) -> None:
        plain(checkpoints, *arguments)
        saved.append(checkpoints)
        if len(saved) == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        assert outcome(folder, *COMMANDS[name]).returncode == 130
    return saved[0]


def replaced(record: dict[str, Any], where: tuple[str | int, ...], value: Any) -> bytes:
    changed = json.loads(json.dumps(record))
    inner = changed
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    return manifest.sealed(changed)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_checkpoint_s_record_has_its_schema(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path, request, name)
    checkpoints = stopped(tmp_path, name)
    artifact, trainer, last = checkpoints.folder.parent, checkpoints.trainer, checkpoints.all()[-1]
    reopen = partial(Checkpoints, artifact, trainer, keep_best=name == "vae")
    real = last.record.read_bytes()
    record = json.loads(real)
    del record["sha256"]
    for where, value in SPECIFIC[name]:
        last.record.write_bytes(replaced(record, ("state", *where), value))
        with pytest.raises(BadData, match=rf"{last.record.name}: state\.{where[0]}.* is .*; expected .*to begin anew"):
            reopen()
    sentences = []
    for number, where in enumerate(keys(record)):
        for value in (VALUES[number % len(VALUES) :: 5] or VALUES[:1]) if where else ():
            last.record.write_bytes(replaced(record, where, value))
            try:
                reopen().resume()
            except BadData as error:
                sentences.append(str(error))
    assert len(sentences) > len(SPECIFIC[name])
    assert all("step-" in sentence or "part-" in sentence or "metrics.jsonl" in sentence for sentence in sentences)
    last.record.write_bytes(real)
    assert reopen().resume() == last.step
