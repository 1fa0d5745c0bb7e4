"""The command line on one page: a table of commands, each imported when it is called, so that help answers at once."""

import atexit
import importlib
import os
import re
import sys
import traceback
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from stages import console
from stages.options import SuggestingGroup, common_options, require_known_variables, stage_command, variables_of
from wm.artifacts.disk import explain, explain_misplaced, explain_refused
from wm.errors import (
    BadData,
    DiskProblem,
    EnvironmentFault,
    MemoryProblem,
    MissingInput,
    MissingPackage,
    NotPermitted,
    UsageProblem,
    WmError,
    ran_out_of_memory,
)
from wm.ranks import is_first, is_rank
from wm.settings import COMMANDS
from wm.settings.base import nearest, suggestion


class Entry(NamedTuple):
    """A command in the table: its section of `wm --help` and its sentence there. A stage also has an example, shared
    options that mean nothing `without` effect, and whether it `trains`; the other commands are in their modules."""

    section: str
    sentence: str
    example: str = ""
    without: tuple[str, ...] = ()
    trains: bool = False
    more: str = ""


TABLE = {
    "collect": Entry(
        "Train", "Play episodes and store their frames, actions and rewards.", "--env Pong --episodes 50",
        ("name", "device"),
    ),
    "train-vae": Entry(
        "Train", "Train V, which compresses a frame into a latent z.", "--env Pong --latent 32", ("workers",), True
    ),
    "train-mdnrnn": Entry(
        "Train", "Train M, which predicts the next z, reward and end.", "--env Pong --hidden 256",
        ("workers",), True, "Encodes the episodes with V first, where that is not done.",
    ),
    "train-controller": Entry(
        "Train", "Evolve C, a policy on z and M's h, or train it by PPO.",
        "--env Pong --max-generations 60", ("data", "device"), True,
    ),
    "train-dreamer": Entry(
        "Train", "Train a Dreamer (world model, actor, critic) as it plays.", "--env Catch --preset nano",
        ("workers",), True,
        "With --data it is first pretrained on episodes; with --steps 0, only its world model.",
    ),
    "sweep": Entry("Train", "Try settings of a stage, and find the best by validation."),
    "curriculum": Entry(
        "Train", "Run every stage for several environments.", "--preset quick --envs Pong,CarRacing",
        ("env", "data", "run", "name"), True, "What is up to date is skipped.",
    ),
    "evaluate": Entry(
        "Measure", "Score an agent on test seeds in the unmodified environment.", "--env Pong --episodes 100",
        ("data", "name", "seed", "device"), False, "The random policy is scored on the same seeds.",
    ),
    "dream": Entry(
        "Measure", "Compare dreams with real episodes, in pictures and figures.", "--env Pong --temperature 1.0",
        ("device",),
    ),
    "report": Entry("Measure", "Write a page about runs, finished or in progress."),
    "compare": Entry("Measure", "Compare runs: scores, settings and curves."),
    "memory": Entry("Measure", "Test whether the memory of a training grew."),
    "push": Entry("Share", "Publish a run with a card, in a folder or on the Hub."),
    "pull": Entry("Share", "Bring a published run here, checked."),
    "ls": Entry("Inspect", "List datasets and artifacts."),
    "info": Entry("Inspect", "Describe a dataset or an artifact."),
    "view": Entry("Inspect", "Write a page that plays recorded episodes."),
    "play": Entry("Inspect", "Write a page in which a person plays inside M's dream."),
    "verify": Entry("Inspect", "Check the checksums of datasets and artifacts."),
    "data": Entry("Inspect", "Merge, split or import datasets; leave episodes out."),
    "export": Entry("Inspect", "Write episodes as npz, Minari or mp4, models as ONNX."),
    "clean": Entry("Inspect", "Remove files that killed processes left."),
    "doctor": Entry("Inspect", "Check Python, packages, memory, disk and environments."),
    "help": Entry("Inspect", "Describe a command, or the common options."),
}  # fmt: skip


WITH_TORCHRUN = ("train-vae", "train-mdnrnn")


READER_GONE = 141  # as a shell says it of a command that SIGPIPE ended


class _ReaderGone(Exception):
    """Who read the output has closed it. click itself would end the process then."""


