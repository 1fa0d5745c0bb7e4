from pathlib import Path

import pytest

from stages.options import Sources
from wm.errors import UsageProblem
from wm.settings import CollectSettings


def test_flag_beats_set_beats_variable_beats_config_beats_preset_beats_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text("[collect]\nepisodes = 5\n[collect.Pong]\nepisodes = 6\n")

    def episodes(flag: int | None = None, **sources: object) -> tuple[int, str]:
        flags = {"episodes": flag}
        settings, origin = Sources(**sources).resolve("collect", CollectSettings, "Pong", flags)  # type: ignore[arg-type]
        return settings.episodes, origin["episodes"]

    config = tmp_path / "c.toml"
    assert episodes() == (50, "default")
    assert episodes(preset="quick")[1] == "preset quick"
    assert episodes(preset="quick", config=config) == (6, str(config))
    monkeypatch.setenv("WM_COLLECT_EPISODES", "7")
    assert episodes(preset="quick", config=config) == (7, "WM_COLLECT_EPISODES")
    assert episodes(config=config, assignments=("episodes=8",)) == (8, "--set")
    assert episodes(9, config=config, assignments=("episodes=8",)) == (9, "flag")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[colect]\n", "has a table for 'colect'"),
        ("[collect]\nepisode = 3\n", "did you mean episodes"),
        ("[collect]\nepisodes = true\n", "expected int"),
        ("[collect\n", "is not TOML"),
        ("[collect.Pong.soon]\nepisodes = 3\n", "has a table .collect.Pong.soon.; there is later within one"),
    ],
)
def test_a_bad_config_file_is_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(UsageProblem, match=told):
        Sources(config=tmp_path / "c.toml").resolve("collect", CollectSettings, "Pong")


def test_later_rounds_have_a_table_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        "[collect]\nsize = 32\n[collect.Pong]\nepisodes = 6\nmax_steps = 9\n[collect.Pong.later]\nepisodes = 7\n"
    )
    sources = Sources(config=tmp_path / "c.toml")
    for later, episodes in ((False, 6), (True, 7)):
        found = sources.resolve("collect", CollectSettings, "Pong", later=later)[0]
        assert (found.size, found.max_steps, found.episodes) == (32, 9, episodes)
