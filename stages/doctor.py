"""`wm doctor`: whether this machine has what it takes, and how to get what is missing."""

import time
from dataclasses import asdict
from pathlib import Path

import click

from stages import console
from wm.errors import MissingPackage
from wm.installation import Check, examine, problems

STATES = {"ok": "good", "missing": "warning", "problem": "bad"}


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def command(as_json: bool) -> None:
    """Check Python, torch, memory, disk and every environment, and show how to install what is missing.

    Example: wm doctor
    """
    checks = examine(Path.cwd(), time.monotonic)
    if as_json:
        console.print_json({"checks": [asdict(check) for check in checks]})
    else:
        console.echo(table_of(checks))
    if failed := problems(checks):
        raise MissingPackage(f"{failed[0].what}: {failed[0].finding}; {failed[0].remedy}.")


def table_of(checks: list[Check]) -> str:
    """The checks for people, and below them how to remedy what is missing."""
    rows = [[check.what, check.state, check.finding] for check in checks]
    remedies = [[check.what, check.remedy] for check in checks if check.remedy]
    table = console.table(["check", "state", "finding"], rows, STATES)
    return f"{table}\n\n{console.table(['missing', 'remedy'], remedies)}" if remedies else table
