import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.session import Session
from tests.conftest import SLUG, TINY
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.episodes.latents import Latents
from wm.episodes.writer import create
from wm.errors import BadData, RecipeMismatch, UsageProblem
from wm.pipeline.encode import encode
from wm.pipeline.train_mdnrnn import open_inputs
from wm.pretrained import load_vae
from wm.settings import MdnRnnSettings


def test_latents_are_the_encoders_outputs(chain: Path) -> None:
    dataset = Dataset.open(chain / "data" / f"{SLUG}.zarr", 24)
    latents = Latents.load(chain / "runs" / SLUG / "latents")
    vae = load_vae(chain / "runs" / SLUG / "vae", "")
    rows = slice(30, 60)
    with torch.inference_mode():
        mean, logvar = vae.model.encode(torch.from_numpy(FrameReader(dataset).read(30, 60)))
    deviation = np.exp(0.5 * logvar.numpy())
    assert (np.abs(latents.means[rows] - mean.numpy()) < 0.2 * deviation).all()
    assert np.allclose(latents.logvars[rows], logvar.numpy(), atol=0.1)
    assert np.array_equal(latents.actions, dataset.column("actions"))
    assert np.array_equal(latents.ends, dataset.ends)
    assert np.array_equal(latents.terminated, dataset.table["terminated"])


def test_a_reward_that_is_not_a_number_is_refused_before_m_is_trained(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vae = load_vae(chain / "runs" / SLUG / "vae", "")
    dataset = Dataset.open(chain / "data" / f"{SLUG}.zarr", 24)
    column = Dataset.column

    def planted(self: Dataset, name: str) -> np.ndarray:
        values = column(self, name)
        if name == "rewards":
            values[self.ends[2] - 3] = np.nan
        return values

    monkeypatch.setattr(Dataset, "column", planted)
    session = Session(TINY, data=(dataset.path,), run=tmp_path / "run", device="cpu")
    with pytest.raises(BadData, match="has a reward that is not a number in episode 2; collect it again"):
        encode(session, dataset, vae)
    assert not (tmp_path / "run" / "latents").exists()


def test_datasets_whose_latents_would_have_the_same_folder_are_refused(chain: Path, tmp_path: Path) -> None:
    first = chain / "data" / f"{SLUG}.zarr"
    a, b = (Path(shutil.copytree(first, tmp_path / folder / "more.zarr")) for folder in "ab")
    session = Session(TINY, data=(first, a), run=chain / "runs" / SLUG)
    assert len(open_inputs(session, MdnRnnSettings())[0]) == 2
    with pytest.raises(UsageProblem, match=r"a/more\.zarr and .*b/more\.zarr, whose latents would have"):
        open_inputs(replace(session, data=(first, a, b)), MdnRnnSettings())


def test_a_vae_of_another_environment_is_refused(chain: Path, tmp_path: Path) -> None:
    vae = load_vae(chain / "runs" / SLUG / "vae", "")
    recipe = Dataset.open(chain / "data" / f"{SLUG}.zarr").recipe
    create(tmp_path / "d.zarr", {**recipe, "env": {**recipe["env"], "name": "Pong"}})
    with pytest.raises(RecipeMismatch, match=f"is a VAE of {TINY} but .* has episodes of Pong"):
        encode(Session(TINY), Dataset.open(tmp_path / "d.zarr"), vae)
