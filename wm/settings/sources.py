"""Where settings come from, and which source wins: flag > --set > WM_* variable > config file > preset > default.

Presets and config files are TOML with a table per command, within it a table per environment for what differs there,
and within that a table `later` for what differs in later rounds of a curriculum. Above its tables a config file may
give the options that all commands share.
"""

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from wm.errors import MissingInput, UsageProblem
from wm.settings import COMMANDS, STAGES_OF_AGENT, CurriculumSettings
from wm.settings.base import Field, Settings, convert, find_setting, given_as, public_name, suggestion

LATER = "later"  # the table of what differs in the rounds after the first
AS_THE_FIRST = ("curriculum", "train-vae", "train-dreamer")  # later rounds have these settings of the first
DEFAULT, FLAG, ASSIGNED, PRESET = "default", "flag", "--set", "preset "
STAGES = tuple(name for name in COMMANDS if name != "curriculum")
LARGEST_FILE = 1 << 20  # bytes of a TOML file; one with every setting of every command has 20 kB
PRESETS = Path(__file__).parent / "presets"
S = TypeVar("S", bound=Settings)


class Assignment(NamedTuple):
    """A `--set`: the setting's command, its name, the value as text, and whether it is for `later` rounds alone."""

    command: str
    name: str
    text: str
    later: bool = False


def parse_assignment(text: str, command: str) -> Assignment:
    """`name=value` or `command.name=value`, given to `command`. A curriculum takes the settings of every stage, and of
    its later rounds `stage.later.name=value`."""
    path, equals, value = text.partition("=")
    stage, dot, name = path.strip().rpartition(".")
    if not equals or not name:
        raise UsageProblem(f"--set is {text!r}; expected NAME=VALUE.")
    stages = COMMANDS if command == "curriculum" else [command]
    later = command == "curriculum" and stage.endswith(f".{LATER}")
    if later and (stage := stage.removesuffix(f".{LATER}")) in AS_THE_FIRST:
        raise UsageProblem(f"--set {path}: later rounds have the {stage} settings of the first; leave out {LATER}.")
    if dot and stage not in stages:
        if stage in COMMANDS:
            raise UsageProblem(f"--set {path} is a setting of wm {stage}; wm {command} takes {command}.NAME.")
        raise UsageProblem(f"--set {path}: there is no stage {stage!r}; {suggestion(stage, stages)}")
    if not dot and command == "curriculum":
        _require_own(name)
    item = find_setting(COMMANDS[stage or command], name, stage or command)
    return Assignment(stage or command, item.name, value.strip(), later)


def _require_own(name: str) -> None:
    """Raise UsageProblem if `wm curriculum` is given a stage's setting without the stage."""
    key = name.replace("-", "_")
    owners = [stage for stage in STAGES if key in map(public_name, dataclasses.fields(COMMANDS[stage]))]
    if owners and key not in map(public_name, dataclasses.fields(COMMANDS["curriculum"])):
        names = " or ".join(f"{stage}.{key}" for stage in owners)
        raise UsageProblem(f"curriculum has no setting {name!r}; did you mean {names}?")


def variable_name(command: str, item: Field) -> str:
    """`WM_TRAIN_VAE_LATENT`."""
    return f"WM_{command}_{public_name(item)}".upper().replace("-", "_")


def _all_settings() -> list[tuple[str, Field]]:
    return [(command, item) for command, group in COMMANDS.items() for item in dataclasses.fields(group)]


def check_variables(variables: Iterable[str], unscoped: Sequence[str]) -> None:
    """Raise UsageProblem for a WM_* variable that is neither a setting's nor one of `unscoped`."""
    scoped = {variable_name(command, item): public_name(item) for command, item in _all_settings()}
    for name in sorted(variables):
        if not name.startswith("WM_") or name in scoped or name in unscoped:
            continue
        setting = name.removeprefix("WM_").lower()
        ends = [other for other, setting_name in scoped.items() if setting_name == setting]
        hint = f"did you mean {' or '.join(ends)}?" if ends else suggestion(name, [*unscoped, *scoped])
        if hint.startswith("expected"):
            hint = "expected WM_<COMMAND>_<SETTING>, such as WM_TRAIN_VAE_STEPS."
        raise UsageProblem(f"{name} is no variable of wm; {hint}")


