"""`wm play`: one HTML page in which a person plays inside M's dream; or the real game, played in a window."""

from copy import copy
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from stages import console
from stages.options import SHARED, SectionCommand, SectionOption
from stages.parameter_types import Number, PagePath
from wm.errors import UsageProblem
from wm.units import format_size

SECTION = "Play"
_ENV = copy(SHARED["env"])
_ENV.required = False  # --example needs none
# The options that mean something to each of the three things that the command does.
_EXAMPLE, _REAL = {"example", "out"}, {"real", "env", "data", "run", "episodes"}
_DREAM = {"env", "data", "run", "agent", "temperature", "out"}


def run(env: str | None, data: tuple[Path, ...], run: Path | None, example: bool, real: bool, **options: Any) -> None:
    """What the command does with its options."""
    from stages.session import Session, require_known
    from wm.artifacts.workspace import env_slug
    from wm.pipeline.play import play_dream, play_real
    from wm.report.play.example import write_example

    _require_used(example, real)
    if env is None and not example:
        raise UsageProblem("--env is missing; name an environment whose V and M are trained, or give --example.")
    episodes, out = options.pop("episodes"), options["out"]
    if real and not data:
        data = (Path("data") / f"{env_slug(env or '')}.human.zarr",)
    if example:
        path = write_example(out or Path("play.html"))
    else:
        session = Session(env=env or "", data=data, run=run)
        require_known(session)
        path = play_real(session, episodes) if real else play_dream(session, **options)
    if not real:
        console.say(f"play{f' {env}' if env else ''}: {format_size(path.stat().st_size)}; open it in a browser")
    console.echo(console.visible(str(path), keep=""))


def _require_used(example: bool, real: bool) -> None:
    """Raise UsageProblem for an option that was typed and would be ignored."""
    context = click.get_current_context()
    kind, used = ("--example", _EXAMPLE) if example else ("--real", _REAL) if real else ("a page of a dream", _DREAM)
    for option in context.command.params:
        typed = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if typed and option.name not in used:
            raise UsageProblem(f"{option.opts[0]} means nothing to {kind}; leave one of them out.")


command = SectionCommand(
    "play",
    callback=run,
    params=[
        SectionOption(
            ["--agent"], SECTION, default="controller", metavar="NAME",
            help="Name of the controller that drives until a key is pressed. [controller]",
        ),
        SectionOption(
            ["--temperature"], SECTION, type=Number(float, 0.05, 2), default=1.0, metavar="X",
            help="Of the dream at first; the page has a slider. [1.0]",
        ),
        SectionOption(
            ["--out"], SECTION, type=PagePath(), default=None, help="The page. [play.html in the run]"
        ),
        SectionOption(
            ["--real"], SECTION, is_flag=True,
            help="Play the real game in a window instead, and record it in data/<Env>.human.zarr.",
        ),
        SectionOption(
            ["--episodes"], SECTION, type=Number(low=1), default=5, metavar="N",
            help="With --real, how many are played. [5]",
        ),
        SectionOption(
            ["--example"], SECTION, is_flag=True,
            help="The page of a CartPole that comes with wm and needs no run, in play.html.",
        ),
        _ENV, SHARED["data"], SHARED["run"],
    ],
    help="""Write one HTML page in which a person plays inside M's dream, with keys or touch.

    The page needs no server and loads nothing. C drives until a key is pressed, and again after.

    Example: wm play --env CartPole
    """,
)  # fmt: skip
