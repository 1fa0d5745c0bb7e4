from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.encode import check_frames, encode
from stages.session import Session
from stages.trained import load_vae
from tests.conftest import SLUG, TINY, make_episode
from wm.episodes.batches import FrameReader
from wm.episodes.dataset import Dataset
from wm.episodes.latents import Latents
from wm.episodes.writer import Writer, create
from wm.errors import BadData, RecipeMismatch


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


def planted(path: Path, chain: Path, **changes: object) -> Dataset:
    """A copy of the chain's recipe with one episode, whose third reward is not a number, and changes of its env."""
    recipe = Dataset.open(chain / "data" / f"{SLUG}.zarr").recipe
    recipe = {**recipe, "env": {**recipe["env"], **changes}, "labels": []}
    episode = make_episode(0)
    episode.rewards[3] = np.nan
    create(path, recipe)
    with Writer(path, recipe) as writer:
        writer.add(replace(episode, labels=np.zeros((20, 0), np.float32)).pack())
    return Dataset.open(path)


def test_a_reward_that_is_not_a_number_is_found_before_m_sees_it(chain: Path, tmp_path: Path) -> None:
    vae = load_vae(chain / "runs" / SLUG / "vae", "")
    session = Session(TINY, data=tmp_path / "d.zarr", run=tmp_path / "run", device="cpu")
    with pytest.raises(BadData, match="has a reward that is not a number in episode 0; collect it again"):
        encode(session, planted(tmp_path / "d.zarr", chain), vae)
    assert not (tmp_path / "run" / "latents").exists()


def test_a_vae_of_another_environment_is_refused(chain: Path, tmp_path: Path) -> None:
    vae = load_vae(chain / "runs" / SLUG / "vae", "")
    with pytest.raises(RecipeMismatch, match=f"is a VAE of {TINY} but .* has episodes of Pong"):
        check_frames(planted(tmp_path / "d.zarr", chain, name="Pong"), vae)
