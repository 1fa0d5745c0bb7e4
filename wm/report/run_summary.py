"""A run in a report: its artifacts, finished or unfinished, and its line in the table of all runs."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from wm.artifacts import links, runs
from wm.artifacts.runs import Artifact
from wm.artifacts.workspace import NO_STICKY
from wm.errors import BadData, MissingInput, UsageProblem
from wm.evolution.search_log import read_log
from wm.model_json import read_env
from wm.report import sections
from wm.report.agent_film import FILM, Film, read_films
from wm.report.conclusions import (
    prediction_summary,
    score_conclusion,
)
from wm.report.document import Table
from wm.report.fidelity_plot import format_correlation
from wm.report.plots import Curve
from wm.report.returns_plot import validation_curve
from wm.report.rounds import Round, is_continued, no_permission, read_rounds
from wm.stats import Score
from wm.telemetry import metrics_log
from wm.units import format_duration

R = TypeVar("R")

TRAININGS = {"vae": "V", "mdnrnn": "M", "controller": "C", "dreamer": "Dreamer"}
KINDS = {
    "vae": "vae", "latents": "latents", "mdnrnn": "mdnrnn", "controller": "controller", "dream": "dream",
    "dreamer": "dreamer", "dream-dreamer": "dream", FILM: FILM,
}  # fmt: skip
FILM_ROOM = 2_000_000  # bytes of a page for all its films' screens
PLAY = "play.html"  # what `wm play` writes into a run
LEGEND = (
    "Scores: mean return over test episodes and the half-width of its 95 % interval; *: too few to be quoted. Against "
    "random: by the interval of the difference. Probe: R2 of linear probes on z, on held-out episodes, worst and best "
    "label. M / baseline: M's squared error 15 steps ahead over that of the best of linear autoregression, persistence "
    "and the mean, and whether M is better by the interval of the difference. Dream rank: rank correlation of returns "
    "in the dream and in the real environment, with its interval. Wall time: collecting, every stage, and the "
    "trainings that a later round continues. docs/glossary.md explains the terms."
)


@dataclass(frozen=True)
class RunSummary:
    """A run's folder, its finished artifacts by name, the metrics of trainings by name and the lines of C's search,
    finished or not, what its dream measured of all policies, and the rounds up to it. `damaged` has a sentence for each
    thing that was left out because it is not what was written, or may not be read. `films` are of its agent's test
    episodes; `film_note` says why there are none."""

    run: Path
    artifacts: dict[str, Artifact]
    metrics: dict[str, list[dict[str, Any]]]
    generations: list[dict[str, Any]]
    fidelity: dict[str, Any] | None
    damaged: list[str]
    rounds: list[Round] = field(default_factory=list)
    films: list[Film] = field(default_factory=list)
    film_note: str = ""

    @classmethod
    def of(cls, run: Path) -> "RunSummary":
        """Everything whose digests and schemas agree. Raises BadData for a link in the run, and PermissionError for
        a run that may not be read."""
        links.refuse_below(run)
        damaged = list[str]()

        def checked(read: Callable[[], R], otherwise: R) -> R:
            try:
                return read()
            except MissingInput:
                return otherwise
            except BadData as error:
                damaged.append(str(error))
                return otherwise
            except PermissionError as error:
                # A folder from another user must not keep the rest from being shown.
                damaged.append(no_permission(error))
                return otherwise

        scores = checked(partial(_evaluated, run), list[str]())
        kinds = KINDS | {f"evaluation/{name}": "evaluation" for name in scores}
        artifacts, folders = dict[str, Artifact](), dict[str, Path]()

        def add(kinds: Mapping[str, str]) -> None:
            for name, kind in kinds.items():
                unfinished = run / f"{name}.partial"
                artifact = checked(partial(_read, run / name, kind), None)
                if artifact is not None:
                    artifacts[name], folders[name] = artifact, run / name
                elif unfinished.is_dir():
                    folders[name] = unfinished

        add(kinds)
        for name in _agents(artifacts):
            if name not in kinds:  # trained with --name
                add({name: _trained(artifacts[f"evaluation/{name}"]), f"dream-{name}": "dream"})
        none = list[dict[str, Any]]()
        trainings = [name for name in TRAININGS if name in folders]
        metrics = {name: checked(partial(metrics_log.read, folders[name]), none) for name in trainings}
        generations = checked(partial(read_log, folders["controller"]), none) if "controller" in folders else none
        dream = artifacts.get("dream")
        fidelity = checked(partial(sections.read_fidelity, dream), None) if dream else None
        film, films = artifacts.get(FILM), list[Film]()
        scored = film and artifacts.get(f"evaluation/{film.settings.get('agent')}")
        if film and scored and film.inputs.get("evaluation") == scored.fingerprint:
            films = checked(partial(read_films, film), films)
        rounds = read_rounds(run, damaged)
        return cls(run, artifacts, metrics, generations, fidelity, damaged, rounds, films)

    @property
    def title(self) -> str:
        """The run's name."""
        return self.run.name

    @property
    def evaluation(self) -> Artifact | None:
        """The evaluation of the controller, else of the Dreamer, else of the first of another name; None if no agent
        was evaluated."""
        return next((self.artifacts[f"evaluation/{agent}"] for agent in _agents(self.artifacts)), None)

    @property
    def agent(self) -> str:
        """The agent the run is shown by: the one that was evaluated, else the controller, or the Dreamer where there is
        no other."""
        if self.evaluation:
            return self.evaluation.folder.name
        return "dreamer" if "dreamer" in self.artifacts else "controller"

    @property
    def older(self) -> list[str]:
        """The artifacts made from others than stand beside them now, such as `dream of another controller`."""
        older = []
        for name, artifact in self.artifacts.items():
            scored = artifact.folder.name.removesuffix(NO_STICKY) if name.startswith("evaluation/") else ""
            for source, fingerprint in artifact.inputs.items():
                beside = self.artifacts.get(scored if scored and source in ("controller", "dreamer") else source)
                if beside is not None and beside.fingerprint != fingerprint:
                    older.append(f"{name} of another {source}")
        return older

    @property
    def score(self) -> dict[str, Any] | None:
        """The test score of `evaluation`."""
        return self.evaluation.metrics if self.evaluation else None

    def env_to_film(self, envs: Collection[str]) -> str:
        """The environment of its agent. Raises UsageProblem for one whose module would be imported because a run names
        it, unless it is among `envs`."""
        kind = "vae" if self.evaluation and _trained(self.evaluation) == "controller" else self.agent
        trained = self.artifacts.get(kind)
        if trained is None:
            raise MissingInput(f"{self.run} has no finished {kind}")
        env = read_env(trained).name
        if ":" in env and env not in envs:
            raise UsageProblem(f"{env} is in a module that only the run names, so it is not imported; add --env {env}")
        return env

    @property
    def envs(self) -> set[str]:
        """The environments of its models: one, or none where no model is finished."""
        kinds = ("vae", "dreamer")
        return {read_env(each).name for each in self.artifacts.values() if each.manifest["kind"] in kinds}

    def wall_seconds(self, agent: str) -> float:
        """What an agent's artifacts took together, with collecting, encoding and with the trainings they continue."""
        evaluation = self.artifacts.get(f"evaluation/{agent}")
        dreamer = _trained(evaluation) == "dreamer" if evaluation else agent == "dreamer"
        dream = "dream" if agent == "controller" else f"dream-{agent}"
        models = [agent] if dreamer else ["vae", "mdnrnn", agent]
        names = [*models, dream, f"evaluation/{agent}", "evaluation/random"]
        artifacts = [artifact for name in names if (artifact := self.artifacts.get(name)) is not None]
        before = sum(artifact.metrics.get("seconds_before", 0.0) for artifact in artifacts)
        encoding = 0.0 if dreamer else self.encoding_seconds
        return sum(artifact.wall_seconds for artifact in artifacts) + before + self.collecting_seconds + encoding

    @property
    def collecting_seconds(self) -> float:
        """The time of collecting the episodes that V and M were trained on, as far as their metrics have it."""
        trained = [self.artifacts[name] for name in ("vae", "mdnrnn") if name in self.artifacts]
        return sum(float(artifact.metrics.get("collecting_seconds", 0.0)) for artifact in trained)

    @property
    def encoding_seconds(self) -> float:
        """The time of encoding what M was trained on, of every round. M's metrics have it, for latents may be removed;
        in artifacts of earlier versions there are only those of the first dataset."""
        return encoding_seconds(self.artifacts)

    def validations(self, name: str) -> Curve | None:
        """The validation return of C along its training with its 95 % interval, as a curve of this name."""
        return validation_curve(self.generations, name)


