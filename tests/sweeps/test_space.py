from pathlib import Path

import pytest

from wm.errors import MissingInput, UsageProblem
from wm.settings import ControllerSettings
from wm.sweeps.space import Choices, Range, assignments, corners, read_space


def write(folder: Path, text: str) -> Path:
    (folder / "space.toml").write_text(text)
    return folder / "space.toml"


def test_ranges_have_the_type_of_their_setting(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "learning_rate = {low = 1e-4, high = 1e-2, log = true}\nnum-envs = {low = 8, high = 64, step = 8}\n"
        'units = [64, 128, 64]\nmemory = ["none", "trained"]\ndifference = [true, false]\n'
        "entropy = {low = 0, high = 1}",
    )
    space = read_space(path, "train-controller")
    assert space == {
        "learning_rate": Range(1e-4, 1e-2, True),
        "num_envs": Range(8, 64, False, 8),
        "units": Choices((64, 128)),
        "memory": Choices(("none", "trained")),
        "difference": Choices((True, False)),
        "entropy": Range(0.0, 1.0),
    }
    assert [type(end) for end in space["num_envs"].ends + space["entropy"].ends] == [int, int, float, float]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("unit = [64]", "train-controller has no setting 'unit'; did you mean units?"),
        ("units = [64, 'many']", "units is 'many' (space.toml); expected a whole number."),
        ("units = [64.5]", "units is 64.5 (space.toml); expected a whole number."),
        ("units = [0, 64]", "space.toml: --set units is 0; expected at least 1."),
        ("gamma = {low = 0.5, high = 1.5}", "space.toml: --set gamma is 1.5; expected at most 1."),
        ("memory = ['all']", "space.toml: --memory is 'all'; expected one of auto, trained, untrained, none."),
        ("memory = {low = 1, high = 2}", "space.toml: memory has no range; expected a list"),
        ("units = []", "space.toml: units is an empty list"),
        (
            "units = 64",
            "space.toml: units is 64; expected a list of values, or {low = ..., high = ...}, or give a fixed",
        ),
        ("gamma = {low = 0.9}", "space.toml: gamma lacks high"),
        ("gamma = {low = 0.9, high = 0.99, base = 2}", "space.toml: gamma has 'base'"),
        ("gamma = {low = 0.99, high = 0.9}", "space.toml: gamma goes from 0.99 to 0.9; expected low below high."),
        (
            "gamma = {low = 0, high = 0.9, log = true}",
            "space.toml: gamma begins at 0.0; with log expected low above 0.",
        ),
        ("gamma = {low = 0.1, high = 0.9, log = 1}", "space.toml: log of gamma is 1; expected true or false."),
        ("units = {low = 8, high = 64, step = 0.5}", "space.toml: step of units is 0.5"),
        ("units = {low = 8, high = 64, step = 8, log = true}", "space.toml: step of units is 8"),
        ("init_from = ['runs/Pong']", "init_from cannot change the result of wm train-controller"),
        ("validation_episodes = [5, 50]", "validation_episodes is part of what validates wm train-controller"),
        ("num_envs = [8]\nnum-envs = [8]", "space.toml has num_envs twice"),
        ("", "space.toml names no setting"),
        ("units = [", "space file space.toml is not TOML"),
        ("units = [99999999999999999999]", "space file space.toml: units has an integer beyond 64 bits"),
    ],
)
def test_a_wrong_space_is_one_sentence(
    line: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, line)
    with pytest.raises(UsageProblem) as raised:
        read_space(Path("space.toml"), "train-controller")
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_space_that_does_not_exist_is_a_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match=r"space file .*none.toml cannot be read"):
        read_space(tmp_path / "none.toml", "train-vae")


@pytest.mark.parametrize(
    ("stage", "line"),
    [
        ("train-vae", "validation_share = [0.1, 0.2]"),
        ("train-vae", 'mixture = ["0.3,0.7", "0.5,0.5"]'),
        ("train-mdnrnn", "validation_share = [0.1, 0.2]"),
        ("train-mdnrnn", 'mixture = ["0.3,0.7", "0.5,0.5"]'),
        ("train-mdnrnn", "later_weight = {low = 1, high = 6}"),
    ],
)
def test_what_chooses_the_frames_that_validate_is_no_part_of_a_space(stage: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=rf"part of what validates wm {stage}.* by validation loss"):
        read_space(write(tmp_path, line), stage)


def test_every_end_is_tried_against_the_other_settings(tmp_path: Path) -> None:
    space = read_space(write(tmp_path, "popsize = {low = 4, high = 8}\nhidden = [0, 8]"), "train-controller")
    tried = [(each.popsize, each.hidden) for each in corners(space, ControllerSettings())]
    assert tried == [(4, 0), (8, 0), (4, 8)]
    with pytest.raises(UsageProblem, match="--set whiten_at=0 takes a linear C"):
        corners(space, ControllerSettings(whiten_at="0"))


def test_values_are_given_back_as_set_takes_them() -> None:
    values = {"in_": "real", "difference": False, "num_envs": None, "learning_rate": 1e-5}
    assert assignments(values, "train-controller") == [
        "in=real",
        "difference=false",
        "num_envs=none",
        "learning_rate=1e-05",
    ]


def test_a_float_is_rounded_within_its_range() -> None:
    assert Range(0.1, 0.99996).rounded(0.99996) == 0.99996
    assert Range(0.00123442, 1.0).rounded(0.00123442) == 0.00123442
    assert Range(1e-4, 1e-2).rounded(0.00123456) == 0.001235
    assert Range(4, 20000).rounded(12345) == 12345


def test_ranges_that_differ_in_a_late_digit_have_different_texts() -> None:
    assert str(Range(1e-4, 1e-2, log=True)) == "0.0001 to 0.01, log"
    assert str(Range(1, 1_000_000)) == "1 to 1e+06"  # as in the recipes of earlier sweeps
    assert str(Range(1, 1_234_567)) == "1 to 1234567"
    assert str(Range(0.0, 0.12345678, step=0.00123456789)) == "0 to 0.12345678, step 0.00123456789"
