"""Options, presets and config files, all derived from wm/settings.py.

Precedence: flag > WM_* variable > --config file > preset > default. Presets and config files are TOML with a table
per command, within it a table per environment for what differs there, and within that a table `later` for what differs
in later rounds of a curriculum.
"""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from wm.errors import MissingInput, UsageProblem
from wm.settings import COMMANDS, Settings
from wm.settings.base import option_name, takes_none, value_type
from wm.units import parse_size

PRESETS = Path(__file__).parent / "presets"
LATER = "later"  # the table of what differs in the rounds after the first
F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Settings)
_TYPES: dict[Any, Any] = {int: int, float: float, str: str}


def preset_names(of: str = "") -> list[str]:
    """The presets that come with the package, with those that are `of` one command alone."""
    own = (PRESETS / of).glob("*.toml") if of else ()
    return sorted(path.stem for path in PRESETS.glob("*.toml")) + sorted(path.stem for path in own)


def _preset_path(name: str) -> Path:
    found = next(PRESETS.rglob(f"{name}.toml"), None)
    assert found is not None, name  # the option offers those that are there
    return found


def _preset_option(of: str = "") -> Callable[[F], F]:
    return click.option(
        "--preset", type=click.Choice(preset_names(of)), default=None, envvar="WM_PRESET",
        help="A table of settings for how much time there is.",
    )  # fmt: skip


def settings_options(group: type[Settings]) -> Callable[[F], F]:
    """Click options for every setting of `group` that has a flag. Unset ones arrive as None."""

    def decorate(function: F) -> F:
        for item in reversed(dataclasses.fields(group)):
            if not item.metadata["section"]:
                continue
            shown = (
                f"{item.metadata['sentence']}  [default: {item.default if item.default not in (None, '') else 'none'}]"
            )
            name = option_name(item)
            if item.type is bool:
                option = click.option(f"{name}/--no-{name[2:]}", item.name, default=None, help=shown)
            else:
                choices = item.metadata["choices"]
                kind = click.Choice(choices) if choices else _TYPES[value_type(item)]
                metavar = None if choices else value_type(item).__name__.upper()
                option = click.option(name, item.name, type=kind, default=None, metavar=metavar, help=shown)
            function = option(function)
        return function

    return decorate


_SHARED = {
    "env": click.option(
        "--env", required=True, envvar="WM_ENV",
        help="Pong, LunarLander, Breakout, CarRacing, CartPole, Acrobot, Catch, or any gymnasium id.",
    ),
    "data": click.option(
        "--data", type=click.Path(path_type=Path), multiple=True,
        help="The dataset; V and M train on several, if given more than once  [default: data/<Env>.zarr]",
    ),
    "run": click.option(
        "--run", type=click.Path(path_type=Path), default=None,
        help="Folder of the environment's artifacts  [default: runs/<Env>]",
    ),
    "name": click.option("--name", default=None, help="Name of this variant of the artifact."),
    "seed": click.option(
        "--seed", type=click.IntRange(min=0), default=0, envvar="WM_SEED", show_default=True,
        help="Everything random follows from it.",
    ),
    "device": click.option(
        "--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), default="auto", envvar="WM_DEVICE",
        show_default=True, help="Where V and M train.",
    ),
    "workers": click.option(
        "--workers", type=click.IntRange(min=0), default=0, envvar="WM_WORKERS",
        help="Processes that play; 0: one per core.",
    ),
    "preset": _preset_option(),
    "quick": click.option("--quick", is_flag=True, help="The same as --preset quick."),
    "config": click.option(
        "--config", type=click.Path(path_type=Path), default=None, envvar="WM_CONFIG",
        help="A TOML file like the presets.",
    ),
    "assignments": click.option(
        "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Any setting by name."
    ),
    "disk_budget": click.option(
        "--disk-budget", default=None, envvar="WM_DISK_BUDGET", metavar="SIZE",
        help="Bytes that may be used at the target, such as 500MB.",
    ),
    "keep_current": click.option(
        "--keep-current", is_flag=True, help="Refuse to archive an artifact of another recipe."
    ),
    "as_json": click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout."),
    "quiet": click.option("--quiet", "-q", is_flag=True, help="Leave out progress; warnings and results stay."),
    "dry_run": click.option("--dry-run", is_flag=True, help="Print the plan with estimates; write nothing."),
    "print_config": click.option(
        "--print-config", is_flag=True, help="Print every setting and where it came from."
    ),
}  # fmt: skip
_TRAINING = {
    "memory_limit": click.option(
        "--memory-limit", default=None, envvar="WM_MEMORY_LIMIT", metavar="SIZE",
        help="Bytes of memory that a training and its processes may use, such as 2GB; it ends with a checkpoint.",
    ),
    "snapshot": click.option(
        "--snapshot", is_flag=True, help="Write what is in memory twice, so that wm memory can tell what grew."
    ),
}  # fmt: skip