@dataclass(frozen=True)
class Sources:
    """Where settings come from besides flags."""

    preset: Path | None = None
    config: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    assignments: tuple[Assignment, ...] = ()

    def resolve(
        self, command: str, group: type[S], env: str, flags: Mapping[str, Any] | None = None, later: bool = False
    ) -> tuple[S, dict[str, str]]:
        """The settings of a command for an environment, in a `later` round or not, and where each value came from."""
        values: dict[str, Any] = {}
        origin = {item.name: DEFAULT for item in dataclasses.fields(group)}

        def take(values_of_source: Mapping[str, Any], source: str) -> None:
            for name, value in values_of_source.items():
                item = find_setting(group, name, command)
                values[item.name] = convert(item, value, source)
                origin[item.name] = source

        if self.preset is not None:
            take(_values_for(read_tables(self.preset), self.preset, command, env, later), PRESET + self.preset.stem)
        if self.config is not None:
            take(_values_for(read_tables(self.config), self.config, command, env, later), str(self.config))
        for item in dataclasses.fields(group):
            if (variable := variable_name(command, item)) in self.variables:
                take({item.name: self.variables[variable]}, variable)
        assignments = sorted(
            (each for each in self.assignments if each.command == command), key=lambda each: each.later
        )
        take({each.name: each.text for each in assignments if later or not each.later}, ASSIGNED)
        take({name: value for name, value in (flags or {}).items() if value is not None}, FLAG)
        for name in group.of_other_algorithms(values):  # a preset has values for every algorithm
            if origin[name].startswith(PRESET):
                del values[name]
                origin[name] = DEFAULT
        try:
            return group(**values), origin
        except UsageProblem as problem:
            raise UsageProblem(_with_origins(str(problem), group, origin)) from None


def _with_origins(message: str, group: type[Settings], origin: Mapping[str, str]) -> str:
    """The message, which names settings as the command line gives them, and where those of another source came from."""
    elsewhere = chosen_settings(origin) - typed_settings(origin)
    candidates = (item for item in dataclasses.fields(group) if item.name in elsewhere)
    named = [item for item in candidates if re.search(rf"{given_as(item)}(?![\w-])", message)]
    places = ", ".join(f"{public_name(item)} is set in {origin[item.name]}" for item in named)
    return f"{message.removesuffix('.')} ({places})." if places else message


def typed_settings(origin: Mapping[str, str]) -> frozenset[str]:
    """The names of the settings that the command line gave, by a flag or --set; `origin` says where each came from.
    Presets and files have settings for every use of a command."""
    return frozenset(name for name, source in origin.items() if source in (FLAG, ASSIGNED))


def chosen_settings(origin: Mapping[str, str]) -> frozenset[str]:
    """The names of the settings that the user gave, on the command line, in a file or in the surroundings: all but
    defaults and presets."""
    chosen = (name for name, source in origin.items() if source != DEFAULT and not source.startswith(PRESET))
    return frozenset(chosen)


def preset_names(family: str = "") -> list[str]:
    """The presets for all commands, and those of the `family` of a command, such as dreamer, alone."""
    own = (PRESETS / family).glob("*.toml") if family else ()
    return sorted(path.stem for path in PRESETS.glob("*.toml")) + sorted(path.stem for path in own)


def find_preset(name: str) -> Path:
    """The file of a preset. Raises UsageProblem with the nearest name."""
    if (path := next((path for path in PRESETS.rglob("*.toml") if path.stem == name), None)) is None:
        raise UsageProblem(f"--preset is {name!r}; {suggestion(name, preset_names())}")
    return path


def read_tables(path: Path) -> dict[str, Any]:
    """A preset or config file. Raises MissingInput or UsageProblem."""
    tables = read_toml(path, "config file", "expected a table per command")
    for name, value in tables.items():
        if isinstance(value, dict) and name not in COMMANDS:
            raise UsageProblem(f"{path} has a table for {name!r}; {suggestion(name, COMMANDS)}")
    _require_one_spelling(tables, path)
    return tables


def _require_one_spelling(table: Mapping[str, Any], path: Path) -> None:
    """Raise UsageProblem for a value that is given twice, as `learning_rate` and as `learning-rate`."""
    given: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            _require_one_spelling(value, path)
        elif (first := given.setdefault(name.replace("-", "_"), name)) != name:
            raise UsageProblem(f"{path} has both {first!r} and {name!r}, which are one setting; leave one of them out.")


def read_toml(path: Path, what: str, expected: str) -> dict[str, Any]:
    """The values of a TOML file that people write. Raises MissingInput or UsageProblem, which say `what` it is."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)  # also of a pipe, or of a device, which may never end
        if len(data) > LARGEST_FILE:
            raise UsageProblem(f"{what} {path} has more than {LARGEST_FILE:,} bytes; give the path of a TOML file.")
        values = tomllib.loads(data.decode("utf-8-sig"))  # Windows' editors begin with a byte-order mark
        huge = next((name for name, value in values.items() if _has_huge_integer(value)), None)
    except OSError as error:
        raise MissingInput(f"{what} {path} cannot be read ({error.strerror}); give the path of a TOML file.") from None
    except ValueError as error:  # no TOML, no UTF-8, an integer of thousands of digits
        raise UsageProblem(f"{what} {path} is not TOML: {str(error)[:200]}.") from None
    except RecursionError:
        raise UsageProblem(f"{what} {path} is nested too deeply; {expected}.") from None
    if huge is not None:
        raise UsageProblem(f"{what} {path}: {huge} has an integer beyond 64 bits; expected a smaller one.")
    return values


def _has_huge_integer(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_huge_integer, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= 1 << 63


def _table_in(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The table of this name within another; a plain value of this name is a setting."""
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _values_for(tables: Mapping[str, Any], path: Path, command: str, env: str, later: bool) -> dict[str, Any]:
    table = _table_in(tables, command)
    _require_tables_of_environments(table, path, command, env)
    own = _table_in(table, env)
    if not later:
        return _scalars(table) | _scalars(own)
    return _scalars(table) | _table_in(table, LATER) | _scalars(own) | _table_in(own, LATER)


