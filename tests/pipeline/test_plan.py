import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SLUG, SMALLEST, STAGES, TINY, arguments, run
from wm.artifacts.disk import DiskBudget
from wm.pipeline.plan import Plan
from wm.training.cost import LATENT_BYTES


def test_a_plan_reads_as_a_sentence() -> None:
    plan = Plan("collect", Path("data"), "50 episodes", 3_000_000, 10**9, (10, 20))
    assert str(plan) == "collect -> data: 50 episodes; disk about 3.0 MB, memory about 1.0 GB, time about 10 s to 20 s"


@pytest.mark.slow
def test_a_disk_budget_that_the_plan_says_suffices_is_not_refused(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "data", tmp_path / "data")
    for stage in STAGES[1:]:
        words = (stage, "--env", TINY, *SMALLEST[stage])
        plan = json.loads(run(tmp_path, *words, "--dry-run", "--json").stdout)["plan"][0]
        budget = plan["disk_bytes"] + plan["scratch_bytes"]
        assert run(tmp_path, *words, "--disk-budget", str(budget))


def test_encoding_needs_the_bytes_that_plans_count_for_it_and_takes_no_more(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(chain, tmp_path, dirs_exist_ok=True)
    for name in ("latents", "mdnrnn"):
        shutil.rmtree(tmp_path / "runs" / SLUG / name)
    require, needs = DiskBudget.require, dict[str, int]()

    def recorded(budget: DiskBudget, need: int, used: int, what: str, *others: Any) -> None:
        needs[what] = need
        require(budget, need, used, what, *others)

    monkeypatch.setattr(DiskBudget, "require", recorded)
    run(tmp_path, *arguments("train-mdnrnn"))
    arrays = tmp_path / "runs" / SLUG / "latents" / "latents.zarr"
    numbers = json.loads((arrays / "zarr.json").read_text())["attributes"]
    assert needs["encoding"] == numbers["rows"] * numbers["latent"] * LATENT_BYTES
    files = (path for name in ("means", "logvars") for path in (arrays / name).rglob("*"))
    stored = sum(path.stat().st_size for path in files if path.is_file() and path.name != "zarr.json")
    assert 0 < stored <= needs["encoding"]
