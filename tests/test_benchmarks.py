import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEYS = {"name", "ours", "reference", "ratio", "goal", "unit", "machine"}


def test_results_are_complete_lines_and_name_their_script() -> None:
    scripts = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    names = []
    for line in (ROOT / "benchmarks" / "results.jsonl").read_text().splitlines():
        result = json.loads(line)
        names.append(result["name"])
        assert set(result) - {"lower_is_better", "script"} == KEYS
        assert "def main()" in scripts[result["script"]]
        # Ratios are taken window by window, so they differ a little from the ratio of the medians.
        assert abs(result["ratio"] - result["ours"] / result["reference"]) <= 0.2 * abs(result["ratio"]) + 0.001
    assert len(names) == len(set(names))
