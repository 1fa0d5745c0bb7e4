import pytest

from wm.errors import UsageProblem
from wm.settings import CollectSettings, VaeSettings


def test_a_value_outside_its_bound_names_the_option_the_value_and_the_bound() -> None:
    with pytest.raises(UsageProblem, match=r"--episodes is -3; expected at least 1"):
        CollectSettings(episodes=-3)


def test_a_choice_lists_what_there_is() -> None:
    with pytest.raises(UsageProblem, match="expected one of auto, random, sticky"):
        CollectSettings(policy="clever")


def test_a_setting_without_a_flag_is_named_as_it_is_set() -> None:
    with pytest.raises(UsageProblem, match="--set basis is 'sines'; expected one of cosines, polynomials"):
        VaeSettings(basis="sines")


def test_settings_that_cannot_change_the_result_are_left_out_of_the_recipe() -> None:
    assert "ram" not in VaeSettings().result_settings()
    assert VaeSettings().result_settings()["latent"] == 32


def test_a_setting_that_came_later_counts_only_when_it_is_used() -> None:
    assert "orientations" not in VaeSettings().result_settings()
    assert VaeSettings(orientation_targets=2).result_settings()["orientations"] == 2
