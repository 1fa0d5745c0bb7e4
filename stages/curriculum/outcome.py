"""The outcome of an environment in a curriculum: shown at the end, and kept in `runs/<Env>/curriculum.json`."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages import console
from stages.curriculum.pipeline import Pipeline
from wm.artifacts import durable, json_reader, manifest, runs
from wm.artifacts.json_reader import ANYTHING, NUMBER, PATH, TABLE, TEXT, list_of, table
from wm.errors import BadData, MissingInput, WmError
from wm.evaluation.score import MIN_EPISODES
from wm.pipeline.stage import UP_TO_DATE, Result
from wm.report.conclusions import score_conclusion
from wm.report.run_summary import RunSummary
from wm.settings import ControllerSettings, DreamerSettings
from wm.stats import Score
from wm.units import format_duration

RECORD = "curriculum.json"
SCHEMA = json_reader.table(
    {
        "fingerprint": TEXT,
        "outcome": TEXT,
        "seconds": NUMBER,
        "usage": table({}, others=table({}, others=NUMBER)),
        "results": list_of(
            table(
                {
                    "stage": TEXT,
                    "artifact": PATH,
                    "fingerprint": TEXT,
                    "metrics": TABLE,
                    "summary": TEXT,
                    "wall_seconds": NUMBER,
                    "pictures": list_of(PATH),
                },
                others=ANYTHING,
            )
        ),
    },
    others=ANYTHING,
)
HEADER = ["environment", "random policy", "score", "episodes", "env steps", "wall time"]  # within 80 columns


@dataclass
class Outcome:
    """What an environment's pipeline ended with; `usage` has what each step that ran needed: seconds, memory, disk."""

    pipeline: Pipeline
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    failure: WmError | None = None
    usage: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def env(self) -> str:
        """The environment's name."""
        return self.pipeline.env

    def __str__(self) -> str:
        """Passed, budget spent, or failed, and why."""
        if self.failure is not None:
            return f"failed: {self.failure}"
        stages = ("train-controller", "train-dreamer")
        trainings = [result.metrics for result in self.results if result.stage in stages]
        settings = [step.settings for step in self.pipeline.steps if step.stage in stages]
        if not trainings or not isinstance(settings[-1], ControllerSettings | DreamerSettings):
            return "no agent was trained"
        episodes, key = "validation", "validation_return"
        if isinstance(settings[-1], DreamerSettings) and trainings[-1]["validation_return"] is None:
            episodes, key = f"last {trainings[-1]['training_episodes']} training episodes", "training_return"
        # The best C goes on from round to round, but not from before a round that trains V anew.
        begun = max(
            (number for number, one in enumerate(settings) if isinstance(one, ControllerSettings) and one.imitate),
            default=0,
        )
        returns = [metrics[key] for metrics in trainings[begun:] if metrics[key] is not None]
        best = f"{episodes} {max(returns):.1f}" if returns else "no episode ended"
        target = settings[-1].target_return
        if target is None:
            return f"done: {best}, no threshold is set"
        if returns and max(returns) >= target:
            return f"passed: {best}, threshold {target:g}"
        return f"budget spent ({trainings[-1]['ended']}): {best}, threshold {target:g}"

    @property
    def conclusion(self) -> str:
        """Its last score against random play; empty without one."""
        scores = [result.metrics for result in self.results if result.stage == "evaluate"]
        return score_conclusion(scores[-1]) if scores else ""

    def rows(self) -> list[list[str]]:
        """Its lines in the table: one for every round that was evaluated."""
        rows: list[list[str]] = []
        rounds = {step.session.run_path: step.round for step in self.pipeline.steps if step.stage == "evaluate"}
        for result in self.results:
            if result.stage != "evaluate":
                continue
            score, random, number = result.metrics, result.metrics["random"], rounds[result.path.parent.parent]
            rows.append(
                [
                    self.env + (f", round {number}" if number > 1 else ""),
                    str(Score(random["mean"], random["ci95"], random["episodes"])),
                    str(Score(score["mean"], score["ci95"], score["episodes"])),
                    str(score["episodes"]),
                    f"{score['env_steps']:,}",
                    format_duration(RunSummary.of(result.path.parent.parent).wall_seconds(result.path.name)),
                ]
            )
        if self.failure is not None:
            rows.append([self.env, "-", "failed", "-", "-", format_duration(self.seconds)])
        return rows

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "env": self.env,
            "outcome": str(self),
            "fingerprint": self.pipeline.fingerprint,
            "seconds": round(self.seconds, 1),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "usage": self.usage,
            "results": [result.as_json() | {"summary": result.summary} for result in self.results],
        }

    def record(self) -> None:
        """Write it next to the artifacts of the last round. Steps that were up to date keep their recorded usage."""
        path = durable.make_folder(self.pipeline.runs[-1]) / RECORD
        values, previous = self.as_json(), dict[str, Any]()
        with contextlib.suppress(BadData):  # a damaged one is replaced
            previous = _read(path)
        if previous.get("fingerprint") == values["fingerprint"]:
            values["usage"] = previous.get("usage", {}) | values["usage"]
        durable.write_bytes(path, manifest.sealed(values))


