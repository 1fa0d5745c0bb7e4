"""Unfinished work and finished artifacts with a digit that somebody has changed: named, exit 65, and never a result."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import cli
from tests.conftest import METRICS, PROVENANCE, SLUG, arguments, outcome, run
from tests.stages.test_train_dreamer import words
from wm.artifacts import durable, manifest
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import RECIPE_FILE, Run
from wm.errors import BadData
from wm.evolution.evolve import Evolution
from wm.report.document import Paragraph
from wm.report.run_chapter import chapter
from wm.report.run_summary import RunSummary
from wm.training.checkpoint import Checkpoints

IN_DREAM = ("--in", "mixed", "--temperature", "auto", "--set", "whiten_at=0", "--max-generations", "4")
COMMANDS = {
    "vae": arguments("train-vae"),
    "mdnrnn": arguments("train-mdnrnn"),
    "searched": arguments("train-controller", "--name", "searched", *IN_DREAM),
    "dreamer": words("--snapshot"),
}
INPUTS = {"vae": (), "mdnrnn": ("vae", "latents"), "searched": ("vae", "latents", "mdnrnn"), "dreamer": ()}


def interrupted(plain: Callable[..., Any], count: int) -> Callable[..., Any]:
    """A method that works `count` times, and then is where Ctrl-C arrives."""
    calls = []

    def method(*arguments: Any) -> Any:
        result = plain(*arguments)
        calls.append(1)
        if len(calls) == count:
            raise KeyboardInterrupt
        return result

    return method


def start(folder: Path, chain: Path, name: str) -> Path:
    """Begin a training and interrupt it; returns its unfinished artifact."""
    shutil.copytree(chain / "data", folder / "data")
    for made in INPUTS[name]:
        shutil.copytree(chain / "runs" / SLUG / made, folder / "runs" / SLUG / made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", interrupted(Checkpoints.save, 4))
        patch.setattr(Evolution, "_finish", interrupted(Evolution._finish, 3))
        assert outcome(folder, *COMMANDS[name]).returncode == 130
    return folder / "runs" / SLUG / f"{name}.partial"


def changed(data: bytes) -> bytes:
    """The bytes with one digit changed, in the middle, or one bit where there is no digit."""
    for place in sorted(range(len(data)), key=lambda place: abs(place - len(data) // 2)):
        if chr(data[place]).isdigit():
            return data[:place] + (b"7" if data[place] != ord("7") else b"8") + data[place + 1 :]
    return bytes([data[0] ^ 1]) + data[1:]


def edited(folder: Path) -> Iterator[Path]:
    """Every file that a resumed training reads, changed one after the other and put back."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        real = file.read_bytes()
        file.write_bytes(changed(real))
        yield file
        file.write_bytes(real)


def unfinish(artifact: Path) -> Path:
    """Make a finished artifact an unfinished one of the same recipe."""
    durable.write_json(artifact / RECIPE_FILE, json.loads((artifact / manifest.NAME).read_text())["recipe"])
    (artifact / manifest.NAME).unlink()
    return artifact.rename(artifact.with_name(f"{artifact.name}.partial"))


def digest_of_weights(artifact: Path) -> str:
    files = json.loads((artifact / manifest.NAME).read_text())["files"]
    return str(files["weights.safetensors"]["sha256"])