class LazyGroup(SuggestingGroup):
    """Commands by the table; a module is imported when its command is called."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """As click does it, which shows the help that is asked for."""
        try:
            return super().make_context(*arguments, **options)
        except BrokenPipeError:
            raise _ReaderGone from None

    def invoke(self, ctx: click.Context) -> Any:
        """As click does it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGone from None

    def list_commands(self, _: click.Context) -> list[str]:
        """Every command."""
        return list(TABLE)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """The command of that name; None if there is none."""
        if name not in TABLE:
            return None
        if name == "help":
            return help_command
        if name in COMMANDS:
            return _stage_command(name)
        module = importlib.import_module(f"stages.{name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, a section at a time."""
        for section in dict.fromkeys(entry.section for entry in TABLE.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [(name, entry.sentence) for name, entry in TABLE.items() if entry.section == section]
                )


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from wm import __version__

        click.echo(f"wm, version {__version__}")
        context.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    # 80 columns, so that help looks alike in every terminal and in docs/cli.md.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.option(
    "-V", "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version,
    help="Show the version and exit.",
)  # fmt: skip
@click.pass_context
def wm(context: click.Context) -> None:
    """World models on laptops: V encodes frames, M predicts them, C acts on both.

    \b
    Each stage reads what the one before wrote:
      wm collect --env Pong            episodes  data/Pong.zarr
      wm train-vae --env Pong          V         runs/Pong/vae
      wm train-mdnrnn --env Pong       M         runs/Pong/mdnrnn
      wm train-controller --env Pong   C         runs/Pong/controller
      wm evaluate --env Pong           a score   runs/Pong/evaluation
    wm curriculum runs all of them. The same command resumes an interrupted run.
    Terms such as latent, dream or restart: docs/glossary.md.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        return
    _require_working_folder()
    if is_rank(os.environ) and context.invoked_subcommand not in WITH_TORCHRUN:
        raise UsageProblem(
            f"torchrun would run {context.invoked_subcommand} in every process; expected one of "
            f"{', '.join(WITH_TORCHRUN)}."
        )


def _require_working_folder() -> None:
    """Raise MissingInput where it is gone: nothing relative exists then, and torch ends the process."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise MissingInput("the working folder was removed; change to another one, such as `cd ~`.") from None


@click.command("help")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.pass_context
def help_command(context: click.Context, topics: tuple[str, ...]) -> None:
    """Describe a command such as `data merge`, or with `options` the common options of the stages.

    Example: wm help options
    """
    parent = context.parent
    assert parent is not None
    if topics[:1] == ("options",):
        if topics[1:]:
            raise UsageProblem(f"there is no help on 'options {topics[1]}'; leave out {topics[1]!r}.")
        click.echo(_help_on_options(context))
        return
    command: click.Command = wm
    for number, topic in enumerate(topics):
        before = " ".join(topics[:number])
        subcommand = command.get_command(parent, topic) if isinstance(command, click.Group) else None
        if subcommand is None:
            names = command.list_commands(parent) if isinstance(command, click.Group) else [""]
            known = [f"{before} {name}".strip() for name in names] + ([] if before else ["options"])
            full_name = f"{before} {topic}".strip()
            raise UsageProblem(f"there is no help on {full_name!r}; {suggestion(full_name, known)}")
        command, parent = subcommand, click.Context(subcommand, parent, topic)
    click.echo(command.get_help(parent))


def _help_on_options(context: click.Context) -> str:
    formatter = context.make_formatter()
    formatter.write_text("Options that mean the same for every stage, with the variable that gives them too.")
    formatter.write_paragraph()
    formatter.write_dl(common_options(), col_max=26)
    formatter.write_paragraph()
    formatter.write_text(
        "A value comes from the first of: flag, --set, WM_* variable, --config file, preset, default. The variable "
        "of a setting names its stage: WM_TRAIN_VAE_STEPS. docs/settings.md lists all settings."
    )
    return formatter.getvalue().rstrip("\n")


def _stage_command(name: str) -> click.Command:
    entry = TABLE[name]
    text = f"{entry.sentence} {entry.more}\n\nExample: wm {name} {entry.example}"
    return stage_command(
        name, COMMANDS[name], text, lambda **options: _call_stage(name, options), entry.without, entry.trains
    )


def _call_stage(name: str, options: dict[str, Any]) -> None:
    require_known_variables()
    from stages.session import call_stage

    call_stage(name, options)


# No file has a longer name, so it is a value that somebody typed, and its middle tells nothing.
_LONG_WORD = re.compile(r"[^\s/]{256,}")
NO_MEMORY = (
    "there is not enough memory, or a limit on threads and processes is reached; take a smaller --batch, network or "
    "number of --workers, or end other programs. Everything finished so far is kept."
)


def _fail(message: str, code: int) -> int:
    if console.may_speak(int(os.environ.get("LOCAL_RANK", "0")) if is_rank(os.environ) else 0):
        shortened = _LONG_WORD.sub(lambda word: f"{word[0][:20]}...{word[0][-20:]}", message)
        click.echo(f"wm: {console.visible(shortened, keep='')}", err=True)
    return code