def recorded_outcome(pipeline: Pipeline) -> Outcome | None:
    """The recorded outcome of the same pipeline if all its artifacts are unchanged; its episodes may be removed. Raises
    BadData if the record was changed, or an artifact is damaged."""
    record = _read(pipeline.runs[-1] / RECORD)
    if not record or record["fingerprint"] != pipeline.fingerprint or record["outcome"].startswith("failed"):
        return None
    written = {path.resolve() for step in pipeline.steps for path in step.outputs}
    if any(Path(values["artifact"]).resolve() not in written for values in record["results"]):
        return None  # a record from elsewhere must not make this pipeline show another's figures
    results = [_result(values, pipeline.runs[-1]) for values in record["results"]]
    if not all(results):
        return None
    try:
        outcome = Outcome(pipeline, [result for result in results if result is not None], record["seconds"])
        str(outcome), outcome.rows()  # with other metrics than ours they raise
        return outcome
    except (WmError, KeyError, TypeError, ValueError):
        # A record of another version or an edited one: the environment is run again, which skips what is up to date.
        return None


def _read(path: Path) -> dict[str, Any]:
    """The record; empty if there is none. Raises BadData if it was changed."""
    if not path.exists():
        return {}
    return manifest.read_sealed(path, SCHEMA, "remove it to run every stage again")


def _result(values: dict[str, Any], run: Path) -> Result | None:
    """The result of a recorded step, with the figures of its artifact; None if that is another one now. Of episodes,
    which may be removed, the figures are the recorded ones."""
    folder, metrics, seconds = Path(values["artifact"]), values["metrics"], values["wall_seconds"]
    if values["stage"] != "collect":
        try:
            artifact = runs.read_whole(folder)
        except MissingInput:
            # Removed since: then the record says nothing of it.
            return None
        if artifact.fingerprint != values["fingerprint"]:
            return None
        metrics, seconds = artifact.metrics, float(artifact.manifest["provenance"]["wall_seconds"])
    pictures = [Path(path) for path in values["pictures"]]
    return Result(
        values["stage"], UP_TO_DATE, folder, run, values["fingerprint"], metrics, values["summary"], seconds, pictures
    )


def table_of(outcomes: Sequence[Outcome], pages: Sequence[Path] = ()) -> str:
    """The table of scores, the outcomes, and the paths of the pictures."""
    lines = [console.table(HEADER, [row for outcome in outcomes for row in outcome.rows()])]
    scores = [result.metrics for outcome in outcomes for result in outcome.results if result.stage == "evaluate"]
    few = any(score["preview"] for score in scores)
    notes = [
        "mean return ± half-width of the 95 % interval; test seeds, unmodified environments"
        + (f"; fewer than {MIN_EPISODES} episodes are a preview" if few else ""),
        "wall time: collecting, every stage, and the trainings that a later round continues; terms: docs/glossary.md",
        *("; ".join(filter(None, [f"{outcome.env}: {outcome}", outcome.conclusion])) for outcome in outcomes),
    ]
    lines += [console.wrap(note, "") for note in notes]
    pictures = [
        picture
        for outcome in outcomes
        for result in outcome.results
        for picture in result.pictures
        if result.stage == "train-vae" or result.path.parent in outcome.pipeline.reported
    ]
    for title, paths in (("report:", pages), ("pictures:", pictures)):
        if paths:
            lines += [title, *(f"  {path}" for path in paths)]
    return "\n".join(lines)
