"""The list of a shared run's files, which decides what may arrive."""

from dataclasses import replace

import pytest

from wm.artifacts import manifest
from wm.errors import BadData
from wm.sharing.contents import Contents, File, has_its_name, parse, travels

FILE = File(1, "0" * 64)
CONTENTS = Contents(
    env="Pong",
    agent="controller",
    artifacts={"vae": "vae", "mdnrnn": "mdnrnn", "controller": "controller", "latents": "latents"},
    episodes=2,
    trained_on=4,
    files=dict.fromkeys(("vae/model.json", "latents/latents.zarr/means/c.0.0", "episodes.zarr/zarr.json"), FILE),
)


def test_a_list_is_read_as_it_was_written() -> None:
    assert parse(CONTENTS.as_bytes(), "list") == CONTENTS
    assert CONTENTS.names == ["vae", "latents", "mdnrnn", "controller"]
    assert CONTENTS.below("vae") == {"model.json": FILE}


NAMES = (
    *("../secret", "/etc/passwd", "vae/../../secret", "vae/./model.json", "vae//model.json", "C:/x", "vae\\model.json"),
    *("vae/.hidden", "vae/nul.png", "aux/model.json", "vae/model.json.", "vae/model.json ", "vae/\x1b[2J.png", ""),
    *(
        "vae/checkpoints/step-1.json",
        "archive/model.json",
        "vae/recipe.json",
        "vae/run.py",
        "vae/" + "x" * 300 + ".png",
    ),
    *("episodes.zarr/.staging/c", "episodes.zarr/../x", "latents/latents.zarr/a/b/c.0", "vae/tensorboard/events"),
)


@pytest.mark.parametrize("name", NAMES)
def test_names_that_leave_the_run_or_mean_something_elsewhere_are_refused(name: str) -> None:
    changed = replace(CONTENTS, files=CONTENTS.files | {name: FILE})
    with pytest.raises(BadData, match="which is no file of a run"):
        parse(changed.as_bytes(), "list")


def test_names_that_are_one_file_on_some_disks_are_refused() -> None:
    artifacts = CONTENTS.artifacts | {"controller-x": "controller", "controller-X": "controller"}
    files = CONTENTS.files | {"controller-x/model.json": FILE, "controller-X/model.json": FILE}
    with pytest.raises(BadData, match="differ in capitals only"):
        parse(replace(CONTENTS, artifacts=artifacts, files=files).as_bytes(), "list")


def test_episodes_are_refused_where_the_list_says_that_there_are_none() -> None:
    with pytest.raises(BadData, match=r"episodes\.zarr/zarr\.json"):
        parse(replace(CONTENTS, episodes=0).as_bytes(), "list")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"env": ""}, "the name of an environment"),
        ({"env": "a\x1b[2J"}, "the name of an environment"),
        ({"agent": "vae"}, "has no agent 'vae'"),
        ({"artifacts": {"controller": "controller"}}, "has no agent 'controller'"),
        ({"trained_on": -1}, "trained_on is -1"),
        ({"files": {"vae/model.json": File(-1, "0" * 64)}}, "size is -1"),
        ({"files": {"vae/model.json": File(1, "../x")}}, "a sha256"),
    ],
)
def test_values_that_cannot_be_are_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(BadData, match=problem):
        parse(replace(CONTENTS, **change).as_bytes(), "list")


def test_a_list_of_another_format_is_refused() -> None:
    body = manifest.parse_sealed(CONTENTS.as_bytes(), "list", lambda value, key: None, "")
    with pytest.raises(BadData, match="format is 2"):
        parse(manifest.sealed(body | {"format": 2}), "list")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vae", "vae"),
        ("controller-2", "controller"),
        ("latents-Pong.round2", "latents"),
        ("evaluation/x", "evaluation"),
    ],
)
def test_names_of_artifacts(name: str, kind: str) -> None:
    assert has_its_name(name, kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("archive", "controller"), ("vae", "controller"), ("VAE", "controller"), ("x.partial", "controller")),
        *(("a/b", "controller"), ("evaluation", "evaluation"), ("evaluation/../x", "evaluation"), ("nul", "dreamer")),
        *(
            ("mdnrnn-2", "mdnrnn"),
            ("latents/x", "latents"),
            (".x", "controller"),
            ("", "controller"),
            ("x.", "dreamer"),
        ),
    ],
)
def test_names_that_no_artifact_of_the_kind_has(name: str, kind: str) -> None:
    assert not has_its_name(name, kind)


def test_of_an_artifact_only_what_stages_write_for_others_travels() -> None:
    assert all(map(travels, ("weights.safetensors", "metrics.jsonl", "dream.gif", "latents.zarr/means/c.0.0")))
    for name in (
        "memory-100.json",
        "tensorboard/events.out.tfevents.1.host.2.0",
        "notes.txt",
        "model.py",
        "recipe.json",
    ):
        assert not travels(name), name
