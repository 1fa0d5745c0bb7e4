"""Errors of environments while a Dreamer acts."""

import pytest

from wm.dreamer.collector import guarded
from wm.envs.registry import EnvConfig
from wm.errors import BadData, WmError


def test_an_environments_error_is_reported_with_its_name() -> None:
    def broken() -> None:
        raise KeyError("speed")

    with pytest.raises(WmError, match=r"Pong raised KeyError: 'speed' during an episode; fix the environment"):
        guarded(EnvConfig("Pong"), broken)


def test_errors_of_this_project_pass_unchanged() -> None:
    def refusing() -> None:
        raise BadData("damaged")

    with pytest.raises(BadData, match=r"^damaged$"):
        guarded(EnvConfig("Pong"), refusing)
