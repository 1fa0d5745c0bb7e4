import json
from dataclasses import replace
from pathlib import Path

import pytest

from stages.session import Session
from wm.errors import RecipeMismatch, UsageProblem
from wm.pipeline.session import stage_name


def test_names_find_their_places_by_environment() -> None:
    session = Session("ALE/Seaquest-v5")
    assert session.data_path == Path("data/ALE-Seaquest-v5.zarr")
    assert session.run_path == Path("runs/ALE-Seaquest-v5")
    assert Session("Pong", data=(Path("x"),), run=Path("y")).run_path == Path("y")
    assert Session("Pong", workers=3).processes == 3


def test_a_name_that_would_leave_the_folder_is_refused() -> None:
    assert stage_name(Session("Pong", name="vae-64"), "vae") == "vae-64"
    assert stage_name(Session("Pong", name="_vae.64-a"), "vae") == "_vae.64-a"
    for name in ("../vae", "a/../b", ".hidden", ".vae.owner", "-x", "a/.b", "vae/x", "evaluation/x", "a b", "."):
        with pytest.raises(UsageProblem, match="expected letters, digits"):
            stage_name(Session("Pong", name=name), "vae")


def test_an_artifact_does_not_replace_the_one_it_starts_from(tmp_path: Path) -> None:
    session = Session("Pong", run=tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    for source in ("run", "link", "run/../run"):
        with pytest.raises(UsageProblem, match=r"would replace .* give --name controller-2, or"):
            stage_name(session, "controller", str(tmp_path / source))
    assert stage_name(session, "controller", str(tmp_path / "other")) == "controller"
    assert stage_name(replace(session, name="controller-2"), "controller", str(tmp_path / "run")) == "controller-2"


@pytest.mark.parametrize(
    ("default", "name"),
    [
        ("controller", "vae"), ("controller", "VAE"), ("vae", "controller"),
        ("mdnrnn", "archive"), ("controller", "latents-d"), ("controller", "dream-dreamer"), ("vae", "x.partial"),
        ("controller", "random"), ("dream", "dreamer"), ("vae", "videos"),
        ("controller", "controller-no-sticky"), ("controller", "curriculum.json"), ("vae", "report.html"),
    ],
)  # fmt: skip
def test_names_of_other_artifacts_are_reserved(default: str, name: str) -> None:
    with pytest.raises(UsageProblem, match=f"reserved for other artifacts of a run; .* such as {default}-2"):
        stage_name(Session("Pong", name=name), default)
    for free in (default, f"{default}-2", f"{default}-none"):
        assert stage_name(Session("Pong", name=free), default) == free


def test_no_artifact_of_an_environment_is_made_in_the_run_of_another(tmp_path: Path) -> None:
    for name in ("vae", "dreamer-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.json").write_text(json.dumps({"env": {"name": "Pong"}}))
        Session("Pong", run=tmp_path).make_run("mdnrnn", "mdnrnn", 1, {}, {})
        with pytest.raises(RecipeMismatch, match=rf"{name} was trained on Pong but --env is Catch; .*, or --env Pong"):
            Session("Catch", run=tmp_path).make_run("mdnrnn", "mdnrnn", 1, {}, {})
        (tmp_path / name / "model.json").write_text("no JSON")  # whoever needs it says so
        Session("Catch", run=tmp_path).make_run("mdnrnn", "mdnrnn", 1, {}, {})
