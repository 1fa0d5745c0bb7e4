import configparser
import re
import sys
from importlib import metadata
from pathlib import Path
from unittest import mock

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


def install(folder: Path, package: str, version: str) -> None:
    """What a package manager writes about a package."""
    info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")


def test_every_bound_of_setup_cfg_is_understood() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    relations = re.findall(r"[<>=!~]+", config["options"]["install_requires"])
    assert len(relations) > 15
    assert set(relations) == {">=", "<"}


@pytest.mark.parametrize(
    ("package", "version"),
    [("gymnasium", "0.29.1"), ("gymnasium", "1.0.0"), ("ale-py", "0.10.1"), ("zarr", "4.0.0"), ("torch", "2.9.1+cpu")],
)
def test_a_package_outside_of_its_bounds_is_outdated(
    package: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert extras.outdated() == []
    install(tmp_path, package, version)
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = extras.outdated()
    assert (found.package, found.version) == (package, version)


@pytest.mark.parametrize(("package", "version"), [("gymnasium", "1.4"), ("zarr", "3.10.0"), ("torch", "2.10.0+cpu")])
def test_a_package_at_or_within_its_bounds_is_not(
    package: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, package, version)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert extras.outdated() == []


def test_an_installed_package_has_the_bounds_of_its_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "wm" / "extras.py"))  # there is no setup.cfg
    needs = ["cma>=99", 'tensorboard>=99; extra == "tb"', "never-installed>=1"]
    monkeypatch.setattr(metadata, "requires", lambda name: needs)
    assert [one.requirement for one in extras.outdated()] == ["cma>=99"]


@pytest.mark.parametrize("in_a_source_tree", [True, False])
def test_an_extra_in_another_version_is_an_error_with_the_command(
    in_a_source_tree: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_a_source_tree:
        monkeypatch.setattr(extras, "__file__", str(tmp_path / "wm" / "extras.py"))
        monkeypatch.setattr(metadata, "requires", lambda name: ["cma>=99", 'optuna>=4.0; extra == "sweep"'])
    install(tmp_path, "optuna", "3.6.1")
    (tmp_path / "optuna.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with (
        mock.patch.dict(sys.modules),
        pytest.raises(MissingPackage, match=r"^wm sweep needs optuna, and optuna is 3.6.1 but wm needs optuna>=4.0; "),
    ):
        extras.require("sweep", "wm sweep")


def test_a_folder_with_the_name_of_an_extra_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trackio_of_mine").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(extras.EXTRAS, "trackio", extras.Extra(("trackio_of_mine",), "metrics"))
    assert extras.import_problem("trackio") == "not installed"
    (tmp_path / "trackio_of_mine" / "__init__.py").write_text("import sys; sys.exit('no licence')")
    assert extras.import_problem("trackio") == "the import of trackio_of_mine failed: no licence"


def test_outdated_packages_are_one_sentence_with_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "gymnasium", "0.29.1")
    install(tmp_path, "ale-py", "0.10.1")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingPackage) as raised:
        extras.require_versions()
    assert str(raised.value) == (
        "gymnasium is 0.29.1 but wm needs gymnasium[box2d]>=1.4, and ale-py is 0.10.1 but wm needs ale-py>=0.12.1; "
        "run `pip install 'gymnasium[box2d]>=1.4' 'ale-py>=0.12.1'`."
    )
