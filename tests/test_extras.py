import configparser
from pathlib import Path

import pytest

from wm import extras
from wm.errors import MissingPackage

ROOT = Path(__file__).resolve().parent.parent


def test_every_extra_is_one_of_setup_cfg() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert set(extras.EXTRAS) <= set(config["options.extras_require"])


def test_in_a_source_tree_an_extra_is_installed_from_there() -> None:
    assert extras.install_command("tb") == "pip install -e '.[tb]'"


def test_an_installed_package_is_named_as_in_setup_cfg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "wm" / "extras.py"))
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert extras.install_command("tb") == f"pip install '{config['metadata']['name']}[tb]'"


def test_a_missing_extra_is_an_error_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not extras.is_installed("mp4")
    with pytest.raises(MissingPackage, match=r"--to mp4 needs imageio, .*; run `pip install -e '.\[mp4\]'`"):
        extras.require("mp4", "--to mp4")
