"""What may not be read is neither damaged nor made again."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, SLUG, arguments

CAPABILITIES = "-dac_override,-dac_read_search"  # with these root reads what nobody may
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(chain_copy: Path) -> Command:
    """A command of wm in the chain's folder by a user who is not above permissions."""
    prefix: list[str] = []
    if os.geteuid() == 0:
        if (setpriv := shutil.which("setpriv")) is None:
            pytest.skip("root reads everything, and setpriv is not installed")
        prefix = [setpriv, f"--inh-caps={CAPABILITIES}", f"--bounding-set={CAPABILITIES}"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        program = [*prefix, sys.executable, "-m", "stages", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(program, cwd=chain_copy, env=environment, capture_output=True, text=True, timeout=120)

    return run


def test_an_artifact_that_may_not_be_read_is_not_made_again(chain_copy: Path, command: Command) -> None:
    manifest = chain_copy / "runs" / SLUG / "controller" / "manifest.json"
    manifest.chmod(0o000)
    done = command(*arguments("train-controller"))
    manifest.chmod(0o644)
    assert done.returncode == 77, done.stderr
    assert f"no permission for {manifest.relative_to(chain_copy)}" in done.stderr
    assert not (chain_copy / "runs" / SLUG / "archive").exists()


@pytest.mark.parametrize("closed", ["", "manifest.json"])
def test_a_part_that_may_not_be_read_is_not_set_aside(chain_copy: Path, command: Command, closed: str) -> None:
    (part,) = (chain_copy / "data").glob("*.zarr/part-*")
    mode = (part / closed).stat().st_mode
    (part / closed).chmod(0o000)
    done = command("verify", "data", "--repair")
    (part / closed).chmod(mode)
    assert done.returncode == 77, done.stderr
    assert "no permission for" in done.stderr
    assert not (part.parent / ".quarantine").exists()


def test_the_overview_shows_the_rest_of_a_run(chain_copy: Path, command: Command) -> None:
    controller = chain_copy / "runs" / SLUG / "controller"
    controller.chmod(0o600)
    listed = command("ls")
    controller.chmod(0o755)
    assert listed.returncode == 77, listed.stderr
    kinds = dict(line.split()[:2] for line in listed.stdout.splitlines() if len(line.split()) > 2)
    assert (kinds["mdnrnn"], kinds["controller"]) == ("mdnrnn", "no")


def test_a_finished_dataset_that_may_not_be_written_is_up_to_date(chain_copy: Path, command: Command) -> None:
    data = chain_copy / "data"
    for file in data.glob(".*"):
        file.unlink()  # the lock of the collection before
    data.chmod(0o555)
    done, more = command(*arguments("collect")), command(*arguments("collect", "--episodes", "99"))
    data.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert "up to date" in done.stdout
    assert more.returncode == 77, more.stderr


@pytest.mark.parametrize("closed", ["mdnrnn/manifest.json", "controller", "evaluation"])
def test_a_report_shows_the_rest_of_a_run_and_names_what_is_closed(
    chain_copy: Path, command: Command, closed: str
) -> None:
    path = chain_copy / "runs" / SLUG / closed
    mode = path.stat().st_mode
    path.chmod(0o000)
    done, strict = command("report", "--no-film"), command("compare", "runs", "--strict")
    path.chmod(mode)
    assert done.returncode == 0, done.stderr
    assert f"warning: left out: no permission for runs/{SLUG}/{closed}" in done.stderr
    assert "no permission for" in (chain_copy / "runs" / SLUG / "report.html").read_text()
    assert strict.returncode == 65
    assert strict.stderr.endswith("files left out, damaged or closed: 1.\n")


@pytest.mark.parametrize("words", [("ls",), ("verify", "runs"), ("clean", "runs"), ("report", "runs")])
def test_a_folder_that_may_not_be_read_is_not_an_empty_one(
    chain_copy: Path, command: Command, words: tuple[str, ...]
) -> None:
    (chain_copy / "runs").chmod(0o000)
    done = command(*words)
    (chain_copy / "runs").chmod(0o755)
    assert done.returncode == 77, done.stderr
    assert done.stderr.startswith("wm: no permission for runs")


def test_folders_inside_that_may_not_be_read_are_named_after_the_rest(chain_copy: Path, command: Command) -> None:
    (dataset,), (mdnrnn,) = chain_copy.glob("data/*.zarr"), chain_copy.glob("runs/*/mdnrnn")
    for closed in (dataset, mdnrnn):
        closed.chmod(0o000)
    listed, verified, cleaned = command("ls"), command("verify", "."), command("clean")
    for closed in (dataset, mdnrnn):
        closed.chmod(0o755)
    assert (cleaned.returncode, cleaned.stderr) == (listed.returncode, listed.stderr)
    assert "freed" in cleaned.stdout
    for done in (listed, verified):
        assert done.returncode == 77, done.stderr
        named = f"wm: no permission for data/{dataset.name}; change its permissions or give another place.\n"
        assert done.stderr == named
        assert "controller" in done.stdout
    for closed in (dataset, mdnrnn):
        assert re.search(rf"^  {re.escape(closed.name)} +no permission", listed.stdout, re.MULTILINE)
        assert f"\n{closed.relative_to(chain_copy)} was not checked: no permission.\n" in verified.stdout


def test_the_folder_that_takes_no_new_file_is_named_and_not_a_staging_name(chain_copy: Path, command: Command) -> None:
    run = chain_copy / "runs" / SLUG
    run.chmod(0o555)
    done = command("report", f"runs/{SLUG}", "--no-film")
    run.chmod(0o755)
    assert done.returncode == 77, done.stderr
    sentence = f"no permission for new files in runs/{SLUG}; change its permissions or give another place."
    assert done.stderr == f"wm: {sentence}\n"


def test_the_memory_of_a_training_that_others_own_is_judged_without_a_plot(chain_copy: Path, command: Command) -> None:
    vae = chain_copy / "runs" / SLUG / "vae"
    vae.chmod(0o555)
    done = command("memory", f"runs/{SLUG}/vae")
    vae.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "no plot: nothing may be written beside its metrics"
    assert f"runs/{SLUG}/vae: " in done.stdout