def shared_options(*left_out: str, presets: str = "", trains: bool = False) -> Callable[[F], F]:
    """Options that mean the same for every command, less those that would mean nothing for this one; `presets` are the
    command's own, beside everybody's; one that `trains` can be held to some memory."""

    def decorate(function: F) -> F:
        for name, option in reversed((_SHARED | (_TRAINING if trains else {})).items()):
            if name not in left_out:
                function = (_preset_option(presets) if name == "preset" else option)(function)
        return function

    return decorate


@dataclass(frozen=True)
class Sources:
    """Where settings come from besides flags."""

    preset: str | None = None
    config: Path | None = None
    assignments: tuple[str, ...] = ()

    def resolve(
        self, command: str, group: type[S], env: str, flags: Mapping[str, Any] | None = None, later: bool = False
    ) -> tuple[S, dict[str, str]]:
        """The settings of a command for an environment, in a `later` round or not, and where each value came from."""
        values: dict[str, Any] = {}
        origin = {item.name: "default" for item in dataclasses.fields(group)}

        def take(found: Mapping[str, Any], source: str) -> None:
            for name, value in found.items():
                item = _field(group, name, command)
                values[item.name] = _convert(item, value, source)
                origin[item.name] = source

        if self.preset is not None:
            take(_table(_preset_path(self.preset), command, env, later), f"preset {self.preset}")
        if self.config is not None:
            take(_table(self.config, command, env, later), str(self.config))
        for item in dataclasses.fields(group):
            for variable in (f"WM_{item.name.upper()}", f"WM_{command.upper().replace('-', '_')}_{item.name.upper()}"):
                if variable in os.environ:
                    take({item.name: os.environ[variable]}, variable)
        for assignment in self.assignments:
            name, equals, text = assignment.partition("=")
            if not equals:
                raise UsageProblem(f"--set is {assignment!r}; expected NAME=VALUE.")
            take({name: text}, "--set")
        for name, value in (flags or {}).items():
            if value is not None:
                take({name: value}, "flag")
        return group(**values), origin


def _table(path: Path, command: str, env: str, later: bool) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingInput(
            f"config file {path} cannot be read ({error.strerror}); give the path of a TOML file."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(f"config file {path} is not TOML: {error}.") from None
    unknown = set(tables) - set(COMMANDS)
    if unknown:
        raise UsageProblem(f"{path} has a table for {sorted(unknown)[0]!r}; expected {', '.join(COMMANDS)}.")
    table = tables.get(command, {})
    own = table.get(env, {})
    if stray := [name for name, value in own.items() if isinstance(value, dict) and name != LATER]:
        raise UsageProblem(f"{path} has a table [{command}.{env}.{stray[0]}]; there is {LATER} within one.")
    return _values(table) | _values(own) | (own.get(LATER, {}) if later else {})


def _values(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if not isinstance(value, dict)}


def _field(group: type[Settings], name: str, command: str) -> "dataclasses.Field[Any]":
    fields = {item.name.rstrip("_"): item for item in dataclasses.fields(group)}
    wanted = name.replace("-", "_").rstrip("_")
    if wanted in fields:
        return fields[wanted]
    close = difflib.get_close_matches(wanted, fields, n=1)
    hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(fields)}."
    raise UsageProblem(f"{command} has no setting {name!r}; {hint}")


def _convert(item: "dataclasses.Field[Any]", value: Any, source: str) -> Any:
    if takes_none(item) and str(value).lower() in ("", "none"):
        return None
    if item.type is bool:
        text = str(value).lower()
        if text not in ("true", "false", "1", "0", "yes", "no"):
            raise UsageProblem(f"{item.name} is {value!r} ({source}); expected true or false.")
        return text in ("true", "1", "yes")
    if isinstance(value, bool):
        raise UsageProblem(f"{item.name} is {value!r} ({source}); expected {value_type(item).__name__}.")
    try:
        return _TYPES[value_type(item)](value)
    except ValueError:
        raise UsageProblem(f"{item.name} is {value!r} ({source}); expected {value_type(item).__name__}.") from None


def size_limit(text: str | None) -> int | None:
    """`--disk-budget` or `--memory-limit` in bytes."""
    return None if text is None else parse_size(text)


def config_lines(settings: Settings, origin: Mapping[str, str]) -> Sequence[tuple[str, str, str]]:
    """(name, value, source) of every setting."""
    values = dataclasses.asdict(settings)
    return [(name.rstrip("_"), str(values[name]), origin[name]) for name in origin]
