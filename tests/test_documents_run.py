"""Every command in docs/ is run, as it stands there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

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
