"""The documents agree with the code, with each other and with their JSON."""

import configparser
import dataclasses
import json
import math
import os
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml  # type: ignore[import-untyped]  # zarr brings it

import wm
from stages import cli
from stages.options import read_sources
from wm.envs.known_envs import KNOWN_ENVS
from wm.settings import COMMANDS
from wm.settings.sources import LATER, PRESETS, preset_names
from wm.units import format_duration

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "data" / "README.md",
    ROOT / "runs" / "README.md",
]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as forges derive them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", sorted(cli.TABLE))
def test_every_command_has_an_example_and_stands_in_the_readme(name: str) -> None:
    command = cli.wm.get_command(click.Context(cli.wm), name)
    assert command is not None
    assert f"Example: wm {name}" in (command.help or "")
    assert f"wm {name}" in (ROOT / "README.md").read_text()


def test_the_reference_is_rendered_from_the_commands_the_settings_and_the_docstrings() -> None:
    from benchmarks.pages import reference

    assert (ROOT / "docs" / "cli.md").read_text() == reference.cli_page(), "run `make docs`"
    assert (ROOT / "docs" / "settings.md").read_text() == reference.settings_page(), "run `make docs`"
    assert (ROOT / "docs" / "api.md").read_text() == reference.api_page(), "run `make docs`"
    assert (ROOT / "docs" / "python.ipynb").read_text() == reference.notebook(), "run `make docs`"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_setting_has_a_sentence(name: str) -> None:
    for item in dataclasses.fields(COMMANDS[name]):
        assert item.metadata["sentence"].endswith("."), item.name


@pytest.mark.parametrize("preset", preset_names())
def test_presets_name_real_commands_settings_and_environments(preset: str) -> None:
    tables = tomllib.loads((PRESETS / f"{preset}.toml").read_text())
    for command in COMMANDS:
        for env in ("", *KNOWN_ENVS):
            read_sources(preset).resolve(command, COMMANDS[command], env)
        for name, value in tables.get(command, {}).items():
            assert not isinstance(value, dict) or name in (*KNOWN_ENVS, LATER)


@pytest.mark.parametrize(("name", "most"), [("README.md", 150), ("ARCHITECTURE.md", 200)])
def test_a_document_keeps_to_its_length(name: str, most: int) -> None:
    assert 50 < len((ROOT / name).read_text().splitlines()) <= most


def test_the_architectures_import_table_is_the_tested_one() -> None:
    from tests.test_architecture import ALLOWED, FOUNDATION

    sentence = re.search(r"may import, besides (.*) and (\w+) \|", (ROOT / "ARCHITECTURE.md").read_text())
    assert sentence is not None
    assert {*sentence[1].split(", "), sentence[2]} == FOUNDATION
    table = (ROOT / "ARCHITECTURE.md").read_text().split("## Imports")[1].split("##")[0]
    rows = re.findall(r"^\| (\w+) \| ([\w, ]+) \|$", table, re.M)
    expected = {part: ", ".join(sorted(may)) for part, may in ALLOWED.items() if part not in FOUNDATION and may}
    first = [part for part in ALLOWED if part not in FOUNDATION and not ALLOWED[part]]
    assert f"| {', '.join(first)} | nothing |" in table
    assert dict(rows) == expected


@pytest.mark.parametrize(
    "path", [*sorted(ROOT.glob("*.md")), ROOT / "docs" / "how-to.md", ROOT / "docs" / "formats.md"]
)
def test_paths_that_a_document_names_exist(path: Path) -> None:
    for name in re.findall(r"`((?:wm|stages|tests|benchmarks|docs)/[a-z][\w./-]+)`", path.read_text()):
        assert (ROOT / name).exists(), f"{path.name} names {name}"


CURRENT = [
    path for path in DOCUMENTS if path.name not in ("CHANGELOG.md", "LOG.md") and path.parent.name != "decisions"
]


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_a_document_have_the_options_they_are_given(path: Path) -> None:
    text = path.read_text().replace("\\\n", " ")
    for name, rest in re.findall(r"(?:^|[`(\s])wm ([a-z][a-z-]+)((?: [^`\n)]*)?)", text):
        if name in cli.TABLE:  # else a sentence about wm
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)) <= options_of(name), f"wm {name}{rest}"


