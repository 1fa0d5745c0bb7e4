"""`wm play`: one HTML page in which a person plays inside M's dream; or the real game, played in a window."""

from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from stages import console
from stages.options import SHARED, SectionCommand, SectionOption
from wm.actions import ActionSpace
from wm.errors import UsageProblem
from wm.units import format_size

if TYPE_CHECKING:
    from stages.session import Session
    from wm.report.play.page import Game

SECTION = "Play"
_ENV = copy(SHARED["env"])
_ENV.required = False  # --example needs none
# The options that mean something to each of the three things that the command does.
_EXAMPLE, _REAL = {"example", "out"}, {"real", "env", "data", "run", "episodes"}
_DREAM = {"env", "data", "run", "agent", "temperature", "out"}


def run(env: str | None, data: tuple[Path, ...], run: Path | None, example: bool, real: bool, **options: Any) -> None:
    """What the command does with its options."""
    from stages.session import Session
    from wm.artifacts.workspace import env_slug
    from wm.report.play.example import write_example

    _require_used(example, real)
    if env is None and not example:
        raise UsageProblem("--env is missing; name an environment whose V and M are trained, or give --example.")
    episodes, out = options.pop("episodes"), options["out"]
    if real and not data:
        data = (Path("data") / f"{env_slug(env or '')}.human.zarr",)
    if example:
        path = write_example(out or Path("play.html"))
        console.say(f"play: {format_size(path.stat().st_size)}; open it in a browser")
    else:
        session = Session(env=env or "", data=data, run=run)
        path = play_real(session, episodes) if real else play(session, **options)
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
            ["--temperature"], SECTION, type=click.FloatRange(0.05, 2), default=1.0, metavar="X",
            help="Of the dream at first; the page has a slider. [1.0]",
        ),
        SectionOption(
            ["--out"], SECTION, type=click.Path(path_type=Path), default=None, help="The page. [play.html in the run]"
        ),
        SectionOption(
            ["--real"], SECTION, is_flag=True,
            help="Play the real game in a window instead, and record it in data/<Env>.human.zarr.",
        ),
        SectionOption(
            ["--episodes"], SECTION, type=click.IntRange(min=1), default=5, metavar="N",
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


def play(session: "Session", agent: str, temperature: float, out: Path | None) -> Path:
    """Write the page and return its path: `out`, or play.html in the run. Raises UsageProblem for an agent that cannot
    dream, and for a page that would be too large; else as the models' loading does."""
    from wm.report.play.page import write_page
    from wm.report.run_summary import PLAY

    path = write_page(out or session.run_path / PLAY, open_game(session, agent, temperature).page())
    console.say(f"play {session.env}: {format_size(path.stat().st_size)}; open it in a browser")
    return path


def open_game(session: "Session", agent: str, temperature: float) -> "Game":
    """V, M, and C if the run has one, and the episodes they were trained on."""
    from wm.dreams.initial_states import latents_of
    from wm.pipeline.session import check_name
    from wm.pretrained import is_dreamer, load_dreaming
    from wm.report.play.controls import measure_pace
    from wm.report.play.inputs import describe_models
    from wm.report.play.page import Game

    folder = session.run_path / check_name("--agent", agent)
    if is_dreamer(folder):
        raise UsageProblem(f"{folder} is a Dreamer, whose dreams are no page; name a controller with --agent.")
    vae, mdnrnn, controller = load_dreaming(session.workspace, agent)
    if controller is None:
        console.say(f"play {session.env}: {session.run_path} has no controller, so only the person drives")
    dataset = vae.open_episodes(session.data_path)
    latents, pace = latents_of(session.workspace, vae, mdnrnn, dataset), measure_pace(vae.env)
    artifact = None if controller is None else controller.artifact
    models = describe_models(session.run_path, vae.artifact, mdnrnn.artifact, artifact)
    return Game(session.env, vae, mdnrnn, controller, latents, dataset, temperature, *pace, models)


def play_real(session: "Session", episodes: int) -> Path:
    """Let a person play the real game, with the frames that the run's V sees, if it has one, and return the dataset's
    path. Raises UsageProblem without a display, and where no episode was played to its end."""
    from wm.artifacts import manifest
    from wm.envs.registry import EnvConfig
    from wm.episodes.archive import claim
    from wm.pretrained import load_vae, require_run_of
    from wm.report.play.controls import controls_for, measure_pace
    from wm.report.play.human import record_person
    from wm.report.window import Window, no_window, why_no_window
    from wm.rollouts.collection import HUMAN, describe

    if reason := why_no_window():
        raise UsageProblem(no_window(reason))
    require_run_of(session.workspace)
    folder, path, runtime = session.run_path / "vae", session.data_path, session.runtime
    trained = (folder / manifest.NAME).is_file()
    env = load_vae(folder, session.workspace.command("train-vae")).env if trained else EnvConfig(session.env)
    collection, recipe = describe(env, HUMAN, session.seed, 0, log=runtime.log)
    controls, began = controls_for(session.env, ActionSpace.from_json(recipe["action_space"])), runtime.clock()
    for button in controls.buttons:
        console.say(f"{' or '.join(key.strip() or 'space' for key in button.keys)}: {button.label}")
    with claim(path, recipe, session.keep_current, runtime.log) as claimed, Window(session.env) as window:
        budget, pace = session.budget(path), measure_pace(env)[0]
        done = record_person(collection, claimed, episodes, budget, window, controls, pace, runtime)
        if done:
            claimed.record({"episodes": done, **session.provenance(began)})
    if not done:
        raise UsageProblem("no episode was played to its end, so nothing was written; play on until one ends.")
    return path