def _require_tables_of_environments(table: Mapping[str, Any], path: Path, command: str, env: str) -> None:
    """Raise UsageProblem for a table within that of a command that is read for no environment, or in no round."""
    settings = {public_name(item) for item in dataclasses.fields(COMMANDS[command])}
    if command in AS_THE_FIRST:
        for where, holder in ((command, table), (f"{command}.{env}", _table_in(table, env))):
            if _table_in(holder, LATER):
                raise UsageProblem(
                    f"{path} has a table [{where}.{LATER}]; later rounds have the {command} settings of the first, "
                    "so leave it out."
                )
    for name in (name for name, value in table.items() if isinstance(value, dict) and name != LATER):
        problem = f"{path} has a table [{command}.{name}"
        if name.replace("-", "_") in settings:
            raise UsageProblem(f"{problem}], and {name} is a setting; expected `{name} = VALUE` within [{command}].")
        if name != env and name.casefold() == env.casefold():
            raise UsageProblem(f"{problem}]; did you mean {env}?")
        if stray := [inner for inner in table[name] if isinstance(table[name][inner], dict) and inner != LATER]:
            raise UsageProblem(
                f"{problem}.{stray[0]}]; the only one within is {LATER}, and a name with a dot has quotes."
            )


def _scalars(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if not isinstance(value, dict)}


class Sourced(NamedTuple):
    """A value, and where it came from."""

    value: Any
    source: str


Tables = dict[tuple[str, ...], dict[str, Sourced]]  # () are the lines above the tables


def sourced_settings(settings: Settings, origin: Mapping[str, str]) -> dict[str, Sourced]:
    """Every setting of a group with its source."""
    return {
        public_name(item): Sourced(getattr(settings, item.name), origin[item.name])
        for item in dataclasses.fields(settings)
    }


def curriculum_tables(settings: CurriculumSettings, origin: Mapping[str, str], sources: Sources) -> Tables:
    """The settings of a curriculum's stages: a table each, and tables for what differs in an environment or later.
    `origin` are the sources of its own settings; flags hold for every environment."""
    tables: Tables = {}
    flags = {public_name(item) for item in dataclasses.fields(settings) if origin[item.name] == FLAG}
    for stage in ("curriculum", *STAGES_OF_AGENT[settings.agent]):
        group = COMMANDS[stage]
        general = sourced_settings(*sources.resolve(stage, group, ""))
        if stage != "curriculum":  # its own were resolved with flags
            tables[stage,] = general
        for env in settings.names:
            own = sourced_settings(*sources.resolve(stage, group, env))
            later = sourced_settings(*sources.resolve(stage, group, env, later=True))
            for path, values, others in (((stage, env), own, general), ((stage, env, LATER), later, own)):
                different = {name: value for name, value in values.items() if value != others[name]}
                if stage == "curriculum":
                    different = {name: value for name, value in different.items() if name not in flags}
                if different:
                    tables[path] = different
    return tables


def to_toml(tables: Tables) -> str:
    """A config file that gives these values, the source of each as a comment."""
    blocks = []
    for path, values in tables.items():
        head = [f"[{'.'.join(map(_key, path))}]"] if path else []
        texts = {name: _line(name, value, top=not path) for name, value in values.items()}
        width = min(max(map(len, texts.values()), default=0), 50)
        lines = [f"{text:<{width}}  # {_comment(values[name])}" for name, text in texts.items()]
        blocks.append("\n".join(head + lines))
    return "\n\n".join(blocks)


def _comment(value: Sourced) -> str:
    """Where a value came from, in one line: the path of a config file may have any character."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value.source)


def _line(name: str, value: Sourced, top: bool) -> str:
    # Above the tables an unset value is a comment: an option cannot be set to none.
    return f"# {name} = none" if top and value.value is None else f"{name} = {_toml(value.value)}"


def _toml(value: Any) -> str:
    # A TOML text may hold any character but those that are control characters, of which JSON escapes all but this one.
    return json.dumps("none" if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    bare = name.replace("-", "").replace("_", "")
    return name if bare.isalnum() and bare.isascii() else _toml(name)


def to_json(tables: Tables) -> dict[str, Any]:
    """The same as plain values: `{"seed": {"value": 0, "source": "default"}, "train-vae": {"latent": ...}}`."""
    tree: dict[str, Any] = {}
    for path, values in tables.items():
        table = tree
        for part in path:
            table = table.setdefault(part, {})
        table |= {name: value._asdict() for name, value in values.items()}
    return tree
