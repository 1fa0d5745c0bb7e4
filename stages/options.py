"""Options of the command line and the sections of its help.

A stage's own options derive from its settings. The options that mean the same everywhere are declared here: where
things are (--env, --data, --run, --name), and the common ones, which the help of a command names in one line.
"""

import dataclasses
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from stages import console
from stages.parameter_types import DatasetPath, GivenPath, Number, OneOf, WrongValue
from wm.errors import BadData, UsageProblem
from wm.runtime import LOCAL, MOST_WORKERS, WORKER_TIMEOUT
from wm.settings import COMMANDS, CURRICULA, Settings
from wm.settings.base import LARGEST_SEED, Field, default_text, option_name, public_name, suggestion, value_type
from wm.settings.sources import (
    PRESETS,
    Sources,
    check_variables,
    find_preset,
    parse_assignment,
    preset_names,
    read_tables,
)

# WM_LEADER is set by `wm curriculum --jobs` for the processes it starts; by WM_BIN scripts are given the path of wm.
INTERNAL = ("WM_LEADER", "WM_BIN")
WHERE, COMMON = "Where", "Common options"
# A no-break space keeps a bracket with its default on one line; up to 40 characters, or lines would be ragged.
_NO_BREAK, _BRACKETS = "\xa0", re.compile(r"\[[^\[\]]{,40}\]")


