from pathlib import Path

import pytest

from stages.collect import collect, env_config
from stages.session import Session
from tests.conftest import TINY
from wm.envs.registry import EnvConfig
from wm.episodes import archive, dataset
from wm.settings import CollectSettings


def test_the_recipe_has_every_field_of_the_environment() -> None:
    config = env_config(TINY, CollectSettings(observation="foreground"))
    assert config.as_json()["observation"] == "foreground"
    assert EnvConfig(**config.as_json()) == config


def test_an_up_to_date_dataset_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, settings = Session(TINY, data=(tmp_path / "d.zarr",)), CollectSettings(episodes=2, size=32)
    assert collect(session, settings).status == "created"
    opened = []
    for module in (archive, dataset):
        read = dataset.committed_parts
        monkeypatch.setattr(module, "committed_parts", lambda path, read=read: opened.append(path) or read(path))
    assert collect(session, settings).status == "up to date"
    assert len(opened) == 1
