"""Every JSON file in a run and in a dataset, edited at any key to any value, with checksums that agree: commands and
the library's readers say one sentence. Never a traceback, never a file outside."""

import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stages import evaluate
from tests.conftest import SLUG, TINY, arguments, make_episode, outcome, write_part
from tests.faults.edits import LEAVES, MISSING, NASTY, RAW, documents, edit, keys
from wm.artifacts import durable, manifest, runs
from wm.artifacts.runs import Artifact
from wm.episodes.committed_parts import read_table
from wm.episodes.latents import read_latents
from wm.errors import WmError
from wm.evaluation.fidelity_metrics import format_fidelity, format_returns
from wm.evaluation.prediction import format_predictions
from wm.evolution.search_log import LOG, read_log
from wm.pipeline import encode, train_controller, train_mdnrnn, train_vae
from wm.pretrained import load_controller, load_mdnrnn, load_vae
from wm.report.fidelity_plot import policies
from wm.report.inventory import describe
from wm.report.plots import to_svg
from wm.report.returns_plot import search_plots
from wm.report.run_summary import RunSummary, overview
from wm.report.sections import FIDELITY, read_fidelity
from wm.telemetry import metrics_log
from wm.telemetry.trend import judge

DATA, RUN = Path("data") / f"{SLUG}.zarr", Path("runs") / SLUG
CODES = {0, 64, 65, 66, 69, 78}
SUMMARIES: dict[str, Callable[[Artifact], Any]] = {
    "vae": train_vae._summary,
    "latents": encode._summary,
    "mdnrnn": lambda artifact: (train_mdnrnn._summary(artifact), format_predictions(artifact.metrics)),
    "controller": train_controller._summary,
    "dream": lambda artifact: (format_returns(artifact.metrics), format_fidelity(artifact.metrics)),
    "evaluation": lambda artifact: (evaluate._summary(artifact), evaluate._table(artifact.metrics)),
}


def use_artifact(folder: Path) -> None:
    kind = str(manifest.read_json(folder / manifest.NAME).get("kind"))
    if kind in SUMMARIES:
        SUMMARIES[kind](runs.read(folder, kind))
        run = folder.parent.parent if kind == "evaluation" else folder.parent
        overview([RunSummary(run, {folder.relative_to(run).as_posix(): runs.read(folder, kind)}, {}, [], None, [])])


def use_metrics(folder: Path) -> None:
    judge(metrics_log.read(folder))


def use_log(folder: Path) -> None:
    search_plots(read_log(folder))


def use_fidelity(folder: Path) -> None:
    if (fidelity := read_fidelity(runs.read(folder, "dream"))) is not None:
        to_svg(policies(fidelity))


def user_of(root: Path, file: Path) -> Callable[[], Any]:
    """What reads the file in the library, and shows what it read."""
    if file.is_relative_to(root / DATA):
        return lambda: describe(root / DATA)
    folder = file.parent
    readers: dict[str, Callable[[], Any]] = {
        "metrics.jsonl": lambda: use_metrics(folder),
        LOG: lambda: use_log(folder),
        FIDELITY: lambda: use_fidelity(folder),
        "model.json": lambda: {"vae": load_vae, "mdnrnn": load_mdnrnn, "controller": load_controller}[folder.name](
            folder, "wm train"
        ),
    }
    if "latents.zarr" in file.parts:
        return lambda: read_latents(root / RUN / "latents")
    return readers.get(file.name, lambda: use_artifact(folder))


def json_files(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.suffix in (".json", ".jsonl"))


def all_files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


