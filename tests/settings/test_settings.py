import dataclasses
from typing import Any

import pytest

from wm.errors import UsageProblem
from wm.settings import (
    COMMANDS,
    CollectSettings,
    ControllerSettings,
    DreamerSettings,
    DreamSettings,
    EvaluateSettings,
    MdnRnnSettings,
    VaeSettings,
)
from wm.settings.base import MOST, Field, default_text, given_as, value_type


def test_a_value_outside_its_bound_names_the_option_the_value_and_the_bound() -> None:
    with pytest.raises(UsageProblem, match=r"--episodes is -3; expected at least 1"):
        CollectSettings(episodes=-3)


def test_a_choice_lists_the_choices() -> None:
    with pytest.raises(UsageProblem, match="expected one of auto, random, sticky"):
        CollectSettings(policy="clever")


def test_a_setting_without_an_option_is_named_as_it_is_set() -> None:
    with pytest.raises(UsageProblem, match="--set position_basis is 'sines'; expected one of cosines, polynomials"):
        VaeSettings(position_basis="sines")


def test_settings_that_cannot_change_the_result_are_left_out_of_the_recipe() -> None:
    assert "ram" not in VaeSettings().result_settings()
    assert VaeSettings().result_settings()["latent"] == 32
    assert ControllerSettings(in_="dream").result_settings()["max_env_steps"] == 0  # refused, but earlier ones had it


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_no_setting(value: float) -> None:
    for group in COMMANDS.values():
        for item in (item for item in dataclasses.fields(group) if value_type(item) is float):
            with pytest.raises(UsageProblem, match=rf"{given_as(item)} is {value}; expected a finite number\.$"):
                group(**{item.name: value})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_hours", {}, "--max-hours is {}; expected a number."),
        ("max_hours", True, "--max-hours is True; expected a number."),
        ("popsize", 2.0, "--popsize is 2.0; expected a whole number."),
        ("popsize", [], "--popsize is []; expected a whole number."),
        ("algo", 3, "--algo is 3; expected text."),
        ("imitate", 1, "--set imitate is 1; expected true or false."),
    ],
)
def test_a_value_of_another_type_is_no_setting(name: str, value: object, expected: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        ControllerSettings(**{name: value})  # type: ignore[arg-type]
    assert str(caught.value) == expected


def test_every_whole_number_has_a_largest_value() -> None:
    for group in COMMANDS.values():
        for item in (item for item in dataclasses.fields(group) if value_type(item) is int):
            with pytest.raises(UsageProblem, match=rf"{given_as(item)} is .*; expected (at most \d+|one of .*)\.$"):
                group(**{item.name: MOST + 1})


@pytest.mark.parametrize(
    ("settings", "name", "most"),
    [
        (ControllerSettings, "popsize", 10_000),
        (ControllerSettings, "episodes_per_eval", 1000),
        (ControllerSettings, "validation_episodes", 10**6),
        (EvaluateSettings, "episodes", 10**6),
        (DreamSettings, "dreams", 10**5),
        (DreamSettings, "max_steps", 10**4),
        (VaeSettings, "batch", 10**5),
        (MdnRnnSettings, "seq_len", 10**4),
        (DreamerSettings, "deter", 8192),
    ],
)
def test_what_is_held_in_memory_at_once_has_a_bound_of_its_own(settings: Any, name: str, most: int) -> None:
    settings(**{name: most})
    with pytest.raises(UsageProblem, match=f"expected at most {most}"):
        settings(**{name: most + 1})


def test_a_number_of_many_digits_is_not_written_out() -> None:
    with pytest.raises(UsageProblem, match=r"--episodes is a number of more than 30 digits; expected at most 10{9}"):
        CollectSettings(episodes=10**400)


def items() -> list[Field]:
    return [item for group in COMMANDS.values() for item in dataclasses.fields(group)]


def test_no_default_is_a_sentinel() -> None:
    for item in items():
        assert default_text(item), item.name
        assert not isinstance(item.default, float) or abs(item.default) < 1e6, item.name
        assert item.default != -1, item.name
        assert default_text(item) != "0" or "0: " not in item.metadata["sentence"], item.name


def test_a_default_of_0_is_shown_as_what_it_means() -> None:
    shown = {item.name: default_text(item) for item in dataclasses.fields(ControllerSettings)}
    assert (shown["max_hours"], shown["max_env_steps"], shown["hidden"]) == ("no limit", "no limit", "linear")
    assert default_text(VaeSettings.__dataclass_fields__["require_probe"]) == "only warn below 0.9"
