"""`make bench`: runs every script and writes their lines to benchmarks/results.jsonl."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("[!_]*.py") if path.stem != "measure")
    lines = []
    for name in names:
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}"], cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True
        )
        print(done.stdout, end="", flush=True)
        lines += done.stdout.splitlines()
    results = HERE / "results.jsonl"
    old = results.read_text().splitlines() if results.exists() else []
    measured = {json.loads(line)["name"] for line in lines}
    kept = [line for line in old if json.loads(line)["name"] not in measured]
    results.write_text("".join(f"{line}\n" for line in sorted([*kept, *lines])))


if __name__ == "__main__":
    main()
