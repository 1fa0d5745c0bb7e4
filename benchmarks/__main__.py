"""`make bench`: runs every script and writes their lines to benchmarks/results.jsonl."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    scripts = sorted(path.stem for path in HERE.glob("[!_]*.py") if "def main()" in path.read_text())
    results = HERE / "results.jsonl"
    for script in sys.argv[1:] or scripts:
        words = [sys.executable, "-m", f"benchmarks.{script}"]
        done = subprocess.run(words, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout, end="", flush=True)
        old = results.read_text().splitlines() if results.exists() else []
        measured = [json.loads(line) | {"script": script} for line in done.stdout.splitlines()]
        names = {line["name"] for line in measured}  # a machine without bf16 leaves what another measured in bf16
        others = [line for line in old if json.loads(line)["name"] not in names]
        lines = [json.dumps(line) for line in measured]
        results.write_text("".join(f"{line}\n" for line in sorted([*others, *lines])))


if __name__ == "__main__":
    main()