def _given_by(error: click.UsageError) -> str:
    """`WM_SEED: ` or `c.toml: ` before what is wrong with an option that was not typed."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return ""
    source = error.ctx.get_parameter_source(error.param.name or "")
    if source is ParameterSource.ENVIRONMENT:
        return f"{next(name for name in variables_of(error.param) if name in os.environ)}: "
    return f"{error.ctx.params['config']}: " if source is ParameterSource.DEFAULT_MAP else ""


def _say_missing(error: click.MissingParameter) -> str:
    """The sentence about an option or an argument that was not given, with the example of its command."""
    assert error.ctx is not None
    assert error.param is not None
    example = (error.ctx.command.help or "").partition("Example: ")[2].replace("\\\n", "")
    is_option = isinstance(error.param, click.Option)
    name = error.param.opts[0] if is_option else error.param.make_metavar(error.ctx).removesuffix("...")
    return f"{name} is missing; an example is `{' '.join(example.split())}` (see `{error.ctx.command_path} --help`)"


def _say_unknown(error: click.NoSuchOption) -> str:
    """The sentence about an option that its command does not have, with the one that was meant, if one is near."""
    assert error.ctx is not None
    params = [param for param in error.ctx.command.get_params(error.ctx) if not getattr(param, "hidden", False)]
    near = nearest(error.option_name, [name for param in params for name in (*param.opts, *param.secondary_opts)])
    path, hint = error.ctx.command_path, f"; did you mean {near}?" if near else ""
    return f"{error.option_name} is no option of {path}{hint} (see `{path} --help`)"


def _is_text(word: str) -> bool:
    """Whether a word of the command line was decoded: what is no UTF-8 stays half of surrogate pairs."""
    try:
        word.encode()
    except UnicodeEncodeError:
        # The caller names this word.
        return False
    return True


def run(arguments: list[str] | None = None) -> int:
    """Run a command line; returns the exit code. Only a bug of wm shows a traceback."""
    console.be_silent(not is_first(os.environ), decided=False)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        wm.main(words, prog_name="wm", standalone_mode=False, obj=words)
    except click.exceptions.Exit as finished:
        return int(finished.exit_code)
    except click.MissingParameter as error:
        return _fail(_say_missing(error), UsageProblem.exit_code)
    except click.NoSuchOption as error:
        return _fail(_say_unknown(error), UsageProblem.exit_code)
    except click.UsageError as error:
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx else ""
        return _fail(f"{_given_by(error)}{error.format_message()}{where}", UsageProblem.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), UsageProblem.exit_code)
    except (click.Abort, KeyboardInterrupt):
        # As a shell says of SIGINT; click raises Abort for a prompt that was interrupted.
        return 130
    except _ReaderGone:
        return READER_GONE
    except WmError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        if refused := explain_refused(error):  # the disk is not to blame
            return _fail(refused, NotPermitted.exit_code)
        if ran_out_of_memory(error):
            return _fail(NO_MEMORY, MemoryProblem.exit_code)
        if misplaced := explain_misplaced(error):
            return _fail(misplaced, BadData.exit_code)
        return _fail(explain(error), DiskProblem.exit_code)
    except UnicodeEncodeError:
        wrong = next((word for word in words if not _is_text(word)), None)
        if wrong is None:
            raise
        message = f"{wrong} is not text in UTF-8, which recipes and records have; give another name."
        return _fail(message, UsageProblem.exit_code)
    except SystemExit as error:  # of an environment or a package: no command of wm raises it
        if "_WM_COMPLETE" in os.environ:  # click has answered the shell, which shows what stands on stderr
            return int(error.code or 0)
        raised = f"an environment or a package raised SystemExit: {error.code}"
        message = f"{raised}, so the command did not finish; remove its sys.exit()."
        return _fail(message, EnvironmentFault.exit_code)
    except Exception as error:
        if ran_out_of_memory(error):
            return _fail(NO_MEMORY, MemoryProblem.exit_code)
        from wm.extras import explain_import  # not for help, which starts at once

        if not (message := explain_import(error)):
            raise
        return _fail(message, MissingPackage.exit_code)
    return 0


def main() -> None:
    """Run the command line of this process, and end it."""
    # Read when torch is imported. Threads that spin while they wait take the core of the one that they wait for: beside
    # another busy process M trained at a third of the speed, and alone no faster (docs/research/LOG.md, 2026-11-26).
    # setdefault: what a person has set stays.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    console.open_closed_streams()
    console.show_warnings_once()
    console.raise_on_signals()
    try:
        code = run()
    except Exception:
        # Here and not by Python: the signals' handlers and the output still have to be put back.
        traceback.print_exc()
        code = WmError.exit_code
    console.end_on_signals()
    if not console.write_out():
        code = READER_GONE
    if not console.end_threads():
        console.say("warning: a thread that an environment or a package started goes on; wm ends without it")
        atexit._run_exitfuncs()  # as Python does once the threads have ended
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
