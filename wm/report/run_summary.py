"""What `wm report` says of a run: a section for every artifact there is, finished or under way."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wm.artifacts import durable, runs
from wm.artifacts.runs import Artifact
from wm.errors import WmError
from wm.evolution.stopping import LOG
from wm.report import charts
from wm.report import sections as findings
from wm.report.document import Block, Chart, Commands, Heading, Paragraph, Table
from wm.report.plots import Curve
from wm.stats import Score
from wm.telemetry import metrics_log as metrics
from wm.telemetry.trend import settled
from wm.units import format_duration, format_size

STAGES = {
    "latents": "latents", "vae": "vae", "mdnrnn": "mdnrnn", "controller": "controller", "dream": "dream",
    "dreamer": "dreamer", "dream-dreamer": "dream",
}  # fmt: skip


@dataclass(frozen=True)
class RunSummary:
    """A run: its folder, and what of it is finished."""

    run: Path
    artifacts: dict[str, Artifact]

    @classmethod
    def of(cls, run: Path) -> "RunSummary":
        """Whatever can be read; a damaged artifact counts as missing."""
        found = {}
        for name, kind in STAGES.items():
            if (artifact := _load(run / name, kind)) is not None:
                found[name] = artifact
        for folder in sorted(path.parent for path in run.glob("evaluation/[!.]*/manifest.json")):
            if (artifact := _load(folder, "evaluation")) is not None:
                found[f"evaluation/{folder.name}"] = artifact
        return cls(run, found)

    @property
    def title(self) -> str:
        """The run's name."""
        return self.run.name

    @property
    def score(self) -> dict[str, Any] | None:
        """The test score of the controller, else of the Dreamer, if it was evaluated."""
        names = ("evaluation/controller", "evaluation/dreamer")
        return next((self.artifacts[name].metrics for name in names if name in self.artifacts), None)

    @property
    def generations(self) -> list[dict[str, Any]]:
        """The lines of C's search so far."""
        return metrics.read(self.folder("controller"), LOG)

    def validations(self, name: str) -> Curve | None:
        """The search's mean on its fixed validation episodes with the 95 % interval, as a curve of this name."""
        validated = [line for line in self.generations if len(line.get("validation", [])) > 1]
        scores = [Score.of(np.array(line["validation"], float)) for line in validated]
        low, high = ([score.mean + sign * score.ci95 for score in scores] for sign in (-1, 1))
        generations = [line["generation"] for line in validated]
        return Curve(name, generations, [score.mean for score in scores], low, high) if validated else None

    def folder(self, name: str) -> Path:
        """Where an artifact stands, or where it is being made."""
        partial = self.run / f"{name}.partial"
        return self.run / name if name in self.artifacts or not partial.is_dir() else partial

    def blocks(self) -> Iterator[Block]:
        """The whole chapter."""
        yield Heading(2, self.title)
        yield from _outcome(self)
        yield from _search(self)
        finished = self.artifacts.get
        yield from findings.vision(self.title, finished("vae"), self.folder("vae"))
        yield from findings.memory(self.title, finished("mdnrnn"), self.folder("mdnrnn"))
        yield from findings.dream(self.title, finished("dream"))
        yield from findings.dreamer(self.title, finished("dreamer"), finished("dream-dreamer"), self.folder("dreamer"))
        yield from _cost(self)


def overview(chapters: list[RunSummary]) -> Table:
    """One line for every run."""
    header = ["run", "random policy", "our score", "episodes", "V reads", "M / persistence", "dream ranks", "wall time"]
    return Table(header, [_overview_row(chapter) for chapter in chapters])


def _overview_row(chapter: RunSummary) -> list[str]:
    found, score = chapter.artifacts, chapter.score
    baseline = score["random"] if score else None
    vae, mdnrnn, dream = (found.get(name) for name in ("vae", "mdnrnn", "dream"))
    probes = list(findings.readable(vae).values()) if vae else []
    ahead = mdnrnn.metrics["open_loop"].get("15") if mdnrnn else None
    return [
        chapter.title,
        str(Score(baseline["mean"], baseline["ci95"], 0)) if baseline else "–",
        str(Score(score["mean"], score["ci95"], 0)) if score else "not yet",
        f"{score['episodes']}{' (preview)' if score['preview'] else ''}" if score else "–",
        f"R2 {min(probes):.2f} to {max(probes):.2f}" if probes else "–",
        f"{ahead['M'] / ahead['persistence']:.2f}" if ahead else "–",
        f"{dream.metrics['rho']:.2f}" if dream and dream.metrics["rho"] is not None else "–",
        format_duration(sum(map(_seconds, found.values()))) if found else "–",
    ]


