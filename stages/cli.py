"""The whole command line on one page. A stage is imported inside its command, so that help answers at once."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from stages import clean, compare, console, doctor, export, info, ls, memory, report, verify, view
from stages.options import Sources, config_lines, settings_options, shared_options, size_limit
from wm.artifacts.disk import explain
from wm.errors import DiskProblem, NotPermitted, UsageProblem, WmError
from wm.settings import (
    CollectSettings,
    ControllerSettings,
    CurriculumSettings,
    DreamerSettings,
    DreamSettings,
    EvaluateSettings,
    MdnRnnSettings,
    Settings,
    VaeSettings,
)
from wm.units import format_duration

if TYPE_CHECKING:
    from stages.session import Session
    from stages.stage import Plan, Result

_SHARED = ("data", "run", "name", "seed", "device", "workers", "keep_current")


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from wm import __version__

        click.echo(f"wm, version {__version__}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "-V", "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version,
    help="Show the version and exit.",
)  # fmt: skip
def wm() -> None:
    """World models on the hardware people own.

    \b
    One after the other, each finds what the one before made:
      wm collect --env Pong          episodes    -> data/Pong.zarr
      wm train-vae --env Pong        V           -> runs/Pong/vae
      wm train-mdnrnn --env Pong     M           -> runs/Pong/mdnrnn
      wm train-controller --env Pong C           -> runs/Pong/controller
      wm dream --env Pong            a dream     -> runs/Pong/dream
      wm evaluate --env Pong         a score     -> runs/Pong/evaluation
    Instead of V, M and C:
      wm train-dreamer --env Pong    a Dreamer   -> runs/Pong/dreamer
    Or all of them: wm curriculum. What came of it: wm report, compare, memory. What there is: wm ls, info, view,
    verify, export, clean. Whether this machine has what it takes: wm doctor.
    """


class _Invocation:
    """The shared options of one call, and what they become."""

    def __init__(self, options: dict[str, Any]) -> None:
        flag = click.get_current_context().get_parameter_source("preset") is ParameterSource.COMMANDLINE
        if options["quick"] and flag and options["preset"] != "quick":
            raise UsageProblem(f"--quick is --preset quick, but --preset is {options['preset']}; give one of them.")
        preset = "quick" if options["quick"] else options["preset"]
        self.sources = Sources(preset, options["config"], tuple(options["assignments"]))
        self.as_json, self.dry_run = options["as_json"], options["dry_run"]
        self.print_config = options["print_config"]
        if options["quiet"]:
            console.be_quiet()
        self.stop = console.Stop()
        from stages.session import Session

        shared = {name: options[name] for name in _SHARED if name in options}
        self.session = Session(
            env=options.get("env", ""),
            disk_limit=size_limit(options["disk_budget"]),
            memory_limit=size_limit(options.get("memory_limit")),
            snapshot=options.get("snapshot", False),
            stop=self.stop,
            **shared,
        )

    def show_config(self, settings: Settings, origin: dict[str, str]) -> None:
        """Every setting, its value, and where it came from."""
        lines = config_lines(settings, origin)
        if self.as_json:
            console.print_json({name: {"value": value, "source": source} for name, value, source in lines})
        else:
            click.echo(console.table(["setting", "value", "from"], lines))

    def show_plans(self, plans: "list[Plan]") -> None:
        """What would be done."""
        if self.as_json:
            console.print_json({"plan": [plan.as_json() for plan in plans]})
        else:
            click.echo("\n".join(str(plan) for plan in plans))

    def show(self, result: "Result") -> None:
        """What was done."""
        if self.as_json:
            console.print_json(result.as_json())
            return
        took = "" if result.status == "up to date" else f" in {format_duration(result.seconds)}"
        click.echo(f"{result.path}: {result.status}{took}")
        click.echo(result.table or f"  {result.summary}")
        for picture in result.pictures:
            click.echo(f"  {picture}")


Stage = Callable[["Session", Any], "Result"]
Planner = Callable[["Session", Any], "Plan"]


def _run_stage(
    command: str, group: type[Settings], options: dict[str, Any], find: Callable[[], tuple[Stage, Planner]]
) -> None:
    call = _Invocation(options)
    flags = {name: value for name, value in options.items() if name in group.__dataclass_fields__}
    settings, origin = call.sources.resolve(command, group, call.session.env, flags)
    if call.print_config:
        call.show_config(settings, origin)
        return
    stage, plan = find()
    if call.dry_run:
        call.show_plans([plan(call.session, settings)])
        return
    call.stop.install()
    call.show(stage(call.session, settings))


@wm.command()
@shared_options("name", "device")
@settings_options(CollectSettings)
def collect(**options: Any) -> None:
    """Play episodes and store their frames, actions and rewards.

    Example: wm collect --env Pong --episodes 50
    """

    def find() -> tuple[Stage, Planner]:
        from stages import collect as stage

        return stage.collect, stage.plan

    _run_stage("collect", CollectSettings, options, find)


@wm.command()
@shared_options("workers", trains=True)
@settings_options(VaeSettings)
def train_vae(**options: Any) -> None:
    """Train V, which compresses a frame into a latent z.

    Example: wm train-vae --env Pong --latent 32
    """

    def find() -> tuple[Stage, Planner]:
        from stages import train_vae as stage

        return stage.train_vae, stage.plan

    _run_stage("train-vae", VaeSettings, options, find)


@wm.command()
@shared_options("workers", trains=True)
@settings_options(MdnRnnSettings)
def train_mdnrnn(**options: Any) -> None:
    """Train M, which predicts the next z, the reward and the end. Encodes the episodes first if need be.

    Example: wm train-mdnrnn --env Pong --hidden 256
    """

    def find() -> tuple[Stage, Planner]:
        from stages import train_mdnrnn as stage

        return stage.train_mdnrnn, stage.plan

    _run_stage("train-mdnrnn", MdnRnnSettings, options, find)


@wm.command()
@shared_options("device", trains=True)
@settings_options(ControllerSettings)
def train_controller(**options: Any) -> None:
    """Evolve C, a linear policy on [mean z, h], in the real environment or in the dream.

    Example: wm train-controller --env Pong --in real --max-generations 60
    """

    def find() -> tuple[Stage, Planner]:
        from stages import train_controller as stage

        return stage.train_controller, stage.plan

    _run_stage("train-controller", ControllerSettings, options, find)


@wm.command()
@shared_options("workers", "device")
@settings_options(DreamSettings)
def dream(**options: Any) -> None:
    """Dream, and draw the dream beside reality.

    Example: wm dream --env Pong --temperature 1.0
    """

    def find() -> tuple[Stage, Planner]:
        from stages import dream as stage

        return stage.dream, stage.plan

    _run_stage("dream", DreamSettings, options, find)


@wm.command()
@shared_options("workers", presets="dreamer", trains=True)
@settings_options(DreamerSettings)
def train_dreamer(**options: Any) -> None:
    """Learn a world model, an actor and a critic while playing.

    With --data, the world model first learns from collected episodes; with --steps 0, from them alone.

    Example: wm train-dreamer --env Catch --preset nano
    """

    def find() -> tuple[Stage, Planner]:
        from stages import train_dreamer as stage

        return stage.train_dreamer, stage.plan

    _run_stage("train-dreamer", DreamerSettings, options, find)


@wm.command()
@shared_options("data", "name", "seed", "device")
@settings_options(EvaluateSettings)
def evaluate(**options: Any) -> None:
    """Score the agent, and the random policy, on test seeds in the unmodified environment.

    Example: wm evaluate --env Pong --episodes 100
    """

    def find() -> tuple[Stage, Planner]:
        from stages import evaluate as stage

        return stage.evaluate, stage.plan

    _run_stage("evaluate", EvaluateSettings, options, find)


@wm.command()
@shared_options("env", "data", "run", "name", trains=True)
@settings_options(CurriculumSettings)
def curriculum(**options: Any) -> None:
    """Run the whole chain for several environments; what is up to date is not done again.

    Example: wm curriculum --preset quick --envs Pong,CarRacing
    """
    call = _Invocation(options)
    flags = {name: value for name, value in options.items() if name in CurriculumSettings.__dataclass_fields__}
    settings, origin = call.sources.resolve("curriculum", CurriculumSettings, "", flags)
    if call.print_config:
        call.show_config(settings, origin)
        return
    from stages import curriculum as stage
    from stages.curriculum.estimate import estimate, table_of
    from stages.curriculum.outcome import closing
    from stages.curriculum.parallel import LEADER, leave_with_leader

    part_of_another = LEADER in os.environ  # which estimated and reports for all
    if call.dry_run or not part_of_another:
        console.say("short probes, to tell what this will take here ...")
        foreseen = estimate(call.session, settings, call.sources)
        if call.dry_run:
            if call.as_json:
                console.print_json(foreseen.as_json())
            else:
                click.echo(table_of(foreseen))
            return
        console.say(table_of(foreseen))
        foreseen.require()
    call.stop.install()
    leave_with_leader()
    verdicts = stage.curriculum(call.session, settings, call.sources, click.get_current_context().obj)
    pages = () if part_of_another else stage.summarize(verdicts)
    if call.as_json:
        told = {verdict.env: verdict.as_json() for verdict in verdicts}
        console.print_json({"environments": told, "report": [str(page) for page in pages]})
    else:
        click.echo(closing(verdicts, pages))
    for verdict in verdicts:
        if verdict.failure is not None:
            raise verdict.failure


for module in (ls, info, verify, view, report, compare, memory, export, clean, doctor):
    wm.add_command(module.command)


def _fail(message: str, code: int) -> int:
    click.echo(f"wm: {message}", err=True)
    return code


def run(arguments: list[str] | None = None) -> int:
    """Run a command line; returns the exit code. Only our own bugs show a traceback."""
    try:
        words = sys.argv[1:] if arguments is None else arguments
        wm.main(words, prog_name="wm", standalone_mode=False, obj=words)
    except click.exceptions.Exit as finished:
        return int(finished.exit_code)
    except click.UsageError as error:
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        return _fail(f"{error.format_message()}{where}", UsageProblem.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), UsageProblem.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        return 141
    except WmError as error:
        return _fail(str(error), error.exit_code)
    except PermissionError as error:
        message = f"no permission for {error.filename}; change its permissions or give another place."
        return _fail(message, NotPermitted.exit_code)
    except OSError as error:
        return _fail(explain(error), DiskProblem.exit_code)
    return 0


def main() -> None:
    """Entry point of `wm`."""
    sys.exit(run())