def encoding_seconds(artifacts: Mapping[str, Artifact]) -> float:
    """The time of encoding the latents of M, among a run's artifacts by name."""
    mdnrnn = artifacts.get("mdnrnn")
    if mdnrnn is not None and "encoding_seconds" in mdnrnn.metrics:
        return float(mdnrnn.metrics["encoding_seconds"])
    return sum(artifact.wall_seconds for name, artifact in artifacts.items() if name.startswith("latents"))


def _read(folder: Path, kind: str) -> Artifact:
    """A finished artifact, checked with the environment that it names."""
    artifact = runs.read_whole(folder, kind)
    if kind in ("vae", "dreamer"):
        read_env(artifact)
    return artifact


def _evaluated(run: Path) -> list[str]:
    """The names under which a run has an evaluation."""
    folder = run / "evaluation"
    if folder.is_dir():
        os.scandir(folder).close()  # glob passes over a folder that may not be read
    return sorted(path.parent.name for path in folder.glob("[!.]*/manifest.json"))


def find_runs(paths: tuple[Path, ...]) -> list[Path]:
    """The runs among the paths or directly below them, in order; of those below, not the ones that a later round has
    continued without an evaluation. Raises MissingInput if there is none."""
    folders: list[Path] = []
    for path in paths:
        inside = sorted(folder for folder in path.glob("[!.]*") if folder.is_dir()) if path.is_dir() else []
        folders += [path] if _is_run(path) else [folder for folder in inside if _is_run(folder) and _is_shown(folder)]
    if not folders:
        named = ", ".join(map(str, paths))
        raise MissingInput(f"there is no run in {named}; expected a folder such as runs/Pong. Run `wm curriculum`.")
    return list({folder.resolve(): folder for folder in folders}.values())


