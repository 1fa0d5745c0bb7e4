"""Where a command is told to write: nothing finished is replaced, and nothing is put inside of it."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import SLUG, TINY, outcome

DATA, RUN = f"data/{SLUG}.zarr", f"runs/{SLUG}"


def finished(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".lock" not in path.name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "words",
    [
        f"collect --env {TINY} --episodes 2 --size 32 --data {RUN}/vae/more.zarr",
        f"train-vae --env {TINY} --steps 2 --run {DATA}",
        f"train-vae --env {TINY} --steps 2 --run {RUN}/vae",
        f"data drop {DATA} --episodes 3 --out {RUN}/vae/less.zarr",
        f"export {DATA} --to npz --out {DATA}/npz",
        f"push {RUN} runs/other/vae/shared",
        f"push {RUN} runs/other/vae/shared.zip",
        f"view {DATA} --out {DATA}/page.html",
        f"play --env {TINY} --out {RUN}/mdnrnn/page.html",
        f"report {RUN} --no-film --out {RUN}/vae/new/report.html",
        f"compare {RUN} --out {RUN}/vae/loss.png",
    ],
)
def test_nothing_is_written_inside_a_dataset_or_an_artifact(chain_copy: Path, words: str) -> None:
    shutil.copytree(chain_copy / RUN, chain_copy / "runs" / "other")
    before = finished(chain_copy)
    done = outcome(chain_copy, *words.split())
    assert done.returncode == 64, done.stdout
    assert "which is finished and has what its manifest.json lists; name a path outside of it." in done.stderr
    assert finished(chain_copy) == before
