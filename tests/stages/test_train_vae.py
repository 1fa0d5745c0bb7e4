from pathlib import Path

import numpy as np
import pytest

from stages.collect import collect
from stages.session import Session
from stages.train_vae import train_vae
from tests.conftest import RECIPE, TINY
from wm.envs.registry import EnvConfig
from wm.episodes.writer import Writer, create
from wm.errors import BadData
from wm.rollouts.collection import Collection, play_episode
from wm.settings import CollectSettings, VaeSettings


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "d.zarr"
    recipe = {**RECIPE, "labels": []}
    with Writer(create(path, recipe)) as writer:
        for index in range(30):
            writer.add(play_episode(Collection(EnvConfig(TINY, 32), "sticky", 0, 0), index))
    return Session(TINY, data=(path,), run=tmp_path / "run", device="cpu")


def test_v_reconstructs_what_moves(session: Session) -> None:
    """The dot is all that differs from the mean image; V reconstructs it on held-out episodes."""
    result = train_vae(session, VaeSettings(latent=4, steps=120, batch=16, validate_every=60))
    assert result.metrics["validation_error"] < 0.5 * result.metrics["mean_image_error"]
    assert {path.name for path in result.pictures} == {"loss.png", "reconstructions.png"}


def test_streaming_from_disk_trains_the_same_weights_as_ram(session: Session) -> None:
    metrics = []
    for name, ram in (("a", "1GB"), ("b", "1kB")):
        settings = VaeSettings(latent=4, steps=8, batch=16, ram=ram, validate_every=8)
        result = train_vae(Session(TINY, data=session.data, run=Path(f"{session.run}-{name}"), device="cpu"), settings)
        metrics.append(result.metrics["validation_loss"])
        assert np.isfinite(metrics[-1])
    assert metrics[0] == metrics[1]


@pytest.mark.slow
def test_the_probe_decodes_positions_and_may_be_required(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session("CartPole", data=(tmp_path / "d.zarr",), run=tmp_path / "run", device="cpu", workers=0)
    collect(session, CollectSettings(episodes=30, size=32, policy="random"))
    settings = {"latent": 8, "steps": 200, "batch": 16, "validate_every": 200}
    with pytest.raises(BadData, match="below require_probe=1"):
        train_vae(session, VaeSettings(require_probe=1.0, **settings))  # type: ignore[arg-type]
    assert not (tmp_path / "run" / "vae").exists()
    result = train_vae(session, VaeSettings(**settings))  # type: ignore[arg-type]
    assert result.status == "resumed"
    assert "R2 of a linear probe of a sampled z: x " in result.summary
    assert result.metrics["probe"]["x"]["r2"] > 0.5 > result.metrics["probe"]["x"]["untrained"]
    with pytest.raises(BadData, match="below require_probe=1"):  # also where nothing is left to train
        train_vae(session, VaeSettings(require_probe=1.0, **settings))  # type: ignore[arg-type]
