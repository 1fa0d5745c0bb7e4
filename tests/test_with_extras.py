"""The tests that need extras are run with all of them, installed into a virtual environment of their own."""

import configparser
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.conftest import ROOT
from wm.extras import EXTRAS

READERS = ("av", "moto[server]")  # for the tests alone: PyAV opens our videos, moto is an object store


def beside_this_environment(folder: Path) -> Path:
    """The Python of a new virtual environment that finds this one's packages too."""
    here = sysconfig.get_path("purelib")
    venv.create(folder, symlinks=os.name == "posix")
    paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
    Path(paths["purelib"], "beside.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return Path(paths["scripts"], Path(sys.executable).name)


# Trackio needs an older Pillow than the one of constraints.txt, so it is installed without these.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "constraints", "selected"),
    [
        (set(EXTRAS) - {"trackio"}, ["--constraint", str(ROOT / "constraints.txt")], "not trackio"),
        ({"trackio"}, [], "trackio"),
    ],
)
def test_with_every_extra_installed_their_tests_pass_and_none_is_skipped(
    names: set[str], constraints: list[str], selected: str, tmp_path: Path
) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    packages = [line for name in sorted(names) for line in config["options.extras_require"][name].split("\n") if line]
    python = beside_this_environment(tmp_path / "extras")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    options = ["--only-binary", ":all:", *constraints, "--retries", "1"]
    done = subprocess.run([*pip, *options, *packages, *READERS], capture_output=True, text=True)
    if done.returncode and re.search("connection|name resolution", done.stderr, re.I):
        pytest.skip("no package index is reachable, so that the extras cannot be installed")
    assert done.returncode == 0, done.stderr
    tests = [str(python), "-m", "pytest", "-m", "extra", "-k", selected, "-p", "no:cacheprovider"]
    done = subprocess.run([*tests, "--basetemp", str(tmp_path / "t")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    skipped = [line for line in re.findall("SKIPPED.*", done.stdout) if "network namespace" not in line]
    assert not skipped
    assert "no tests" not in done.stdout, done.stdout
