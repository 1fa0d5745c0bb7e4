import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEYS = {"name", "ours", "reference", "ratio", "goal", "unit", "machine"}


def test_results_are_complete_lines_of_scripts_that_exist() -> None:
    for line in (ROOT / "benchmarks" / "results.jsonl").read_text().splitlines():
        result = json.loads(line)
        assert set(result) - {"lower_is_better"} == KEYS
        assert (ROOT / "benchmarks" / f"{result['name']}.py").exists()
        assert abs(result["ratio"] - result["ours"] / result["reference"]) < 1e-3
