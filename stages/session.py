"""One call of a stage: the Session that its options describe, its settings, and whether it is run, planned or shown."""

import importlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import click
from click.core import ParameterSource

from stages import console
from stages.options import SHARED, chosen_preset, read_sources, variables_of
from stages.progress import progress
from wm.errors import UsageProblem
from wm.pipeline.session import Session as LibrarySession
from wm.pipeline.stage import Result
from wm.ranks import PIECES, PartDone, Ranks, is_rank, open_ranks
from wm.runtime import LOCAL, WORKER_TIMEOUT, OpenTracker, Runtime
from wm.settings import COMMANDS, CurriculumSettings, GradientSettings, Settings
from wm.settings.sources import (
    DEFAULT,
    FLAG,
    Sourced,
    Tables,
    curriculum_tables,
    sourced_settings,
    to_json,
    to_toml,
    typed_settings,
)
from wm.units import parse_size


def _unwatched(runtime: Runtime) -> Runtime:
    return runtime


def _typed() -> str:
    return shlex.join(["wm", *sys.argv[1:]])


@dataclass(frozen=True)
class Session(LibrarySession):
    """The library's Session with a Runtime that writes to the console. `track` names trackers; without, TensorBoard has
    the metrics where it is installed. `watched` returns the Runtime of a training that is watched, as a sweep watches
    its trials. `typed` are the names of the settings and shared options that the command line gave."""

    workers: int = 0
    worker_timeout: float = WORKER_TIMEOUT
    executor: str = LOCAL
    any_cpu: bool = False
    memory_limit: int | None = None
    snapshot: bool = False
    track: tuple[str, ...] = ()
    stop: console.Stop = field(default_factory=console.Stop)
    watched: Callable[[Runtime], Runtime] = _unwatched
    typed: frozenset[str] = frozenset()
    command: str = field(default_factory=_typed)
    ranks: Ranks | None = None

    @property
    def processes(self) -> int:
        """How many processes play: as asked, else one per core."""
        # The cores that this process may use, not those of the machine: containers and Slurm give fewer.
        return self.workers or max(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2, 1)

    @property
    def runtime(self) -> Runtime:
        """What the library uses of this process."""
        return self.watched(self._own_runtime())

    def _own_runtime(self) -> Runtime:
        return Runtime(
            clock=time.monotonic,
            log=console.say,
            progress=progress,
            stop_requested=lambda: self.stop.signal is not None,
            raise_if_stopped=self.stop.raise_if_stopped,
            workers=self.processes,
            worker_timeout=self.worker_timeout,
            executor=self.executor,
            any_cpu=self.any_cpu,
            memory_limit=self.memory_limit,
            memory_snapshots=self.snapshot,
            track=self._trackers(),
            ranks=self.ranks,
        )

    def _trackers(self) -> OpenTracker | None:
        if not self.track:
            return None
        from wm.telemetry.trackers import Trackers

        return Trackers(self.track, console.say)


def session_of(options: Mapping[str, Any]) -> Session:
    """The Session that the shared options describe. Raises UsageProblem for those that contradict each other."""
    if options.get("executor_any_cpu") and options["executor"] == LOCAL:
        raise UsageProblem("--executor-any-cpu means nothing without --executor; add that, or leave it out.")
    disk_limit = _bytes(options, "disk_budget")
    if options.get("data"):
        from wm.episodes import mirror

        mirrors = list(filter(None, map(mirror.of, options["data"])))
        for mirrored in mirrors:
            mirrored.limit = None if disk_limit is None else disk_limit // len(mirrors)
    playing = ("workers", "worker_timeout", "executor")
    names = ("data", "run", "name", "seed", "device", *playing, "snapshot", "keep_current")
    return Session(
        env=options.get("env", ""),
        disk_limit=disk_limit,
        memory_limit=_bytes(options, "memory_limit"),
        track=_trackers(options.get("track")),
        any_cpu=options.get("executor_any_cpu", False),
        **{name: options[name] for name in names if name in options},
    )


def require_known(session: Session) -> None:
    """Raise UsageProblem for an unknown environment of which nothing is here: the first stage would refuse it, too."""
    if not any(path.exists() for path in (session.run_path, *session.data_paths)):
        from wm.envs.registry import find_env

        find_env(session.env)