@pytest.mark.parametrize(
    "name", ["vae", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mdnrnn", "searched", "dreamer"))]
)
def test_unfinished_work_in_which_a_digit_was_changed_is_not_resumed(chain: Path, tmp_path: Path, name: str) -> None:
    partial = start(tmp_path, chain, name)
    names = []
    for file in edited(partial):
        if file.name == "recipe.json" or file.match("memory-*.json"):
            continue  # another recipe is other work; snapshots are for `wm memory` alone
        names.append(file.name)
        done = outcome(tmp_path, *COMMANDS[name])
        assert done.returncode == 65, f"{file}: {done.stderr}"
        message = done.stderr.strip().splitlines()[-1]
        assert file.name in message
        assert "restore it, or remove" in message or "to measure again" in message
        assert "Traceback" not in done.stderr
    logs = {"generations.jsonl", "metrics.jsonl", "temperature.json", "whitener-0.npy"}
    expected = logs if name == "searched" else {"metrics.jsonl"}
    assert expected <= set(names)
    assert name == "searched" or len([each for each in names if each.startswith("step-")]) >= 3
    assert json.loads(run(tmp_path, *COMMANDS[name], "--json").stdout)["status"] == "resumed"
    if name == "searched":
        shutil.move(tmp_path / "runs" / SLUG / name, tmp_path / "killed")
        run(tmp_path, *COMMANDS[name])
        assert digest_of_weights(tmp_path / "runs" / SLUG / name) == digest_of_weights(tmp_path / "killed")
    elif name != "dreamer":  # whose open episodes restart
        assert digest_of_weights(tmp_path / "runs" / SLUG / name) == digest_of_weights(chain / "runs" / SLUG / name)


@pytest.mark.slow
def test_a_search_takes_no_whitener_that_no_line_names_and_no_temperature_of_another(
    chain: Path, tmp_path: Path
) -> None:
    partial = start(tmp_path, chain, "searched")
    choice = json.loads((partial / "temperature.json").read_text())
    choice.pop("sha256")
    durable.write_bytes(partial / "temperature.json", manifest.sealed(choice | {"recipe": "another"}))
    done = outcome(tmp_path, *COMMANDS["searched"])
    assert (done.returncode, "temperature.json is of another search" in done.stderr) == (65, True)
    durable.remove(partial / "temperature.json")
    durable.remove(partial / "generations.jsonl")
    durable.write_bytes(partial / "whitener-0.npy", b"of somebody else")
    assert run(tmp_path, *COMMANDS["searched"])  # both are computed again


@pytest.mark.parametrize("place", ["a file of the manifest", "the manifest"])
def test_work_that_was_finished_but_not_renamed_is_checked(tmp_path: Path, place: str) -> None:
    artifact = Run(tmp_path, "vae", Recipe("vae", 1, {"network": "x", "latent": 4}))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        patch.setattr(Run, "swap_in", interrupted(lambda *_: None, 1))
        with artifact.build(False, print) as builder:
            durable.write_bytes(builder.folder / "metrics.jsonl", b"1.5")
            builder.publish(METRICS["vae"] | {"loss": 1.5}, PROVENANCE)
    file = artifact.partial / ("metrics.jsonl" if place.startswith("a file") else manifest.NAME)
    real = file.read_bytes()
    file.write_bytes(real.replace(b"1.5", b"2.5"))
    with pytest.raises(BadData, match=rf"{file.name} does not match .*; restore it, or remove .*vae\.partial to begin"):
        artifact.build(False, print).__enter__()
    file.write_bytes(real)
    with artifact.build(False, print):
        pass
    assert artifact.current() is not None


@pytest.mark.parametrize("data", [None, b"{", b"[]"])
def test_unfinished_work_without_its_recipe_is_neither_resumed_nor_removed(tmp_path: Path, data: bytes | None) -> None:
    artifact = Run(tmp_path, "vae", Recipe("vae", 1, {"network": "x", "latent": 4}))
    with pytest.raises(ZeroDivisionError), artifact.build(False, print) as builder:  # noqa: PT012
        durable.write_bytes(builder.folder / "work", b"hours")
        raise ZeroDivisionError
    durable.remove(artifact.partial / RECIPE_FILE)
    if data is not None:
        (artifact.partial / RECIPE_FILE).write_bytes(data)
    with pytest.raises(BadData, match=r"recipe\.json.* restore it, or remove .*vae\.partial to begin anew"):
        artifact.build(False, print).__enter__()
    assert (artifact.partial / "work").read_bytes() == b"hours"
    durable.remove(artifact.partial)
    artifact.partial.mkdir()  # a kill comes before the recipe is written
    (artifact.partial / ".recipe.json.0123abcd.tmp").touch()
    with artifact.build(False, print) as builder:
        assert not builder.resumed


def test_archived_work_of_another_recipe_is_not_resumed_under_this_name(tmp_path: Path) -> None:
    artifact = Run(tmp_path, "vae", Recipe("vae", 1, {"network": "x", "latent": 4}))
    archived = tmp_path / "archive" / f"vae-{artifact.recipe.fingerprint[:8]}.partial"
    durable.make_folder(archived)
    durable.write_json(archived / RECIPE_FILE, Recipe("vae", 1, {"latent": 3}).as_json())
    with artifact.build(False, print) as builder:
        assert not builder.resumed
    assert archived.exists()


def test_every_file_of_a_finished_artifact_is_checked_before_it_is_shown(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "run")
    whole = RunSummary.of(tmp_path / "run")
    assert whole.damaged == []
    for name, artifact in whole.artifacts.items():
        for file in edited(artifact.folder):
            if file.name == "memory.png":
                continue  # beside the metrics, and no part of the artifact
            summary = RunSummary.of(tmp_path / "run")
            (sentence,) = summary.damaged
            assert str(file) in sentence
            assert set(summary.artifacts) == set(whole.artifacts) - {name}
            assert name not in summary.metrics
            assert name != "controller" or not summary.generations
            assert any("left out" in block.strong for block in chapter(summary) if isinstance(block, Paragraph))


@pytest.mark.parametrize(
    "name", ["controller/generations.jsonl", "vae/metrics.jsonl", "controller.partial/metrics.jsonl"]
)
@pytest.mark.parametrize("command", ["report", "compare", "memory"])
def test_what_is_damaged_is_left_out_named_at_the_end_and_an_error_with_strict(
    chain: Path, tmp_path: Path, command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(chain / "runs" / SLUG, folder)
    if "partial" in name:
        unfinish(folder / "controller")
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(changed(data))
    pages = {"report": "out.html", "compare": "out.png"}
    more = ["--out", str(tmp_path / pages[command])] if command in pages else []
    assert cli.run([command, str(folder), *more]) == 0
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"warning: left out: {folder / name}")
    assert cli.run([command, str(folder), *more, "--strict", "--json"]) == 65
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["damaged"]) >= 1
    assert "left out" in captured.err.strip().splitlines()[-1]
    if command == "report":
        assert "Damaged, and left out" in (tmp_path / "out.md").read_text()
