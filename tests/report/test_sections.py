from pathlib import Path

from tests.conftest import SLUG
from wm.artifacts import runs
from wm.evaluation.prediction import format_predictions
from wm.report.document import Paragraph, Table
from wm.report.sections import mdnrnn_section, vae_section


def test_errors_of_positions_stand_beside_every_baseline_in_the_order_of_steps(chain: Path) -> None:
    artifact = runs.load(chain / "runs" / SLUG / "mdnrnn", "mdnrnn", "wm train-mdnrnn")
    by_step = {"1": 2.0, "15": 9.0, "5": 4.0, "50": None}  # as JSON sorts them
    names = ("M", "linear", "persistence", "mean")
    artifact.manifest["metrics"]["positions"] = {"ball_x": {"V": 1.5} | dict.fromkeys(names, by_step)}
    tables = [block for block in mdnrnn_section("Tiny", artifact, []) if isinstance(block, Table)]
    table = next(table for table in tables if table.header[0] == "error of positions")
    assert table.header[1:] == ["steps ahead", "V itself", *names]
    assert [row[:4] for row in table.rows] == [
        ["ball_x", "1", "1.5", "2"],
        ["ball_x", "5", "1.5", "4"],
        ["ball_x", "15", "1.5", "9"],
    ]
    assert "newest" not in format_predictions(artifact.metrics)
    artifact.manifest["metrics"]["newest"] = {"positions": {"ball_x": {"V": 3.5, "M": {"1": 7.0}}}}
    blocks = mdnrnn_section("Tiny", artifact, [])
    table = next(block for block in blocks if isinstance(block, Table) and block.header[0] == "error of positions")
    assert table.header[-2:] == ["V, newest episodes", "M, newest episodes"]
    assert [row[-2:] for row in table.rows] == [["3.5", "7"], ["3.5", "–"], ["3.5", "–"]]
    printed = format_predictions(artifact.metrics)
    assert "error of ball_x in the newest episodes: V 3.5; 1 steps ahead: M 7" in printed
    assert "error of ball_x: V 1.5; 1, 5, 15 steps ahead: M 2, 4, 9; linear 2, 4, 9; persistence 2, 4, 9" in printed


def test_the_recall_of_rewards_is_said_to_be_that_of_rare_ones(chain: Path) -> None:
    """Where every step is paid, those that are not zero are all."""
    artifact = runs.load(chain / "runs" / SLUG / "mdnrnn", "mdnrnn", "wm train-mdnrnn")
    artifact.manifest["metrics"]["reward"] |= {"recall": 0.7}
    texts = [block.text for block in mdnrnn_section("Tiny", artifact, []) if isinstance(block, Paragraph)]
    said = "Rewards: 70% of those that differ from the most frequent one are predicted within a step, at precision 0.5."
    assert any(said in text for text in texts)


def test_the_frames_of_v_are_those_of_its_episodes_of_which_some_are_held_out(chain: Path) -> None:
    artifact = runs.load(chain / "runs" / SLUG / "vae", "vae", "wm train-vae")
    text = next(block.text for block in vae_section("Tiny", artifact, []) if isinstance(block, Paragraph))
    assert f"its episodes have {artifact.metrics['rows']:,} frames. On the held-out ones its squared error is" in text