def fuzzed(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=examples <= 1000,
        database=None,
        deadline=timedelta(seconds=20),
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("examples", [600, pytest.param(40_000, marks=pytest.mark.slow)])
def test_no_edit_of_a_json_file_surprises_the_code_that_reads_it(chain: Path, tmp_path: Path, examples: int) -> None:
    root = tmp_path / "copy"
    shutil.copytree(chain, root)
    places = [
        (file, number, where)
        for file in json_files(root)
        for number, value in list(enumerate(documents(root / file)))[:2]
        for where in keys(value)
    ]
    before, sentences = all_files(tmp_path), list[str]()

    @fuzzed(examples)
    @given(place=st.sampled_from(places), raw=RAW)
    def check(place: tuple[Path, int, tuple[str | int, ...]], raw: bytes) -> None:
        file, number, where = place
        if raw == MISSING and not where:
            return
        changed = [root / file, *(folder / manifest.NAME for folder in (root / file).parents if folder != root.parent)]
        original = {path: path.read_bytes() for path in changed if path.is_file()}
        try:
            edit(root, root / file, number, where, raw)
            user_of(root, root / file)()
        except WmError as error:
            sentences.append(str(error))
        finally:
            for path, data in original.items():
                path.write_bytes(data)

    check()
    assert examples // 10 < len(sentences) < examples
    assert max(map(len, sentences)) < 1000
    assert all_files(tmp_path) <= before | {root / DATA / ".index"}


COLUMN = st.lists(LEAVES, max_size=4)


@pytest.mark.parametrize("examples", [400, pytest.param(20_000, marks=pytest.mark.slow)])
def test_any_table_of_a_part_is_read_as_its_types_or_refused(tmp_path: Path, examples: int) -> None:
    path = tmp_path / "d.zarr"
    part = write_part(path, [make_episode(number, rows=4) for number in range(3)])
    file, body = part / "zarr.json", manifest.read_json(part / manifest.NAME)
    group = manifest.read_json(file)
    table, sentences = group["attributes"]["episodes"], list[str]()

    @fuzzed(examples)
    @given(
        name=st.sampled_from([*table, "other"]),
        column=COLUMN | LEAVES,
        row=st.integers(0, 2),
        value=LEAVES,
        whole=st.booleans(),
    )
    def check(name: str, column: Any, row: int, value: Any, whole: bool) -> None:
        changed = [*table.get(name, [0, 0, 0])[:row], value, *table.get(name, [0, 0, 0])[row + 1 :]]
        group["attributes"]["episodes"] = table | {name: column if whole else changed}
        try:
            data = durable.canonical_json(group)
        except ValueError:  # NaN and infinity, which a manifest cannot seal either
            return
        file.write_bytes(data)
        names = [each for each in body["files"] if each != "zarr.json"]
        files = {each: (part / each).read_bytes() for each in names} | {"zarr.json": data}
        (part / manifest.NAME).write_bytes(manifest.of({"kind": "part", "format": 2, "name": part.name}, files))
        try:
            read = read_table(part)
        except WmError as error:
            sentences.append(str(error))
            return
        assert set(read) == set(table)
        assert read["index"] == [0, 1, 2]
        assert 0 < read["ends"][0] < read["ends"][1] < read["ends"][2]
        assert all(type(each) is bool for each in [*read["terminated"], *read["truncated"]])
        assert all(type(each) in (int, float) for each in read["return"])

    check()
    assert all(str(part) in sentence for sentence in sentences)


READING = {
    "vae/": ("ls", "info", "report", "compare", "train-mdnrnn", "play"),
    "mdnrnn/": ("ls", "info", "report", "compare", "dream", "play"),
    "controller/": ("ls", "info", "report", "compare", "evaluate", "dream", "train-controller", "play"),
    "dream/": ("ls", "info", "report", "compare", "dream"),
    "evaluation/": ("ls", "info", "report", "compare", "evaluate"),
    "latents/": ("ls", "info", "report", "train-controller", "train-mdnrnn", "play"),
    "metrics.jsonl": ("report", "memory"),
    ".zarr/": ("ls", "info", "view", "verify", "export", "train-mdnrnn", "play"),
}
WORDS: dict[str, tuple[str, ...]] = {
    "ls": (),
    "play": ("--env", TINY),
    "verify": (".",),
    "view": (str(DATA), "--episodes", "0-1"),
    "export": (str(DATA), "--to", "npz", "--out", "exported", "--episodes", "0"),
    "report": (str(RUN),),
    "compare": (str(RUN),),
    "memory": (str(RUN),),
}


def command_on(file: Path, name: str) -> tuple[str, ...]:
    if name == "info":
        depth = 2 if file.is_relative_to(DATA) else 4 if "evaluation" in file.parts else 3
        return name, str(Path(*file.parts[:depth]))
    return (name, *WORDS[name]) if name in WORDS else arguments(name)


@pytest.mark.parametrize(("seed", "count"), [(0, 30), pytest.param(1, 3000, marks=pytest.mark.slow)])
def test_no_edit_of_a_json_file_ends_a_command_with_a_traceback(
    chain: Path, tmp_path: Path, seed: int, count: int
) -> None:
    chosen = random.Random(seed)
    files = json_files(chain)
    for number in range(count):
        root = tmp_path / f"{number}"
        shutil.copytree(chain, root)
        file = files[number % len(files)]
        values = documents(root / file)
        line = chosen.randrange(len(values))
        where = chosen.choice(list(keys(values[line])))
        raw = chosen.choice(NASTY if not where else (MISSING, *NASTY))
        edit(root, root / file, line, where, raw)
        commands = next(names for part, names in READING.items() if part in str(file) or part == ".zarr/")
        words = command_on(file, chosen.choice(commands))
        done = outcome(root, *words)
        assert done.returncode in CODES, (words, file, where, raw, done.stderr)
        assert "Traceback" not in done.stderr
        shutil.rmtree(root)
