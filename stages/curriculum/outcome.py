"""What came of an environment in a curriculum: shown at the end, and kept in `runs/<Env>/curriculum.json`."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages import console
from stages.curriculum.pipeline import Pipeline
from stages.stage import Result
from wm.artifacts import durable, manifest
from wm.errors import WmError
from wm.settings import ControllerSettings, DreamerSettings
from wm.stats import Score
from wm.units import format_duration

RECORD = "curriculum.json"
HEADER = ["environment", "random policy", "our score", "episodes", "verdict", "env steps", "wall time"]


@dataclass
class Verdict:
    """What came of one environment; `took` says what each step that ran in this go needed: seconds, memory, disk."""

    chain: Pipeline
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    failure: WmError | None = None
    took: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def env(self) -> str:
        """The environment's name."""
        return self.chain.env

    def __str__(self) -> str:
        """Passed, budget spent, or failed, and why."""
        if self.failure is not None:
            return f"failed: {self.failure}"
        stages = ("train-controller", "train-dreamer")
        found = [result.metrics for result in self.results if result.stage in stages]
        settings = [step.settings for step in self.chain.steps if step.stage in stages]
        if not found or not isinstance(settings[-1], ControllerSettings | DreamerSettings):
            return "nothing was learned"
        what, key = "validation", "validation_return"
        if isinstance(settings[-1], DreamerSettings) and found[-1]["validation_return"] is None:
            what, key = f"last {found[-1]['training_episodes']} training episodes", "training_return"
        returns = [metrics[key] for metrics in found if metrics[key] is not None]
        told, target = f"{what} {max(returns):.1f}" if returns else "no episode was over", settings[-1].target_return
        if target is None:
            return f"done: {told}, no threshold is set"
        if returns and max(returns) >= target:
            return f"passed: {told}, threshold {target:g}"
        return f"budget spent ({found[-1]['ended']}): {told}, threshold {target:g}"

    def rows(self) -> list[list[str]]:
        """Its lines in the closing table: one for every round that was evaluated."""
        found: list[list[str]] = []
        wall = 0.0
        for result in self.results:
            wall += result.seconds
            if result.stage != "evaluate":
                continue
            score = result.metrics
            note = f"preview, n={score['episodes']}" if score["preview"] else f"n={score['episodes']}"
            found.append(
                [
                    self.env + (f", round {len(found) + 1}" if found else ""),
                    str(Score(score["random"]["mean"], score["random"]["ci95"], score["random"]["episodes"])),
                    str(Score(score["mean"], score["ci95"], score["episodes"])),
                    note,
                    str(self).partition(":")[0],
                    f"{score['env_steps']:,}",
                    format_duration(wall),
                ]
            )
            wall = 0.0
        if self.failure is not None:
            found.append([self.env, "-", "-", "-", "failed", "-", format_duration(self.seconds)])
        return found

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "env": self.env,
            "verdict": str(self),
            "fingerprint": self.chain.fingerprint,
            "seconds": round(self.seconds, 1),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "took": self.took,
            "results": [result.as_json() | {"summary": result.summary} for result in self.results],
        }

    def record(self) -> None:
        """Keep it beside the artifacts of the last round, with what steps took that were up to date this time."""
        path = durable.make_folder(self.chain.runs[-1]) / RECORD
        found, before = self.as_json(), _read(path)
        if before.get("fingerprint") == found["fingerprint"]:
            found["took"] = before.get("took", {}) | found["took"]
        durable.write_json(path, found)


def recorded(chain: Pipeline) -> Verdict | None:
    """The verdict of the same chain, if all its artifacts still stand; its episodes may be gone."""
    found = _read(chain.runs[-1] / RECORD)
    try:
        if found["fingerprint"] != chain.fingerprint or found["verdict"].startswith("failed"):
            return None
        results = [_result(one) for one in found["results"]]
        for one in results:
            if one.stage != "collect" and not _stands(one.path, one.fingerprint):
                return None
        return Verdict(chain, results, found["seconds"])
    except (KeyError, TypeError):
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _stands(folder: Path, fingerprint: str) -> bool:
    try:
        return bool(manifest.read_json(folder / manifest.NAME)["fingerprint"] == fingerprint)
    except (WmError, KeyError, TypeError):
        return False


def _result(found: dict[str, Any]) -> Result:
    return Result(
        found["stage"],
        "up to date",
        Path(found["artifact"]),
        found["fingerprint"],
        found["metrics"],
        found["summary"],
        found["wall_seconds"],
        [Path(path) for path in found["pictures"]],
    )


def closing(verdicts: list[Verdict], pages: tuple[Path, ...] = ()) -> str:
    """The closing table, the verdicts, and where the pictures are."""
    lines = [console.table(HEADER, [row for verdict in verdicts for row in verdict.rows()])]
    lines.append("mean return ± half-width of the 95 % interval, test seeds, unmodified environments;")
    lines.append("wall time adds up all stages, of an interrupted one the last go")
    lines += [f"{verdict.env}: {verdict}" for verdict in verdicts]
    if pages:
        lines.append("report:")
        lines += [f"  {page}" for page in pages]
    pictures = [picture for verdict in verdicts for result in verdict.results for picture in result.pictures]
    if pictures:
        lines.append("pictures:")
        lines += [f"  {picture}" for picture in pictures]
    return "\n".join(lines)
