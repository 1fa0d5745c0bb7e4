import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import SLUG, arguments, run
from wm.artifacts.manifest import NAME
from wm.errors import RecipeMismatch
from wm.models.mdnrnn.network import MdnRnn
from wm.settings import MdnRnnSettings
from wm.training.warm_start import load_initial_weights


def test_weights_of_another_shape_are_refused_with_both_shapes(chain: Path) -> None:
    model = MdnRnn(4, 3, 8, 5, 10.0)
    with pytest.raises(RecipeMismatch, match=r"heads.weight is \(62, 16\), expected \(62, 8\)"):
        load_initial_weights(MdnRnnSettings(init_from=str(chain / "runs" / SLUG)), "mdnrnn", model)


def test_latents_of_the_source_run_are_copied(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    words = arguments("train-mdnrnn", "--run", "runs/again", "--init-from", f"runs/{SLUG}", "--steps", "20")
    log = run(tmp_path, *words).stderr
    assert "latents are taken over from" in log
    assert "encode" not in log
    before, after = (json.loads((tmp_path / "runs" / name / "latents" / NAME).read_text()) for name in (SLUG, "again"))
    assert before == after
