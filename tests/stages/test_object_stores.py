"""Commands on a dataset in an object store: collected, listed, checked, trained from, and killed meanwhile."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from stages.session import session_of
from tests.conftest import ROOT, TINY, command, environment, outcome
from tests.object_store import SECRET, Server, python_path
from wm.artifacts import manifest
from wm.episodes import mirror
from wm.runtime import LOCAL

pytestmark = pytest.mark.extra("s3")
SMALL = ("--env", TINY, "--size", "32")


@pytest.fixture
def address(s3: Server) -> str:
    return f"s3://{s3.bucket()}/data/tiny"


def said(folder: Path, *words: str, code: int = 0) -> str:
    done = outcome(folder, *words)
    assert done.returncode == code, done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert ".s3" not in done.stdout + done.stderr, "people are shown the address"
    return done.stderr if code else done.stdout


def test_every_command_takes_the_address(address: str, s3: Server, tmp_path: Path) -> None:
    assert f"{address}: created" in said(tmp_path, "collect", *SMALL, "--episodes", "12", "--data", address)
    assert "up to date" in said(tmp_path, "collect", *SMALL, "--episodes", "12", "--data", address)
    said(tmp_path, "collect", *SMALL, "--episodes", "12")
    local = files_of(next((tmp_path / "data").glob("*.zarr")))
    stored = s3.objects(address)
    assert {name: data for name, data in stored.items() if not name.startswith("provenance")} == {
        name: data for name, data in local.items() if not name.startswith(("provenance", "."))
    }
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    facts = json.loads(said(elsewhere, "info", address, "--json"))
    assert (facts["path"], facts["episodes"]) == (address, 12)
    assert facts["bytes"] == sum(len(data) for name, data in stored.items() if name.startswith("part-"))
    assert "12, in 1 part" in said(elsewhere, "info", address)
    assert address.rpartition("/")[0] in said(elsewhere, "ls", address.rpartition("/")[0])
    assert f"{address}/part-000000-000012: 7 files agree" in said(elsewhere, "verify", address)
    assert "freed 0 B" in said(elsewhere, "clean", address)
    assert said(elsewhere, "view", address, "--episodes", "0") == "data/tiny.html\n"
    assert said(elsewhere, "export", address, "--to", "npz", "--episodes", "0") == "data/exports/tiny-npz\n"
    said(elsewhere, "data", "split", address, "--at", "4", "--out-first", "a.zarr", "--out-rest", "b.zarr")
    steps = ("--steps", "6", "--batch", "8", "--latent", "4", "--set", "validate_every=3")
    said(elsewhere, "train-vae", "--env", TINY, "--data", address, *steps)
    said(tmp_path, "train-vae", "--env", TINY, *steps)
    weights = [folder / "runs" / "tests.tiny-Tiny-v0" / "vae" for folder in (elsewhere, tmp_path)]
    ours, theirs = ((folder / "weights.safetensors").read_bytes() for folder in weights)
    assert ours == theirs, "a store changes nothing"
    recorded = b"".join(file.read_bytes() for file in tmp_path.rglob("*.json*")) + b"".join(stored.values())
    assert SECRET.encode() not in recorded


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_damage_is_named_by_its_address(address: str, s3: Server, tmp_path: Path) -> None:
    said(tmp_path, "collect", *SMALL, "--episodes", "3", "--data", address)
    name = "part-000000-000003/frames/c.0.0.0.0"
    s3.put(f"{address}/{name}", s3.objects(address)[name][::-1])
    told = said(tmp_path, "verify", address, code=65)
    assert f"1 of 2 are damaged, first: {address}/{name} does not match its checksum" in told
    assert "is in an object store, where nothing is set aside" in said(tmp_path, "verify", address, "--repair", code=64)
    s3.put(f"{address}/part-000000-000003/manifest.json", b"{}")
    assert "verify names it" in outcome(tmp_path, "ls", address).stdout
    assert outcome(tmp_path, "ls", address).returncode == 65


def test_what_killed_writers_left_is_removed_on_request(address: str, s3: Server, tmp_path: Path) -> None:
    said(tmp_path, "collect", *SMALL, "--episodes", "3", "--data", address)
    whole = s3.objects(address)
    s3.put(f"{address}/part-000003-000006/frames/c.0.0.0.0", b"1234")
    told = said(tmp_path, "clean", address)
    assert "freed 0 B" in told
    assert "4 B more with --unfinished" in told
    assert f"{address}/part-000003-000006: 4 B" in said(tmp_path, "clean", address, "--unfinished")
    assert s3.objects(address) == whole


def test_an_address_without_a_dataset_is_one_sentence(address: str, tmp_path: Path) -> None:
    for words in (("info", address), ("verify", address), ("train-vae", "--env", TINY, "--data", address)):
        assert said(tmp_path, *words, code=66).count("\n") == 1
    assert said(tmp_path, "ls", address).startswith("nothing yet")
    assert "expected s3://BUCKET/PREFIX" in said(tmp_path, "info", "s3://Bad_Bucket/x", code=64)
    said(tmp_path, "collect", *SMALL, "--episodes", "2", "--data", address)
    told = said(tmp_path, "data", "drop", address, "--episodes", "1", "--out", "s3://lab/x.zarr", code=64)
    assert "is no place for this" in told
    assert not (tmp_path / "s3:").exists()


def test_the_cache_keeps_within_the_disk_budget(address: str, tmp_path: Path) -> None:
    said(tmp_path, "collect", *SMALL, "--episodes", "3", "--data", address)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = ("--env", TINY, "--data", address, "--steps", "2", "--disk-budget", "1kB")
    assert "raise --disk-budget" in said(elsewhere, "train-vae", *words, code=74)


@pytest.mark.slow
def test_a_hundred_episodes_survive_five_kills(address: str, s3: Server, tmp_path: Path) -> None:
    """Of the whole group of processes, after a random number of requests; TINY_SEED chooses others."""
    chance = random.Random(int(os.environ.get("TINY_SEED", "0")))
    words = command("collect", *SMALL, "--episodes", "100", "--data", address)
    known = environment(PYTHONPATH=python_path(ROOT), WM_WORKERS="1")
    killed, seen = 0, 0
    while killed < 5:
        s3.requests.clear()
        wanted = chance.randint(2, 20)
        process = subprocess.Popen(words, cwd=tmp_path, env=known, start_new_session=True, stderr=subprocess.PIPE)
        while sum(method == "PUT" for method, _ in s3.requests) < wanted and process.poll() is None:
            time.sleep(0.001)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
        if manifest.NAME in s3.objects(address):
            said(tmp_path, "verify", address)
            episodes = json.loads(said(tmp_path, "info", address, "--json"))["episodes"]
            assert episodes >= seen
            seen = episodes
        if seen == 100:
            for name in s3.objects(address):
                s3.put(f"{address}/{name}", None)
            seen = 0
    assert f"{address}: " in said(tmp_path, "collect", *SMALL, "--episodes", "100", "--data", address)
    said(tmp_path, "collect", *SMALL, "--episodes", "100")
    local = files_of(next((tmp_path / "data").glob("*.zarr")))
    for name, data in s3.objects(address).items():
        assert name.startswith("provenance") or local[name] == data
    steps = ("--steps", "6", "--batch", "8", "--latent", "4", "--set", "validate_every=3")
    said(tmp_path, "train-vae", "--env", TINY, "--data", address, *steps)


def test_the_datasets_of_a_command_share_its_disk_budget(s3: Server, tmp_path: Path) -> None:
    mirrors = [mirror.mount(f"s3://{s3.bucket()}/{name}", tmp_path / name) for name in ("a", "b")]
    paths = tuple(mirrored.folder for mirrored in mirrors)
    session_of({"executor": LOCAL, "data": paths, "disk_budget": "100MB"})
    assert [mirrored.limit for mirrored in mirrors] == [50_000_000, 50_000_000]
