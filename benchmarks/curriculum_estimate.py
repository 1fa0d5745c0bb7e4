"""What `wm curriculum --dry-run` estimates against what is then measured, quick preset: the worst factor by which
disk (of an environment), memory (of a stage), and time (of collect, V and M) are off, either way.

Takes as long as the curriculum. The table goes to stderr. With a folder as its argument, it only reads what a
curriculum left there (`plan.json` is what `--dry-run --json` had printed).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import report

ROOT = Path(__file__).resolve().parent.parent
TIMED = ("collect", "train-vae", "train-mdnrnn")


def wm(folder: Path, *options: str) -> str:
    """What a quick curriculum prints."""
    words = [sys.executable, "-c", "from stages.cli import main; main()", "curriculum", "--quick", "--json", *options]
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True, check=True, env=here).stdout


def main() -> None:
    if len(sys.argv) > 1:
        compare(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan.json").write_text(wm(folder, "--dry-run"))
        wm(folder)
        compare(folder)


def compare(folder: Path) -> None:
    """Print the table and the three worst factors."""
    plans: dict[str, list[dict[str, Any]]] = json.loads((folder / "plan.json").read_text())["environments"]
    worst = {"disk": 1.0, "memory": 1.0, "seconds": 1.0}
    print(f"{'stage':34}{'time':>18}{'memory':>18}{'disk':>20}", file=sys.stderr)
    for env, stages in plans.items():
        took = json.loads((folder / "runs" / env / "curriculum.json").read_text())["usage"]
        estimated = sum(plan["disk_bytes"] for plan in stages)
        measured = sum(took[f"{env} {plan['stage']}"]["disk"] for plan in stages)
        for plan in stages:
            stage, usage = plan["stage"], took[f"{env} {plan['stage']}"]
            low, high = plan["seconds"]
            seconds = f"{low:.0f}" + (f"-{high:.0f}" if high > low else "") + f" / {usage['seconds']:.0f} s"
            memory = f"{plan['memory_bytes'] / 1e6:.0f} / {usage['memory'] / 1e6:.0f} MB"
            disk = f"{plan['disk_bytes'] / 1e6:.1f} / {usage['disk'] / 1e6:.1f} MB"
            print(f"{env + ' ' + stage:34}{seconds:>18}{memory:>18}{disk:>20}", file=sys.stderr)
            worst["memory"] = max(worst["memory"], _off(plan["memory_bytes"], usage["memory"]))
            if stage in TIMED:
                worst["seconds"] = max(worst["seconds"], _off(low, usage["seconds"]))
        worst["disk"] = max(worst["disk"], _off(estimated, measured))
        print(f"{env + ', all':34}{'':36}{estimated / 1e6:>11.1f} / {measured / 1e6:.1f} MB", file=sys.stderr)
    # Estimates that are off by more would not tell whether an evening or a night is needed.
    for name, goal in (("disk", 1.5), ("memory", 1.5), ("seconds", 2.0)):
        report(
            f"curriculum_estimate_{name}", round(worst[name], 3), 1.0, goal, "times", worst[name], lower_is_better=True
        )


def _off(one: float, other: float) -> float:
    # 1e-9 keeps a stage that took no time from dividing by 0.
    return max(one / max(other, 1e-9), other / max(one, 1e-9))


if __name__ == "__main__":
    main()
