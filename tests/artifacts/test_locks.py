import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import environment
from wm.artifacts import locks, manifest
from wm.artifacts.disk import explain_misplaced
from wm.errors import BadData, DiskProblem, Locked, UsageProblem

HOLD = """
import pathlib, sys, time
from wm.artifacts import locks
with locks.exclusive(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("name", [".vae.owner", ".vae.lock"])
def test_a_folder_in_the_place_of_a_lock_stays_and_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "kept").mkdir(parents=True)
    with pytest.raises(IsADirectoryError) as raised, locks.exclusive(tmp_path / "vae"):
        pass
    assert explain_misplaced(raised.value) == (
        f"{tmp_path / name} is a folder where a file is expected; remove or rename it."
    )
    assert (tmp_path / name / "kept").is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc takes no files")
def test_a_place_that_takes_no_files_is_named_and_no_other_process_is_blamed() -> None:
    cannot = r"^/proc/\.x\.lock cannot be made: /proc takes no new files; "
    with pytest.raises(DiskProblem, match=cannot), locks.locked(Path("/proc/x")):
        pass


@pytest.mark.skipif(os.name == "nt", reason="Windows has neither in a folder")
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_pipe_or_a_socket_in_the_place_of_a_lock_is_named(tmp_path: Path, kind: str) -> None:
    lock = tmp_path / ".vae.lock"
    if kind == "pipe":
        os.mkfifo(lock)
    else:
        with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as opened:
            opened.bind(lock.name)  # a whole path may be too long for a socket
    with pytest.raises(BadData, match=r"\.vae\.lock is a pipe or a device; expected a file, so remove it"):
        locks.exclusive(tmp_path / "vae").__enter__()


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


@pytest.mark.parametrize("nested", ["vae/more", "vae/a/b", "vae/../vae/more"])
def test_nothing_is_made_inside_what_is_finished(tmp_path: Path, nested: str) -> None:
    (tmp_path / "vae").mkdir()
    manifest.write(tmp_path / "vae", {"kind": "vae"})
    with pytest.raises(UsageProblem, match="is inside vae, which is finished"), locks.exclusive(tmp_path / nested):
        pass
    assert os.listdir(tmp_path / "vae") == ["manifest.json"]
    with locks.exclusive(tmp_path / "vae"), locks.exclusive(tmp_path / "beside"):
        pass


def test_a_manifest_of_another_program_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "an extension of a browser", "files": {}}')
    with locks.exclusive(tmp_path / "vae"):
        pass