def _trackers(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    from wm.telemetry.trackers import parse_names

    return parse_names(text)


def _bytes(options: Mapping[str, Any], name: str) -> int | None:
    text = options.get(name)
    return None if text is None else parse_size(text, SHARED[name].opts[0])


def call_stage(name: str, options: dict[str, Any]) -> None:
    """Resolve the settings of a stage, and run it, plan it or print them."""
    context = click.get_current_context()
    if options["quiet"]:
        console.be_quiet()
    sources = read_sources(chosen_preset(context, options), options["config"], options["set"], name)
    session, group = session_of(options), COMMANDS[name]
    flags = {key: value for key, value in options.items() if key in group.__dataclass_fields__}
    settings, origin = sources.resolve(name, group, session.env, flags)
    shared = {name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    session = replace(session, typed=typed_settings(origin) | shared)
    if is_rank(os.environ) and isinstance(settings, GradientSettings) and settings.pieces == 1:
        settings, origin = replace(settings, pieces=PIECES), origin | {"pieces": "torchrun"}
    if options["print_config"]:
        tables: Tables = {(): _common_values(context, session), (name,): sourced_settings(settings, origin)}
        if isinstance(settings, CurriculumSettings):
            tables |= curriculum_tables(settings, origin, sources)
        _print(to_json(tables) if options["as_json"] else to_toml(tables))
        return
    from wm import extras

    extras.require_versions()  # before the import of packages that may be others than ours were written for
    module = importlib.import_module(f"stages.{name.replace('-', '_')}")
    if isinstance(settings, CurriculumSettings):
        if origin["rounds"] != FLAG:
            settings = replace(settings, rounds=0)  # an environment may have rounds of its own
        module.run_command(session, settings, sources, context.obj, options["dry_run"], options["as_json"])
        return
    require_known(session)
    if options["dry_run"]:
        with console.stdout_for_results():
            plan = module.plan(session, settings)
        _print({"plan": [plan.as_json()]} if options["as_json"] else console.wrap(str(plan), indent=""))
        return
    stage = getattr(module, name.replace("-", "_"))
    with console.stdout_for_results():
        result = (_run_rank if is_rank(os.environ) else _run_alone)(stage, session, settings)
    if result is not None:
        _print(result.as_json() if options["as_json"] else result.text(console.wrap))


def _run_alone(stage: Callable[..., Result], session: Session, settings: Settings) -> Result:
    session.stop.install()
    return stage(session, settings)


def _run_rank(stage: Callable[..., Result], session: Session, settings: Settings) -> Result | None:
    """Run a stage as one of torchrun's processes; None in all but the first. Of their errors one is shown."""
    from wm import __version__

    stop = console.Stop(repeated=True)
    stop.install()
    timeout, wait = session.worker_timeout, stop.raise_if_stopped
    ranks = open_ranks(os.environ, session.device, timeout, wait, __version__)
    result = None
    try:
        with suppress(PartDone):
            result = stage(replace(session, stop=stop, ranks=ranks), settings)
    except Exception:
        console.be_silent(not ranks.is_first_to_say())
        raise
    ranks.close()
    return result if ranks.leads else None


def _print(result: dict[str, Any] | str) -> None:
    """A result on stdout: text for people, or one JSON object."""
    if console.is_silent():
        return
    if isinstance(result, str):
        console.echo(result)
    else:
        console.print_json(result)


def _common_values(context: click.Context, session: Session) -> dict[str, Sourced]:
    """The options besides settings that can change what a command does, and where each came from."""
    values = {
        "env": session.env,
        # A Dreamer learns from datasets only where they are given.
        "data": list(map(str, session.data if context.command.name == "train-dreamer" else session.data_paths)),
        "run": str(session.run_path),
        "name": session.name,
        "seed": session.seed,
        "device": session.device,
        "workers": session.workers,
        "worker_timeout": session.worker_timeout,
        "executor": session.executor,
        "executor_any_cpu": session.any_cpu,
        "disk_budget": session.disk_limit,
        "memory_limit": session.memory_limit,
        "track": ",".join(session.track) or None,
    }
    sources = {ParameterSource.COMMANDLINE: FLAG, ParameterSource.DEFAULT_MAP: str(context.params["config"])}
    sourced = {}
    for option in context.command.params:
        if option.name in values:
            source = context.get_parameter_source(option.name)
            variable = next((name for name in variables_of(option) if name in os.environ), DEFAULT)
            if source is not ParameterSource.ENVIRONMENT:
                variable = sources.get(source, DEFAULT) if source else DEFAULT
            sourced[option.name] = Sourced(values[option.name], variable)
    return sourced
