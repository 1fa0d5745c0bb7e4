import tomllib
from pathlib import Path

import pytest

from wm.errors import UsageProblem
from wm.settings import COMMANDS, CollectSettings, CurriculumSettings, VaeSettings
from wm.settings.sources import (
    Assignment,
    Sourced,
    Sources,
    Tables,
    check_variables,
    curriculum_tables,
    parse_assignment,
    to_json,
    to_toml,
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[colect]\n", "has a table for 'colect'; did you mean collect?"),
        ("[collect]\nepisode = 3\n", "did you mean episodes"),
        ("[collect]\nepisodes = true\n", "expected a whole number"),
        ("[collect]\nepisodes = [3]\n", "expected a whole number"),
        ("[collect]\ngray = 'maybe'\n", "expected true or false"),
        ("[collect\n", "is not TOML"),
        ("[collect.Pong.soon]\nepisodes = 3\n", r"has a table \[collect.Pong.soon\]; the only one within is later"),
        ("[collect.my_games.Dot]\nepisodes = 3\n", r"\[collect.my_games.Dot\]; .* a name with a dot has quotes"),
        ("[collect.pong]\nepisodes = 3\n", r"has a table \[collect.pong\]; did you mean Pong\?"),
        ("[collect.episodes]\nPong = 3\n", "and episodes is a setting; expected `episodes = VALUE`"),
        ("[collect]\nmax-steps = {Pong = 3}\n", "and max-steps is a setting"),
        ("[collect.Pong]\nmax-steps = 3\nmax_steps = 4\n", "has both 'max-steps' and 'max_steps', which are one"),
        ("disk-budget = '1GB'\ndisk_budget = '2GB'\n", "has both 'disk-budget' and 'disk_budget'"),
    ],
)
def test_a_bad_config_file_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(UsageProblem, match=message):
        Sources(config=tmp_path / "c.toml").resolve("collect", CollectSettings, "Pong")


def test_a_value_out_of_bounds_is_said_to_be_where_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[train-vae]\nlearning_rate = -1.0\nbatch = 0\n")

    def message(sources: Sources) -> str:
        with pytest.raises(UsageProblem) as problem:
            sources.resolve("train-vae", VaeSettings, "Pong")
        return str(problem.value)

    said = message(Sources(config=tmp_path / "c.toml", assignments=(Assignment("train-vae", "batch", "64"),)))
    assert said.endswith(f"expected at least 1e-08 (learning_rate is set in {tmp_path / 'c.toml'}).")
    assert message(Sources(variables={"WM_TRAIN_VAE_BATCH": "0"})).endswith("(batch is set in WM_TRAIN_VAE_BATCH).")
    assert message(Sources(assignments=(Assignment("train-vae", "batch", "0"),))).endswith("expected at least 1.")


def test_a_file_that_never_ends_is_not_read_to_its_end() -> None:
    with pytest.raises(UsageProblem, match="config file /dev/zero has more than 1,048,576 bytes"):
        Sources(config=Path("/dev/zero")).resolve("collect", CollectSettings, "Pong")


def test_later_rounds_have_a_table_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        "[collect]\nsize = 32\n[collect.Pong]\nepisodes = 6\nmax_steps = 9\n[collect.Pong.later]\nepisodes = 7\n"
    )
    sources = Sources(config=tmp_path / "c.toml")
    for later, episodes in ((False, 6), (True, 7)):
        settings = sources.resolve("collect", CollectSettings, "Pong", later=later)[0]
        assert (settings.size, settings.max_steps, settings.episodes) == (32, 9, episodes)


@pytest.mark.parametrize("table", ["train-vae.later", "train-vae.Pong.later"])
def test_a_table_of_later_rounds_that_no_round_reads_is_refused(tmp_path: Path, table: str) -> None:
    (tmp_path / "c.toml").write_text(f"[{table}]\nsteps = 7\n")
    with pytest.raises(UsageProblem, match=rf"\[{table}\]; later rounds have the train-vae settings of the first"):
        Sources(config=tmp_path / "c.toml").resolve("train-vae", VaeSettings, "Pong")


def test_a_setting_can_be_given_none() -> None:
    given = parse_assignment("init_from=none", "train-vae")
    settings, origin = Sources(assignments=(given,)).resolve("train-vae", VaeSettings, "Pong")
    assert (settings.init_from, origin["init_from"]) == (None, "--set")


def test_an_assignment_belongs_to_its_command_or_to_the_stage_it_names() -> None:
    assert parse_assignment("latent=16", "train-vae") == Assignment("train-vae", "latent", "16")
    assert parse_assignment("train-vae.latent=16", "train-vae") == Assignment("train-vae", "latent", "16")
    assert parse_assignment("train-vae.latent=16", "curriculum") == Assignment("train-vae", "latent", "16")
    assert parse_assignment("jobs=2", "curriculum") == Assignment("curriculum", "jobs", "2")
    assert parse_assignment("train-controller.in=dream", "curriculum") == Assignment("train-controller", "in_", "dream")


