"""cli.md, settings.md, api.md and python.ipynb of docs/, from commands, settings, docstrings and python.md."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import click

from benchmarks.pages.api import api_page
from benchmarks.pages.markdown import markdown_table
from benchmarks.pages.notebook import notebook
from stages.cli import TABLE, wm
from stages.options import COMMON, common_options
from wm.settings import COMMANDS
from wm.settings.base import default_text, option_name, public_name, value_type
from wm.settings.sources import preset_names, variable_name

DOCS = Path(__file__).resolve().parents[2] / "docs"
_CLI = """# Command line

`wm COMMAND --help` prints the same, `wm help options` the common options. Results go to stdout, progress and messages
to stderr; [exit codes](formats.md#exit-codes) tell the kind of a failure. `make docs` writes this page.
"""
_SETTINGS = """# Settings

Every setting has a name, a default and a range. It can be given, in this order of precedence, by

1. its option, where the table names one: `wm train-vae --latent 16`;
2. `--set`: `wm train-vae --set latent=16`, or for a stage of a curriculum `wm curriculum --set train-vae.latent=16`,
   and for its later rounds `wm curriculum --set collect.later.episodes=12`;
3. its variable: `WM_TRAIN_VAE_LATENT=16`;
4. a config file: `--config FILE`, in the table `[train-vae]`, or `[train-vae.Pong]` for one environment, or
   `[train-vae.Pong.later]` for the later rounds of a curriculum;
5. a preset: `--preset`, of the same format, in `wm/settings/presets/`.

`--print-config` prints all values with their sources, as a config file. An asterisk marks settings that are not in an
artifact's fingerprint: they cannot change the result, or they name an input, whose own fingerprint counts. `make docs`
writes this page.
"""


def cli_page() -> str:
    """docs/cli.md."""
    parts = [_CLI]
    for section in dict.fromkeys(entry.section for entry in TABLE.values()):
        rows = [
            [f"[wm {name}](#wm-{name})", entry.sentence] for name, entry in TABLE.items() if entry.section == section
        ]
        parts.append(f"## {section}\n\n" + markdown_table(["command", ""], rows))
    parts += [_command(name) for name in TABLE]
    rows = [[f"`{names}`", text] for names, text in common_options()]
    parts.append("## Common options\n\nEvery stage has those that mean something to it.\n\n" + _table("option", rows))
    parts.append(_presets())
    return "\n".join(parts)


def _command(name: str) -> str:
    command = wm.get_command(click.Context(wm), name)
    assert command is not None
    parts = [_section(f"wm {name}", command)]
    if isinstance(command, click.Group):
        parts += [_section(f"wm {name} {each}", subcommand) for each, subcommand in sorted(command.commands.items())]
    return "\n".join(parts)


def _section(name: str, command: click.Command) -> str:
    """Of a command or a subcommand."""
    own = click.Context(command, info_name=name, help_option_names=[])
    paragraphs = inspect.cleandoc(command.help or "").replace("\b", "")  # click's mark of lines that it keeps
    description, _, example = paragraphs.partition("Example: ")
    arguments = [param.make_metavar(own) for param in command.params if isinstance(param, click.Argument)]
    usage = " ".join([name, *arguments])
    heading = "#" * len(name.split())
    text = f"{heading} {name}\n\n{' '.join(description.split())}\n\n```sh\n{example.strip() or usage}\n```\n"
    rows = [
        [f"`{record[0]}`", record[1]]
        for option in command.params
        if getattr(option, "section", "") != COMMON and (record := option.get_help_record(own)) is not None
    ]
    return text + (f"\n{_table('option', rows)}" if rows else "")


def _table(head: str, rows: list[list[str]]) -> str:
    return markdown_table([head, "meaning"], ([cell.replace("|", "\\|") for cell in row] for row in rows))


def _presets() -> str:
    own = [name for name in preset_names("dreamer") if name not in preset_names()]
    return (
        f"## Presets\n\n`--preset` takes {_listed(preset_names())}. `wm train-dreamer` also takes {_listed(own)}: "
        "sizes of its networks.\n"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def settings_page() -> str:
    """docs/settings.md."""
    parts = [_SETTINGS]
    for command, group in COMMANDS.items():
        rows = [_setting(item) for item in dataclasses.fields(group)]
        example = variable_name(command, dataclasses.fields(group)[0])
        parts.append(f"## wm {command}\n\nVariables: `{example}` and so on.\n\n" + markdown_table(
            ["setting", "default", "values", "meaning"], rows
        ))  # fmt: skip
    return "\n".join(parts)


def _setting(item: "dataclasses.Field[Any]") -> list[str]:
    name = f"`{public_name(item)}`" + ("" if item.metadata["result"] else "\\*")
    option = f", `{option_name(item)}`" if item.metadata["section"] else ""
    algorithm = item.metadata["algorithm"]
    values = {"cma": "`algo=cma` and `sep-cma`"}.get(algorithm, f"`algo={algorithm}`")
    only = f" Only with {values}." if algorithm else ""
    return [name + option, default_text(item), _values(item), item.metadata["sentence"] + only]


def _values(item: "dataclasses.Field[Any]") -> str:
    low, high, choices = item.metadata["low"], item.metadata["high"], item.metadata["choices"]
    kind = value_type(item)
    if choices is not None:
        return ", ".join(map(str, choices))
    if kind is bool:
        return "yes, no"
    if low is None and high is None:
        return {str: "text", float: "number", int: "whole number"}[kind]
    if high is None:
        return f"{low:g} and more"
    return f"{low:g} to {high:g}" if low is not None else f"up to {high:g}"


def main() -> None:
    (DOCS / "cli.md").write_text(cli_page())
    (DOCS / "settings.md").write_text(settings_page())
    (DOCS / "api.md").write_text(api_page())
    (DOCS / "python.ipynb").write_text(notebook())


if __name__ == "__main__":
    main()
