"""Every command and every example in docs/ is run, as it stands there."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tests.tiny  # noqa: F401 # registers the environment, as wm.load asks for
import wm
from benchmarks.pages.api import public_members
from benchmarks.pages.notebook import examples
from tests.conftest import ROOT, SLUG

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tutorial", "how-to"])
def test_the_commands_of_a_document_run(name: str, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    wm = tmp_path / "bin" / "wm"
    wm.parent.mkdir()
    wm.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}:$PYTHONPATH exec {sys.executable} -m stages "$@"\n')
    wm.chmod(0o755)
    here = {**os.environ, "PATH": f"{wm.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = "\n".join(BLOCK.findall((ROOT / "docs" / f"{name}.md").read_text()))
    assert script.count("\nwm ") > 5
    done = subprocess.run(
        [bash, "-euo", "pipefail", "-c", script], cwd=tmp_path, env=here, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Warning: " not in done.stderr
    assert list(tmp_path.rglob("report.html"))


def run_examples(chain: Path, folder: Path, *left_out: str) -> str:
    """Run the examples of docs/python.md, the cells of its notebook, one after the other in the folder of a run,
    without those that import what is left out. Returns what they are."""
    shutil.copytree(chain / "runs" / SLUG, folder / "runs" / "CartPole")
    shutil.copytree(chain / "data", folder / "data")
    chosen = [example for example in examples() if not any(f"from {name}" in example for name in left_out)]
    assert len(examples()) - len(chosen) == len(left_out)
    names: dict[str, object] = {}
    with contextlib.chdir(folder):
        for block in chosen:
            exec(block, names)
    return "".join(chosen)


@pytest.mark.slow
def test_the_examples_of_the_python_page_run_and_show_every_public_name(chain: Path, tmp_path: Path) -> None:
    shown = run_examples(chain, tmp_path, "stable_baselines3")
    members = {f"world.{name}" for name, _ in public_members(wm.World)} - {"world.sb3_env"}
    missing = {name for name in members | {f"wm.{name}" for name in wm.__all__} if name not in shown}
    assert missing == set()


@pytest.mark.extra("sb3")
def test_its_example_with_stable_baselines3_runs(chain: Path, tmp_path: Path) -> None:
    assert "world.sb3_env" in run_examples(chain, tmp_path)


def test_the_notebook_has_the_examples_of_the_page() -> None:
    cells = json.loads((ROOT / "docs" / "python.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code == [example.strip() for example in examples()]
    assert len(code) >= 10
