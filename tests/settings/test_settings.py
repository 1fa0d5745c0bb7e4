import dataclasses

import pytest

from wm.errors import UsageProblem
from wm.settings import COMMANDS, CollectSettings, VaeSettings
from wm.settings.base import Field, default_text


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


def items() -> list[Field]:
    return [item for group in COMMANDS.values() for item in dataclasses.fields(group)]


def test_no_default_is_a_sentinel() -> None:
    for item in items():
        assert default_text(item), item.name
        assert not isinstance(item.default, float) or abs(item.default) < 1e6, item.name
        assert item.default != -1, item.name