def _outcome(chapter: RunSummary) -> Iterator[Block]:
    for name, artifact in chapter.artifacts.items():
        if not name.startswith("evaluation/") or name == "evaluation/random":
            continue
        score = artifact.metrics
        told = f"{Score(score['mean'], score['ci95'], 0)} over {score['episodes']} test episodes"
        told += f"; the random policy {Score(score['random']['mean'], score['random']['ci95'], 0)}"
        told += f". Protocol: {score['protocol']}. Mean and half-width of its 95 % interval; one training seed."
        if score["preview"]:
            told += " Too few episodes to be quoted."
        yield Paragraph(told, "Return" if name == "evaluation/controller" else f"Return of {artifact.folder.name}")
    unfinished = sorted(path.stem for path in chapter.run.glob("*.partial"))
    if unfinished:
        yield Paragraph(f"Under way: {', '.join(unfinished)}.")


def _search(chapter: RunSummary) -> Iterator[Block]:
    lines = chapter.generations
    if not lines:
        return
    yield Heading(3, f"{chapter.title}: C, the controller")
    made = chapter.artifacts.get("controller")
    if made:
        found = made.metrics
        yield Paragraph(
            f"{found['parameters']:,} parameters ({found['head']}) on [mean z, h], evolved for {found['generations']} "
            f"generations and {found['env_steps']:,} environment steps; kept: the mean of generation "
            f"{found['best_generation']}, whose {found['validation_episodes']} validation episodes returned "
            f"{found['validation_return']:.1f}."
        )
    validated = chapter.validations("validation of the mean")
    curves = [validated] if validated else []
    for where in ("real", "dream"):
        played = [line for line in lines if line["in"] == where and line["returns"]]
        if played:
            returns = [float(np.median(line["returns"])) for line in played]
            curves.append(Curve(f"candidates ({where})", [line["generation"] for line in played], returns))
    baseline = chapter.score["random"]["mean"] if chapter.score else None
    level = ("random policy", baseline) if baseline is not None else None
    caption = (
        "The search's mean on its fixed, whole validation episodes, with the 95 % interval, and the median candidate "
        "on training episodes, which may be cut short."
    )
    yield Chart(charts.lines(curves, "generation", "return", level=level), caption)


def _cost(chapter: RunSummary) -> Iterator[Block]:
    if not chapter.artifacts:
        return
    yield Heading(3, f"{chapter.title}: what it took")
    rows = []
    for name, artifact in chapter.artifacts.items():
        made = artifact.manifest["provenance"]
        size = format_size(durable.folder_size(artifact.folder))
        rows.append([name, format_duration(_seconds(artifact)), size, made["finished"]])
    yield Table(["artifact", "wall time", "on disk", "finished"], rows)
    for column, caption in (
        ("rss_anon_mb", "Memory of the process (anonymous pages) during each training."),
        ("disk_mb", "What each training held on disk, checkpoints included."),
    ):
        yield Chart(charts.lines(_over_time(chapter, column), "share of the training", "MB"), caption)
    latest = max(chapter.artifacts.values(), key=lambda artifact: artifact.manifest["provenance"]["finished"])
    made = latest.manifest["provenance"]
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items() if number)
    yield Paragraph(f"{made['machine']}; Python {made['python']}; {versions}; commit {made['commit']}.", "Made with")
    commands = dict.fromkeys(artifact.manifest["provenance"]["command"] for artifact in chapter.artifacts.values())
    yield Commands(list(commands))


def _over_time(chapter: RunSummary, column: str) -> list[Curve]:
    curves = []
    for name, label in (("vae", "V"), ("mdnrnn", "M"), ("controller", "C"), ("dreamer", "Dreamer")):
        logged = settled([line for line in metrics.read(chapter.folder(name)) if column in line])
        if logged:
            last = logged[-1]["step"] or 1
            curves.append(Curve(label, [line["step"] / last for line in logged], [line[column] for line in logged]))
    return curves


def _seconds(artifact: Artifact) -> float:
    """What it took; of a search, over all goes."""
    return max(float(artifact.manifest["provenance"]["wall_seconds"]), float(artifact.metrics.get("seconds", 0.0)))


def _load(folder: Path, kind: str) -> Artifact | None:
    try:
        return runs.load(folder, kind, "")
    except WmError:
        return None
