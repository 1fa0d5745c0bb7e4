import json
from pathlib import Path

from benchmarks import cluster, play
from tests.report.play.reference import parts_of

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


def test_the_page_whose_speed_is_measured_has_the_networks_of_the_laptop_preset(tmp_path: Path) -> None:
    world, _ = parts_of(play.game("small", tmp_path).page().decode())
    assert (world["mdnrnn"]["network"], world["controller"]["head"]) == ("rollout", "categorical")
    assert len(world["starts"]) == 8


def test_a_generation_sends_few_megabytes_to_a_thousand_workers() -> None:
    """Tasks of one episode and their replies; with all candidates in every task they would be 230 MB."""
    tasks, size = cluster.generation_bytes()
    assert tasks == cluster.CANDIDATES * cluster.EPISODES_EACH
    # Dask's own messages, about 1.9 kB a task (docs/scale.md), and signs of life come on top; the limit is 10 MB.
    assert size + tasks * 2000 + cluster.IDENTITY_BYTES * cluster.WORKERS * cluster.GENERATION_SECONDS < 10e6
