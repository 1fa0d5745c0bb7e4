from pathlib import Path

import numpy as np
import torch

from stages.trained import load_vae
from tests.conftest import SLUG
from wm.episodes.batches import FrameReader
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents


def test_latents_are_what_v_says_of_the_frames(chain: Path) -> None:
    dataset = Dataset.open(chain / "data" / f"{SLUG}.zarr", 24)
    latents = Latents.load(chain / "runs" / SLUG / "latents")
    vae = load_vae(chain / "runs" / SLUG / "vae", "")
    rows = slice(30, 60)
    with torch.inference_mode():
        mean, logvar = vae.model.encode(torch.from_numpy(FrameReader(dataset).read(30, 60)))
    assert np.allclose(latents.means[rows], mean.numpy(), atol=1e-2)
    assert np.allclose(latents.logvars[rows], logvar.numpy(), atol=1e-2)
    assert np.array_equal(latents.actions, dataset.column("actions"))
    assert np.array_equal(latents.ends, dataset.ends)
    assert np.array_equal(latents.terminated, dataset.table["terminated"])