@pytest.mark.parametrize("path", [*CURRENT, *(ROOT / "docs" / "decisions").glob("*.md")], ids=lambda path: path.name)
def test_options_that_a_document_names_exist(path: Path) -> None:
    text = path.read_text().partition("## Come from another trainer")[0]  # a table of the options of others
    options = set().union(*map(options_of, cli.TABLE))
    assert set(re.findall(r"`(--[a-z][a-z-]*)", text)) <= options


def test_each_term_of_the_glossary_stands_once_in_alphabetical_order() -> None:
    terms = re.findall(r"^### (.+)$", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    assert terms == sorted(set(terms), key=str.casefold)
    assert {"NLL", "R2", "baseline", "rank correlation"} <= set(terms)  # which lists and tables show


@cache
def options_of(name: str) -> set[str]:
    """Of a command and of its subcommands."""
    command = cli.wm.get_command(click.Context(cli.wm), name)
    assert command is not None
    commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
    options = {option for each in commands for param in each.params for option in (*param.opts, *param.secondary_opts)}
    return options | {"--help"}


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_in_a_document_exist(path: Path) -> None:
    settings = {item.name.rstrip("_") for group in COMMANDS.values() for item in dataclasses.fields(group)}
    for name in re.findall(r"--set (?:[a-z-]+\.(?:later\.)?)?([a-z]\w+)", path.read_text()):
        assert name in settings | {"name", "stage"}, f"{path.name} has --set {name}"


@pytest.mark.skipif(os.name == "nt", reason="sh")
@pytest.mark.parametrize(("extras", "installed"), [("", "."), ("cluster,s3", ".[cluster,s3]")])
def test_an_image_has_the_extras_that_its_build_is_given(extras: str, installed: str) -> None:
    text = (ROOT / "Dockerfile").read_text()
    (word,) = re.findall(r"--no-build-isolation \\\n +(.*)$", text, re.M)
    done = subprocess.run(["sh", "-c", f"printf %s {word}"], env={"EXTRAS": extras}, capture_output=True, text=True)
    assert done.stdout == installed
    named = set(re.findall(r"--build-arg (\w+)=", "".join(path.read_text() for path in CURRENT) + text))
    assert "EXTRAS" in named <= set(re.findall(r"^ARG (\w+)", text, re.M))


def test_links_between_documents_resolve() -> None:
    for path in DOCUMENTS:
        for link in LINK.findall(path.read_text()):
            if "://" in link:
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), f"{path.name} links to {link}"
            if path.is_relative_to(ROOT / "docs"):  # the site has nothing else
                assert target.is_relative_to(ROOT / "docs"), f"{path.name} links to {link}, outside docs/"
            if anchor:
                assert anchor in anchors(target), f"{path.name} links to {link}"


def test_every_page_of_the_site_exists_and_is_in_its_navigation() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(listed) == {page for page in pages if not page.startswith("decisions/0")}


def test_the_readmes_extras_are_those_of_setup_cfg() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = {
        name: {re.split(r"[ <>=]", line)[0] for line in lines.splitlines() if line}
        for name, lines in config["options.extras_require"].items()
    }
    table = re.findall(r"^\| `(\w+)` \| ([\w, -]+) \|", (ROOT / "README.md").read_text(), re.M)
    assert {name: set(packages.split(", ")) for name, packages in table} == extras
    assert config["metadata"]["name"] == wm.DISTRIBUTION
    assert f"version: {wm.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {wm.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_table_of_speed_is_that_of_the_benchmarks() -> None:
    from benchmarks.pages import speed

    lines = [json.loads(line) for line in speed.BENCHMARKS.read_text().splitlines()]
    assert speed.PAGE.read_text() == speed.page(lines)
    assert speed.rows(lines, speed.README_ROWS) in (ROOT / "README.md").read_text()


def test_the_page_on_learning_is_rendered_from_its_rows() -> None:
    from benchmarks.pages import learning

    assert learning.PAGE.read_text() == learning.page(json.loads(learning.ROWS.read_text()))