def test_an_assignment_for_later_rounds_holds_in_them_alone_and_over_that_for_all() -> None:
    texts = "collect.later.episodes=12", "collect.episodes=7"
    sources = Sources(assignments=tuple(parse_assignment(text, "curriculum") for text in texts))
    episodes = [sources.resolve("collect", CollectSettings, "Pong", later=later)[0].episodes for later in (False, True)]
    assert episodes == [7, 12]
    with pytest.raises(UsageProblem, match="there is no stage"):
        parse_assignment("collect.later.episodes=12", "collect")
    with pytest.raises(UsageProblem, match="later rounds have the train-vae settings of the first"):
        parse_assignment("train-vae.later.latent=12", "curriculum")


def test_the_jobs_of_a_curriculum_are_no_setting_of_its_stages() -> None:
    sources = Sources(assignments=(parse_assignment("jobs=2", "curriculum"),))
    assert sources.resolve("curriculum", CurriculumSettings, "")[0].jobs == 2
    for name, group in COMMANDS.items():
        sources.resolve(name, group, "Pong")


def test_variables_that_something_reads_are_known() -> None:
    check_variables(["WM_TRAIN_VAE_LATENT", "WM_TRAIN_CONTROLLER_IN", "WM_SEED", "HOME"], ["WM_SEED"])
    with pytest.raises(UsageProblem, match="did you mean WM_COLLECT_EPISODES or WM_TRAIN_VAE_EPISODES or WM_EVAL"):
        check_variables(["WM_EPISODES"], ["WM_SEED"])
    with pytest.raises(UsageProblem, match="did you mean WM_SEED"):
        check_variables(["WM_SED"], ["WM_SEED"])


def test_tables_are_toml_with_the_source_as_a_comment() -> None:
    tables = {
        (): {"seed": Sourced(3, "WM_SEED"), "name": Sourced(None, "default")},
        ("train-vae", "tests.tiny:Tiny-v0"): {"clip": Sourced(1e-05, "--set"), "init_from": Sourced(None, "default")},
    }
    text = to_toml(tables)
    assert tomllib.loads(text) == {"seed": 3, "train-vae": {"tests.tiny:Tiny-v0": {"clip": 1e-05, "init_from": "none"}}}
    assert "seed = 3       # WM_SEED" in text
    assert to_json(tables)["train-vae"]["tests.tiny:Tiny-v0"]["clip"] == {"value": 1e-05, "source": "--set"}


def test_a_source_of_any_characters_is_a_comment_of_one_line() -> None:
    text = to_toml({("train-vae",): {"steps": Sourced(3, "a\nb\x1b.toml")}})
    assert tomllib.loads(text) == {"train-vae": {"steps": 3}}
    assert text.endswith(r"# a\nb\x1b.toml")


def test_values_of_any_characters_are_read_again() -> None:
    text = to_toml({("collect", "a\x7f"): {"policy": Sourced('\x7f\x00\n\t"\u2028é', "--set")}})
    assert tomllib.loads(text) == {"collect": {"a\x7f": {"policy": '\x7f\x00\n\t"\u2028é'}}}


def test_the_tables_of_a_curriculum_hold_what_differs_by_environment_and_round(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        "[collect]\nsize = 32\n[collect.Pong]\ngray = true\n[collect.Pong.later]\nepisodes = 7\n"
    )
    sources = Sources(config=tmp_path / "c.toml")
    tables = curriculum_tables(
        *sources.resolve("curriculum", CurriculumSettings, "", {"envs": "Pong,Acrobot"}), sources
    )
    source = str(tmp_path / "c.toml")
    assert tables["collect",]["size"] == Sourced(32, source)
    assert tables["collect", "Pong"] == {"gray": Sourced(True, source)}
    assert tables["collect", "Pong", "later"] == {"episodes": Sourced(7, source)}
    assert ("collect", "Acrobot") not in tables
    assert ("train-dreamer",) not in tables


def test_a_flag_of_a_curriculum_holds_for_every_environment_of_its_tables(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[curriculum]\nrounds = 3\n[curriculum.Pong]\nrounds = 4\n")
    sources = Sources(config=tmp_path / "c.toml")

    def tables(**flags: int) -> Tables:
        resolved = sources.resolve("curriculum", CurriculumSettings, "", {"envs": "Pong", **flags})
        return curriculum_tables(*resolved, sources)

    assert tables()["curriculum", "Pong"]["rounds"].value == 4
    assert ("curriculum", "Pong") not in tables(rounds=3)
