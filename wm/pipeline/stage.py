"""What every stage is: a result, and the life of its artifact, written once.

A stage opens its inputs, says which artifact it makes (`Session.make_run`), and hands `run_stage` the work that fills
the artifact's folder. Whether the artifact is up to date, restored from the archive, resumed or created is decided
here, and nowhere else.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wm.artifacts.runs import Artifact, Builder, Run
from wm.envs.registry import EnvConfig
from wm.errors import MissingInput
from wm.pipeline.session import Session
from wm.ranks import FINISHED, TRAIN, PartDone, Ranks
from wm.units import format_duration

UP_TO_DATE, RESTORED, RESUMED, CREATED = "up to date", "restored", "resumed", "created"
_PICTURES = (".png", ".gif")


_SENTENCE = re.compile(r"  \S+( \S+)*")  # among the lines of a table: it has no columns


def _indented(text: str) -> str:
    return f"  {text}"


def _fitted(table: str, wrap: Callable[[str], str]) -> str:
    """A table whose sentences are broken as `wrap` breaks them, the lines after the first indented further."""
    lines = []
    for line in table.splitlines():
        broken = _SENTENCE.fullmatch(line) and "\n" in wrap(line.strip())
        lines.append(wrap(line)[2:] if broken else line)
    return "\n".join(lines)


@dataclass(frozen=True)
class Result:
    """What a stage did. `status` is created, resumed, restored or up to date; `path` is the artifact or the dataset,
    `run` the folder that `wm.load` opens once it has V and M, and `seconds` is what it took. `fingerprint` is the
    identity of the recipe: equal ones have equal contents. `metrics` are the figures of the artifact's manifest.
    `summary` is one sentence for people; instead of it they are shown `table`, if there is one, and `verdict`."""

    stage: str
    status: str
    path: Path
    run: Path
    fingerprint: str
    metrics: dict[str, Any]
    summary: str
    seconds: float
    pictures: list[Path] = field(default_factory=list)
    table: str = ""
    verdict: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {
            "stage": self.stage,
            "status": self.status,
            "artifact": str(self.path),
            "fingerprint": self.fingerprint,
            "metrics": self.metrics,
            "wall_seconds": self.seconds,
            "pictures": [str(path) for path in self.pictures],
        }

    def text(self, wrap: Callable[[str], str] = _indented) -> str:
        """For people: the artifact, what happened to it, and its figures. `wrap` breaks a sentence into lines."""
        duration = "" if self.status == UP_TO_DATE else f" in {format_duration(self.seconds)}"
        figures = _fitted(self.table, wrap) if self.table else wrap(self.summary)
        lines = [f"{self.path}: {self.status}{duration}", figures]
        if self.verdict:
            lines.append(wrap(self.verdict))
        return "\n".join([*lines, *(f"  {picture}" for picture in self.pictures)])

    def __str__(self) -> str:
        return self.text()


def run_stage(
    session: Session,
    stage: str,
    run: Run,
    need: tuple[int, str],
    summary: Callable[[Artifact], str],
    work: Callable[[Builder], dict[str, Any]],
    env: EnvConfig | None = None,
) -> Result:
    """Return the finished artifact of `run`, or make it: check the disk budget for `need` (bytes, what for), let `work`
    fill the builder's folder and return the metrics, and publish. `env` is recorded with what rendered the frames.

    Under torchrun the first process does that; the others only train with it, and read what it has finished.
    Raises DiskProblem before anything is written, RecipeMismatch where the session keeps the current artifact, and what
    `work` raises.
    """
    ranks = session.runtime.ranks
    if ranks is None:
        return _make(session, stage, run, need, summary, work, env)
    ranks.compare("settings or data", f"{run.recipe.kind} {run.recipe.fingerprint[:8]}")
    if not ranks.leads:
        return _follow(ranks, stage, run, summary, work)
    result = _make(session, stage, run, need, summary, work, env)
    ranks.tell(FINISHED)
    return result


def _follow(
    ranks: Ranks, stage: str, run: Run, summary: Callable[[Artifact], str], work: Callable[[Builder], dict[str, Any]]
) -> Result:
    """What another process of torchrun than the first does: the steps of a training, whose end raises PartDone.

    That is when the first one has published. torchrun waits five minutes for the processes of other machines and then
    ends, and with it the store that all of them need.
    """
    if ranks.hear() == TRAIN:
        with suppress(PartDone):
            work(Builder(run, run.partial, False, None))
        ranks.hear()
        raise PartDone
    if (current := run.current()) is None:
        raise MissingInput(
            f"{run.folder} is not here but process 0 of torchrun has finished it; give all processes the same folder."
        )
    return _result(stage, run, current, summary, UP_TO_DATE)


def _make(
    session: Session,
    stage: str,
    run: Run,
    need: tuple[int, str],
    summary: Callable[[Artifact], str],
    work: Callable[[Builder], dict[str, Any]],
    env: EnvConfig | None,
) -> Result:
    if (current := run.current()) is not None:
        return _result(stage, run, current, summary, UP_TO_DATE)
    runtime = session.runtime
    started = runtime.clock()
    session.budget(run.folder).require(need[0], 0, need[1])
    with run.build(session.keep_current, runtime.log) as builder:
        if builder.restored is not None:
            return _result(stage, run, builder.restored, summary, RESTORED)
        metrics = work(builder)
        artifact = builder.publish(metrics, session.provenance(started, env))
    return _result(stage, run, artifact, summary, RESUMED if builder.resumed else CREATED)


def _result(stage: str, run: Run, artifact: Artifact, summary: Callable[[Artifact], str], status: str) -> Result:
    pictures = sorted(artifact.folder / name for name in artifact.manifest["files"] if name.endswith(_PICTURES))
    return Result(
        stage,
        status,
        artifact.folder,
        run.root,
        artifact.fingerprint,
        artifact.metrics,
        summary(artifact),
        artifact.wall_seconds,
        pictures,
    )