def test_the_page_about_memory_is_rendered_from_its_rows() -> None:
    from benchmarks.pages import memory

    assert memory.PAGE.read_text() == memory.page(json.loads(memory.ROWS.read_text())), "run `make docs`"


def test_seeds_overlap_where_the_worst_with_a_trained_memory_is_no_better_than_the_best_without() -> None:
    from benchmarks.pages import memory

    means = {"none": (0.1, 0.3), "untrained": (0.5, 0.8), "trained": (0.8, 0.9)}
    rows = [
        {"env": "Catch", "in": "real", "memory": kind, "mean": mean} for kind, both in means.items() for mean in both
    ]
    sentence = memory.comparison(rows, "Catch", "real")
    assert "against C without h +0.65, no overlap" in sentence
    assert "against C with the h of an untrained M +0.20, the seeds overlap" in sentence


def test_the_page_on_peers_is_rendered_from_its_rows() -> None:
    from benchmarks.pages import peers

    rows = json.loads(peers.ROWS.read_text())
    assert peers.PAGE.read_text() == peers.page(rows), "run `make docs`"
    for row in rows:
        assert row["command"].split()[0] in ("wm", "python")
        assert all(cut["episodes"] >= 100 for cut in row["cuts"] if "mean" in cut)


def test_the_page_on_scale_is_what_its_script_makes() -> None:
    from benchmarks.pages import scale

    assert scale.PAGE.read_text() == scale.page(), "run `make docs`"
    own = scale.page(scale.Rates(core_hour=1.0, carracing=500.0, workers=(3,)))
    assert "Prices: 1 for an hour of a core" in own
    # Writing: a share of the time of one worker, which is measured, and what a task costs the client.
    rows = scale.Rows(scale.Rates())
    tasks = math.ceil(1e7 / rows["episode_carracing"])
    writing = format_duration(1e7 / 500 * rows["write_share_carracing_exact"] + tasks * rows["task"] / 1000)
    assert f"| CarRacing | 10,000,000 | 3 | client | 1 h 51 min | {writing} | 1 h 51 min | 5.56 |" in own
    # With many workers, the blocks that wm/rollouts/collecting.py leaves to them.
    own = scale.page(scale.Rates(carracing=500.0, workers=(1000,)))
    assert "| CarRacing | 1,000,000,000 | 1,000 | workers | 34 min" in own
    in_blocks, playing, writes, sent = scale.collected(rows, "CarRacing", 10**9, 1000)
    assert in_blocks
    assert writes < 10**9 * rows["write_share_carracing_exact"] / rows["collect_carracing_exact"] < 20 * playing
    assert sent < rows["packed_carracing"] * 10**9 / 100


def test_the_rows_on_scale_have_the_names_that_their_script_measures() -> None:
    from benchmarks.pages import scale_rates

    rows = json.loads(scale_rates.RATES.read_text())
    assert [(row["name"], row["unit"], row["what"]) for row in rows] == [
        (name, unit, what) for name, (unit, what, *_) in scale_rates.ROWS.items()
    ]


def test_pictures_stay_small() -> None:
    assert sum(path.stat().st_size for path in (ROOT / "docs").rglob("*") if path.is_file()) < 2_000_000


def test_the_readmes_scores_are_those_of_the_results_file() -> None:
    from benchmarks.pages import scores

    rows = json.loads((ROOT / "docs" / "results.json").read_text())
    assert scores.table(rows) in (ROOT / "README.md").read_text()
    assert scores.page(rows) == scores.PAGE.read_text()
    for row in rows:
        assert row["episodes"] >= 100, "a quoted score has at least 100 episodes"
        full_marks = {"Catch": 1.0, "CartPole": 500.0}.get(row["env"]) == row["mean"]
        # As the page says, every episode is the same game where an agent acts likeliest and nothing is sticky.
        one_game = row["env"] == "Breakout" and row["agent"] in ("ppo-no-sticky", "ppo-foreground-no-sticky")
        assert row["ci95"] > 0 or full_marks or one_game


