import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import environment
from wm.artifacts import locks
from wm.errors import Locked

HOLD = """
import pathlib, sys, time
from wm.artifacts import locks
with locks.exclusive(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_second_writer_is_told_who_holds_the_lock_and_a_killed_holder_frees_it(tmp_path: Path) -> None:
    target = tmp_path / "vae"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(target)], stdout=subprocess.PIPE, env=environment())
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(Locked, match=f"process {holder.pid} on"), locks.exclusive(target):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    time.sleep(0.1)
    with locks.exclusive(target):
        assert str(os.getpid()) in (tmp_path / ".vae.owner").read_text()