class UnbrokenBrackets(click.HelpFormatter):
    """Help in which what stands in brackets, such as a default, is on one line."""

    def write_text(self, text: str) -> None:
        """A paragraph."""
        super().write_text(_unbroken(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """A definition list."""
        super().write_dl([(term, _unbroken(text)) for term, text in rows], col_max, col_spacing)

    def write(self, string: str) -> None:
        """Lines that are wrapped."""
        super().write(string.replace(_NO_BREAK, " "))


def _unbroken(text: str) -> str:
    return _BRACKETS.sub(lambda match: re.sub(r"\s", _NO_BREAK, match[0]), text)


click.Context.formatter_class = UnbrokenBrackets  # of every command: each makes its own context


class SectionOption(click.Option):
    """An option with the section of the help it is listed in; hidden ones have none."""

    def __init__(self, names: Sequence[str], section: str = "", **attributes: Any) -> None:
        super().__init__(list(names), hidden=not section, **attributes)
        self.section = section


class SuggestingGroup(click.Group):
    """Commands, with a suggestion for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it. Raises UsageProblem for a name that no command has."""
        names = list(self.commands) or self.list_commands(ctx)  # in the order of their definition
        if args[0] not in names and not args[0].startswith("-"):
            given = " ".join((*ctx.command_path.split()[1:], args[0]))
            raise UsageProblem(f"there is no command {given!r}; {suggestion(args[0], names)}")
        return super().resolve_command(ctx, args)


class SectionCommand(click.Command):
    """Help in sections: the command's own options, where things are, and the names of the common options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words. An unknown option with the name of a setting is told how that is set."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            setting = error.option_name.removeprefix("--").replace("-", "_")
            if setting not in map(public_name, dataclasses.fields(COMMANDS.get(ctx.info_name or "", Settings))):
                raise
            message = f"{error.option_name} is no option; {setting} is a setting, so give --set {setting}=VALUE"
            raise click.UsageError(message, ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one definition list a section, and one line for the common options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        common: list[str] = []
        for option in self.get_params(ctx):
            section = getattr(option, "section", "")
            if section == COMMON:
                common.append(option.opts[0])
            elif section and (record := option.get_help_record(ctx)) is not None:
                sections.setdefault(section, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=25)
        formatter.write_paragraph()
        line = f"{COMMON}: {' '.join(common)}; see `wm help options`. " if common else ""
        line += "Words are explained in docs/glossary.md."
        formatter.write(textwrap.fill(line, formatter.width, break_on_hyphens=False) + "\n")


strict_option = click.option("--strict", is_flag=True, help="Exit with 65 if something damaged or closed was left out.")


def tell_damaged(damaged: Sequence[str], strict: bool) -> None:
    """Name on stderr what a command has left out, damaged or closed. Raises BadData with `strict`."""
    for sentence in damaged:
        console.say(f"warning: left out: {sentence}")
    if strict and damaged:
        raise BadData(f"files left out, damaged or closed: {len(damaged)}.")


def read_sources(
    preset: str | None = None, config: Path | None = None, assignments: Iterable[str] = (), command: str = ""
) -> Sources:
    """What gives the settings of `command` besides flags: these, and this process's WM_* variables."""
    path = None if preset is None else find_preset(preset)
    variables = {name: value for name, value in os.environ.items() if name.startswith("WM_")}
    return Sources(path, config, variables, tuple(parse_assignment(text, command) for text in assignments))


def variables_of(option: click.Parameter) -> list[str]:
    """The environment variables that give the option, the current name first."""
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())


def require_known_variables() -> None:
    """Raise UsageProblem for a WM_* variable that nothing reads: it is mistyped."""
    unscoped = [name for option in SHARED.values() for name in variables_of(option)]
    check_variables(os.environ, [*unscoped, *INTERNAL])


def settings_options(group: type[Settings]) -> list[click.Option]:
    """An option for every setting of `group` that has a section. One that is not given arrives as None."""
    options = [_setting_option(item) for item in dataclasses.fields(group) if item.metadata["section"]]
    # Settings without an option in the help, but other trainers have the flags (docs/how-to.md).
    if "tf32" in group.__dataclass_fields__:
        options.append(SectionOption(["--tf32/--no-tf32", "tf32"], default=None))
    if "episodes_per_eval" in group.__dataclass_fields__:
        options.append(SectionOption(["--episodes-per-eval", "episodes_per_eval"], type=int, default=None))
    return options


_VALUES = {int: Number(), float: Number(float)}  # the bounds of settings are checked with those of other sources


def _setting_option(item: Field) -> click.Option:
    name, kind, choices = option_name(item), value_type(item), item.metadata["choices"]
    attributes: dict[str, Any] = {"default": None, "section": item.metadata["section"]}
    attributes["help"] = f"{item.metadata['sentence']} [{default_text(item)}]"
    if kind is bool:
        return SectionOption([f"{name}/--no-{name[2:]}", item.name], **attributes)
    if item.name == "envs":
        attributes["shell_complete"] = _complete_environments
    metavar = "|".join(map(str, choices)) if choices else {int: "N", float: "X"}.get(kind, "TEXT")
    return SectionOption(
        [name, item.name], type=OneOf(choices) if choices else _VALUES.get(kind, kind), metavar=metavar, **attributes
    )


def complete_environment(_: click.Context, __: click.Parameter, start: str) -> list[CompletionItem]:
    """The named environments that begin like this."""
    from wm.envs.known_envs import KNOWN_ENVS

    return [CompletionItem(name) for name in KNOWN_ENVS if name.lower().startswith(start.lower())]


def _complete_environments(context: click.Context, option: click.Parameter, start: str) -> list[CompletionItem]:
    """Completes the last name of a list that is separated by commas."""
    head, comma, last = start.rpartition(",")
    lists = [] if comma else [CompletionItem(name) for name in CURRICULA if name.startswith(start)]
    names = complete_environment(context, option, last)
    return lists + [CompletionItem(f"{head}{comma}{item.value}") for item in names]


def _read_common(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Take common options from what stands above the tables of a --config file."""
    if path is not None:
        names = [name for name, each in SHARED.items() if name not in _ONCE and (not each.is_flag or name in _KEPT)]
        values = {name: value for name, value in read_tables(path).items() if not isinstance(value, dict)}
        for name in values:
            if name.replace("-", "_") not in names:
                raise UsageProblem(f"{path} has {name!r} above its tables; {suggestion(name, names)}")
        typed = {name.replace("-", "_"): _as_typed(path, name, value) for name, value in values.items()}
        context.default_map = typed
    return path


def _as_typed(path: Path, name: str, value: Any) -> str | list[str]:
    """A value of a config file as it would be typed, so that the option says what is wrong with it; --data takes
    several."""
    values = value if isinstance(value, list) and name == "data" else [value]
    for each in values:
        if not isinstance(each, str | int | float) or "\0" in str(each):
            # 80 characters of a value: a message stays two lines.
            raise UsageProblem(f"{path}: {name} is {repr(each)[:80]}; expected a text or a number.")
    return list(map(str, values)) if name == "data" else str(value)


def _require_positive(context: click.Context, option: click.Parameter, value: float) -> float:
    if not value > 0:
        raise WrongValue(f"is {value:g}; expected a number of seconds above 0.", context, option)
    return value


def _require_name(_: click.Context, option: click.Parameter, name: str | None) -> str | None:
    if name is not None and not name.strip():
        expected = "an environment, such as Pong" if option.name == "env" else "an artifact"
        raise UsageProblem(f"{option.opts[0]} is empty; expected the name of {expected}.")
    return name


def _require_executor(_: click.Context, __: click.Parameter, spec: str) -> str:
    if spec != LOCAL:
        from wm.rollouts.dask_cluster import parse_executor

        parse_executor(spec)
    return spec


SHARED: dict[str, Any] = {
    "env": SectionOption(
        ["--env"], WHERE, required=True, envvar="WM_ENV", metavar="NAME", shell_complete=complete_environment,
        callback=_require_name,
        help="Pong, LunarLander, Breakout, CarRacing, CartPole, Acrobot, Catch, or any gymnasium id.",
    ),
    "data": SectionOption(
        ["--data"], WHERE, type=DatasetPath(), multiple=True,
        help="Dataset, or s3://BUCKET/PREFIX. [data/<Env>.zarr]",
    ),
    "run": SectionOption(
        ["--run"], WHERE, type=GivenPath(), default=None,
        help="Folder of the environment's artifacts. [runs/<Env>]",
    ),
    "name": SectionOption(
        ["--name"], WHERE, default=None, metavar="NAME", callback=_require_name,
        help="Name of the artifact, for variants. [the stage's]",
    ),
    "preset": SectionOption(
        ["--preset"], COMMON, type=OneOf(preset_names()), default=None, envvar="WM_PRESET", metavar="NAME",
        help="Settings: quick (minutes), laptop (about an hour), dream (C learns in dreams alone), paper (days).",
    ),
    "quick": SectionOption(["--quick"], is_flag=True),
    "set": SectionOption(
        ["--set", "set"], COMMON, multiple=True, metavar="NAME=VALUE",
        help="Any setting; wm curriculum takes STAGE.NAME=VALUE, such as train-vae.latent=16.",
    ),
    "config": SectionOption(
        ["--config"], COMMON, type=GivenPath(), default=None, envvar="WM_CONFIG", is_eager=True,
        callback=_read_common, metavar="FILE", help="TOML file of settings, such as --print-config writes.",
    ),
    "seed": SectionOption(
        ["--seed"], COMMON, type=Number(low=0, high=LARGEST_SEED), default=0, envvar="WM_SEED", metavar="N",
        help="Seed of everything random. [0]",
    ),
    "device": SectionOption(
        ["--device"], COMMON, type=OneOf(["auto", "cpu", "cuda", "mps"]), default="auto", envvar="WM_DEVICE",
        metavar="NAME", help="Device that trains V, M and the Dreamer: auto, cpu, cuda or mps. [auto]",
    ),
    "workers": SectionOption(
        ["--workers"], COMMON, type=Number(low=0, high=MOST_WORKERS), default=0, envvar="WM_WORKERS", metavar="N",
        help="Processes that play; 0: one per core. [one per core]",
    ),
    "worker_timeout": SectionOption(
        ["--worker-timeout"], COMMON, type=Number(float), default=WORKER_TIMEOUT,
        envvar=["WM_WORKER_TIMEOUT", "WM_PATIENCE"],  # the second is the name it had before 0.3.0
        metavar="SECONDS", callback=_require_positive,
        help=f"Replace a process that makes no step for this long. [{WORKER_TIMEOUT:g}]",
    ),
    "executor": SectionOption(
        ["--executor"], COMMON, default=LOCAL, envvar="WM_EXECUTOR", metavar="WHERE", callback=_require_executor,
        help="Where processes play: local, or the workers of a Dask cluster, dask:tcp://host:port (dask:tls://...). "
        f"[{LOCAL}]",
    ),
    "executor_any_cpu": SectionOption(
        ["--executor-any-cpu"], COMMON, is_flag=True,
        help="Accept workers with other CPUs than this machine's, whose returns may differ in the last digits.",
    ),
    "disk_budget": SectionOption(
        ["--disk-budget"], COMMON, default=None, envvar="WM_DISK_BUDGET", metavar="SIZE",
        help="Bytes that may be used at the target, such as 500MB. [none]",
    ),
    "memory_limit": SectionOption(
        ["--memory-limit"], COMMON, default=None, envvar="WM_MEMORY_LIMIT", metavar="SIZE",
        help="Memory of a training and its processes, such as 2GB; beyond it the training ends with a checkpoint. "
        "[none]",
    ),
    "snapshot": SectionOption(
        ["--snapshot"], COMMON, is_flag=True, help="Record twice what is in memory, for wm memory."
    ),
    "track": SectionOption(
        ["--track"], COMMON, default=None, envvar="WM_TRACK", metavar="NAMES",
        help="Trackers of metrics, such as wandb,mlflow; also tensorboard and trackio. [tensorboard, if installed]",
    ),
    "keep_current": SectionOption(
        ["--keep-current"], COMMON, is_flag=True, help="Refuse to archive an artifact of another recipe."
    ),
    "dry_run": SectionOption(["--dry-run"], COMMON, is_flag=True, help="Print the plan with estimates; write nothing."),
    "print_config": SectionOption(
        ["--print-config"], COMMON, is_flag=True, help="Print every setting and its source, as a --config file."
    ),
    "as_json": SectionOption(["--json", "as_json"], COMMON, is_flag=True, help="Print one JSON object to stdout."),
    "quiet": SectionOption(
        ["--quiet", "-q"], COMMON, is_flag=True, help="Leave out progress; warnings and results stay."
    ),
}  # fmt: skip
_TRAINING_ONLY = ("memory_limit", "snapshot", "track")
_ONCE = ("config", "set")  # which a --config file cannot give
_KEPT = ("executor_any_cpu",)  # the flags that can change a result, so that a file may give them
_PLAYING_ONLY = ("executor", "executor_any_cpu")
_OF_SEVERAL = {  # families that take several datasets, with the help of --data
    **dict.fromkeys(
        ("vae", "mdnrnn"),
        "Dataset, or s3://BUCKET/PREFIX; several have their own --data each. [data/<Env>.zarr]",
    ),
    "dreamer": "Dataset to learn from before it plays; several have their own --data each. [none]",
}


def stage_command(
    name: str,
    group: type[Settings],
    text: str,
    callback: Callable[..., None],
    without: Sequence[str] = (),
    trains: bool = False,
) -> click.Command:
    """The command of a stage. `without` are shared options that mean nothing to it; one that `trains` can be held to an
    amount of memory."""
    without = [*without, *(() if trains else _TRAINING_ONLY), *(_PLAYING_ONLY if "workers" in without else ())]
    shared = shared_options(name.removeprefix("train-"), without)
    return SectionCommand(name, params=[*settings_options(group), *shared], help=text, callback=callback)


def shared_options(family: str = "", without: Sequence[str] = ()) -> list[click.Option]:
    """The shared options, but those that mean nothing to a command; with the presets of its `family`, if it has any."""
    shared = {key: option for key, option in SHARED.items() if key not in without}
    if family and (PRESETS / family).is_dir():
        shared["preset"] = SectionOption(
            ["--preset"], COMMON, type=OneOf(preset_names(family)), default=None, envvar="WM_PRESET",
            metavar="NAME", help=SHARED["preset"].help,
        )  # fmt: skip
    if family in _OF_SEVERAL and "data" not in without:
        shared["data"] = SectionOption(
            ["--data"], WHERE, type=DatasetPath(), multiple=True, help=_OF_SEVERAL[family]
        )  # fmt: skip
    return list(shared.values())


def require_taken(context: click.Context, stage: str, without: Sequence[str] = ()) -> None:
    """Raise UsageProblem for a shared option that was typed, and that the command `stage` does not take."""
    group = context.find_root().command
    assert isinstance(group, click.Group)
    command = group.get_command(context, stage)
    assert command is not None
    taken = {option.name for option in command.params}
    for option in shared_options(without=without):
        typed = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if typed and option.name not in taken:
            raise UsageProblem(f"{option.opts[0]} means nothing to {stage}; leave it out.")


def chosen_preset(context: click.Context, options: Mapping[str, Any]) -> str | None:
    """The preset that was asked for. Raises UsageProblem for two of them."""
    typed = context.get_parameter_source("preset") is ParameterSource.COMMANDLINE
    if options["quick"] and typed and options["preset"] != "quick":
        raise UsageProblem(f"--quick is --preset quick, but --preset is {options['preset']}; give one of them.")
    preset: str | None = "quick" if options["quick"] else options["preset"]
    return preset


def common_options() -> list[tuple[str, str]]:
    """The common options and what they mean, for `wm help options`."""
    context = click.Context(click.Command("wm"))
    records = []
    for option in SHARED.values():
        if option.section == COMMON and (record := option.get_help_record(context)) is not None:
            names = variables_of(option)
            variable = f" ({names[0]})" if names else ""
            records.append((record[0], record[1] + variable))
    return records