def all_evaluated(paths: tuple[Path, ...]) -> bool:
    """Whether every run has a score, and nothing in them is unfinished."""
    folders = find_runs(paths)
    unfinished = [part for run in folders for part in (*run.glob("*.partial"), *run.glob("evaluation/*.partial"))]
    return not unfinished and all(RunSummary.of(run).score for run in folders)


def _is_run(path: Path) -> bool:
    return any((path / f"{name}{end}").is_dir() for name in (*KINDS, "evaluation") for end in ("", ".partial"))


def _is_shown(run: Path) -> bool:
    return (run / "evaluation").is_dir() or not is_continued(run)


def overview(summaries: list[RunSummary]) -> Table:
    """One line for every run."""
    header = ["run", "random policy", "score", "episodes", "against random"]
    header += ["probe R2", "M / baseline", "dream rank", "wall time"]
    return Table(header, [_overview_row(summary) for summary in summaries])


def _overview_row(summary: RunSummary) -> list[str]:
    artifacts, score = summary.artifacts, summary.score
    vae, mdnrnn, dream = (artifacts.get(name) for name in ("vae", "mdnrnn", "dream"))
    probes = list(sections.visible_probes(vae).values()) if vae else []
    return [
        summary.title if summary.agent in TRAININGS else f"{summary.title}, {summary.agent}",
        format_score(score["random"]) if score else "–",
        format_score(score) if score else "not yet",
        f"{score['episodes']}{'*' if score['preview'] else ''}" if score else "–",
        score_conclusion(score).partition(" than")[0] if score else "–",
        f"{min(probes):z.2f} to {max(probes):z.2f}" if probes else "–",
        prediction_summary(mdnrnn.metrics["open_loop"]) if mdnrnn else "–",
        format_correlation(dream.metrics) if dream else "–",
        format_duration(summary.wall_seconds(summary.agent)) if artifacts else "–",
    ]


def _agents(artifacts: Mapping[str, Artifact]) -> list[str]:
    """The agents that have a score of the usual protocol, the one a run is shown by first."""
    evaluations = {name: each for name, each in artifacts.items() if name.startswith("evaluation/")}
    scored = [each.folder.name for each in evaluations.values() if "random" in each.metrics]
    usual = [name for name in scored if not name.endswith(NO_STICKY)]
    return sorted(usual, key=lambda name: (name != "controller", name != "dreamer"))


def _trained(evaluation: Artifact) -> str:
    """The kind of the artifact that holds the weights of the agent that was evaluated."""
    return "dreamer" if evaluation.metrics["agent"] == "dreamer" else "controller"


def format_score(score: dict[str, Any]) -> str:
    """Mean and half-width of its 95 % interval, of an evaluation's metrics."""
    return str(Score(score["mean"], score["ci95"], 0))


def fit_films(summaries: list[RunSummary]) -> list[RunSummary]:
    """Runs whose films fit a page together: what short ones leave is for the others."""
    sizes = sorted(len(film.screen) for summary in summaries for film in summary.films)
    room, most = FILM_ROOM, 0
    for number, size in enumerate(sizes):
        most = room // (len(sizes) - number)
        room -= min(size, most)
    return [replace(summary, films=[film.first(most) for film in summary.films]) for summary in summaries]
