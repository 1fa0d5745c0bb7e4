import dataclasses
from pathlib import Path

import pytest

from stages.cli import run
from stages.options import SHARED, WHERE, common_options, read_sources, settings_options
from wm.errors import UsageProblem
from wm.settings import COMMANDS, CollectSettings
from wm.settings.base import option_name
from wm.settings.sources import preset_names


def test_flag_beats_set_beats_variable_beats_config_beats_preset_beats_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text("[collect]\nepisodes = 5\n[collect.Pong]\nepisodes = 6\n")
    config = tmp_path / "c.toml"

    def episodes(
        preset: str | None = None,
        config: Path | None = None,
        assignments: tuple[str, ...] = (),
        flag: int | None = None,
    ) -> tuple[int, str]:
        sources = read_sources(preset, config, assignments, "collect")
        settings, origin = sources.resolve("collect", CollectSettings, "Pong", {"episodes": flag})
        return settings.episodes, origin["episodes"]

    assert episodes() == (50, "default")
    assert episodes("quick")[1] == "preset quick"
    assert episodes("quick", config) == (6, str(config))
    monkeypatch.setenv("WM_COLLECT_EPISODES", "7")
    assert episodes("quick", config) == (7, "WM_COLLECT_EPISODES")
    assert episodes("quick", config, ("episodes=8",)) == (8, "--set")
    assert episodes("quick", config, ("episodes=8", "collect.episodes=10")) == (10, "--set")
    assert episodes("quick", config, ("episodes=8",), 9) == (9, "flag")


def test_a_variable_without_its_command_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WM_EPISODES", "7")
    assert read_sources().resolve("collect", CollectSettings, "Pong")[0].episodes == 50


def test_every_setting_with_a_section_is_an_option_in_that_section() -> None:
    for group in COMMANDS.values():
        listed = {option.opts[0]: option.section for option in settings_options(group) if not option.hidden}
        items = [item for item in dataclasses.fields(group) if item.metadata["section"]]
        assert listed == {option_name(item): item.metadata["section"] for item in items}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_has_few_options_of_its_own(name: str) -> None:
    assert len([option for option in settings_options(COMMANDS[name]) if not option.hidden]) <= 10


def test_common_options_are_all_shared_options_but_the_places() -> None:
    named = {word.rstrip(",") for names, _ in common_options() for word in names.split()}
    for option in SHARED.values():
        assert option.hidden or option.section == WHERE or option.opts[0] in named


def test_an_unknown_preset_gets_the_nearest_name() -> None:
    with pytest.raises(UsageProblem, match="did you mean laptop"):
        read_sources("labtop")
    assert "nano" in preset_names("dreamer")
    assert "nano" not in preset_names()


def test_a_script_may_be_given_the_path_of_wm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WM_BIN", "/somewhere/wm")
    assert run(["train-vae", "--env", "Pong", "--print-config"]) == 0
    monkeypatch.setenv("WM_BINN", "/somewhere/wm")
    assert run(["train-vae", "--env", "Pong", "--print-config"]) == UsageProblem.exit_code


@pytest.mark.parametrize("name", ["WM_WORKER_TIMEOUT", "WM_PATIENCE"])
def test_the_workers_timeout_has_a_variable_and_its_earlier_name(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "2.5")
    assert run(["train-vae", "--env", "Pong", "--print-config"]) == 0
    page = capsys.readouterr().out
    assert "worker_timeout = 2.5" in page
    assert f"# {name}" in page
    assert "patience = 10 " in page


def test_a_flag_that_changes_returns_is_printed_and_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("train-controller", "--env", "Catch")
    for flags in ((), ("--executor", "dask:tcp://a:1", "--executor-any-cpu")):
        assert run([*words, *flags, "--print-config"]) == 0
        page = capsys.readouterr().out
        assert f"executor_any_cpu = {str(bool(flags)).lower()}" in page
        (tmp_path / "c.toml").write_text(page)
        assert run(["train-controller", "--config", str(tmp_path / "c.toml"), "--print-config"]) == 0
        assert f"executor_any_cpu = {str(bool(flags)).lower()}" in capsys.readouterr().out