def test_an_agent_is_named_by_what_differs_from_its_preset() -> None:
    from benchmarks.pages.score_rows import agent_of

    def name(run: str, env: str, memory: str, place: str = "real") -> str:
        recipe = {"kind": "controller", "settings": {"memory": memory, "in_": place}}
        return agent_of(Path(run), recipe, "laptop", env)

    assert name("runs/LunarLander", "LunarLander", "none") == "cma-none"
    assert name("runs/LunarLander.round2", "LunarLander", "none") == "cma-none-round2"
    assert name("runs/CarRacing", "CarRacing", "trained") == "cma"
    assert name("runs/CarRacing.round2", "CarRacing", "trained") == "cma-round2"
    assert name("runs/Pong", "Pong", "trained") == "cma-round1"
    assert name("runs/Pong.round2", "Pong", "trained") == "cma"
    assert name("runs/CartPole", "CartPole", "trained", "dream") == "cma-dream"
    by_gradient = {"kind": "controller", "settings": {"algo": "ppo", "memory": "none", "in_": "dream"}}
    assert agent_of(Path("runs/Pong.round16"), by_gradient, "dream", "Pong") == "ppo-dream"
    assert agent_of(Path("runs/Pong.round3"), by_gradient, "dream", "Pong") == "ppo-dream-round3"
    real = {"kind": "controller", "settings": by_gradient["settings"] | {"in_": "real"}, "inputs": {"init_from": "1f"}}
    assert agent_of(Path("runs/Pong.round16"), real, "dream", "Pong") == "ppo-after-dream"


def test_the_curve_of_a_second_round_follows_the_first() -> None:
    from benchmarks.pages.score_curves import whole_curve

    def row(agent: str, *curve: list[float], env: str = "LunarLander", seed: int = 0) -> dict[str, Any]:
        return {"env": env, "agent": agent, "preset": "laptop", "training_seeds": [seed], "curve": list(curve)}

    first, other = row("cma-round1", [10, -5.0], [20, 1.0]), row("cma-round1", [30, 2.0], seed=1)
    second, ablation = row("cma", [1, 3.0]), row("cma-none", [2, 4.0])
    alone = row("cma-none", [2, 5.0], env="CarRacing")
    rows = [first, other, second, ablation, alone]
    assert whole_curve(rows, second) == [[10, -5.0], [20, 1.0], [21, 3.0]]
    assert whole_curve(rows, ablation) == [[20, 1.0], [22, 4.0]]
    assert whole_curve(rows, alone) == [[2, 5.0]]


def test_every_figure_of_the_readme_is_in_a_json_file() -> None:
    """A digit outside tables and code belongs to a phrase of docs/results/readme.json. That names its source, or rows
    of docs/results.json and what its figures are the mean of."""
    rows = json.loads((ROOT / "docs" / "results.json").read_text())
    text = (ROOT / "README.md").read_text()
    for name in ("scores", "speed"):  # which come from JSON themselves
        text = re.sub(rf"<!-- {name} -->.*?<!-- /{name} -->", "", text, flags=re.S)
    text = re.sub(r"```.*?```|`[^`]*`|(?<=\])\([^)]*\)", "", text, flags=re.S)
    text = " ".join(text.split())
    for figure in json.loads((ROOT / "docs" / "results" / "readme.json").read_text()):
        assert figure["says"] in text, "README no longer says so"
        text = text.replace(figure["says"], "", 1)
        assert ("rows" in figure) != bool(figure.get("source"))
        if "rows" in figure:
            own = [row for row in rows if [row["env"], row["agent"], row["preset"]] == figure["rows"]]
            for each in figure["figures"]:
                values = [row[each["of"]] - (row[each["less"]] if "less" in each else 0) for row in own]
                value = sum(values) / len(values) / each.get("per", 1)
                assert each["format"].format(value) in figure["says"]
    assert re.findall(r"(?<![\w.])\d[\w.]*", text) == []


def test_the_workflow_runs_the_tests_as_the_makefile_does() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    runs = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    (tests,) = re.findall(r"\$\(BIN\)/(python -m pytest --num.*)", (ROOT / "Makefile").read_text())
    assert runs["test"][-1] == tests
    assert runs["slow"] == ["make test-slow"]
