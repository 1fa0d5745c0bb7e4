import sys
from pathlib import Path

import pytest

from stages.collect import collect
from stages.session import Session
from tests.conftest import TINY
from wm.envs.registry import EnvConfig
from wm.episodes import dataset
from wm.pipeline.collect import env_config
from wm.settings import CollectSettings


def test_the_recipe_has_every_field_of_the_environment() -> None:
    config = env_config(TINY, CollectSettings(observation="foreground"))
    assert config.as_json()["observation"] == "foreground"
    assert EnvConfig(**config.as_json()) == config


@pytest.mark.parametrize(("collected", "status"), [(0, "created"), (1, "resumed"), (3, "up to date")])
def test_a_dataset_is_opened_at_most_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collected: int, status: str
) -> None:
    path = tmp_path / "d.zarr"
    session = Session(TINY, data=(path,))
    if collected:
        collect(session, CollectSettings(episodes=collected, size=32))
    opened = []
    parts_of = dataset.committed_parts
    for module in [module for name, module in sys.modules.items() if name.startswith(("wm.", "stages."))]:
        if hasattr(module, "committed_parts") and module.__name__ != "wm.episodes":
            monkeypatch.setattr(module, "committed_parts", lambda path, *of: opened.append(path) or parts_of(path, *of))
    result = collect(session, CollectSettings(episodes=3, size=32))
    monkeypatch.undo()
    assert (result.status, opened) == (status, [path] if collected else [])
    assert result.metrics["episodes"] == 3
    assert result.fingerprint == dataset.Dataset.open(path, 3).fingerprint
