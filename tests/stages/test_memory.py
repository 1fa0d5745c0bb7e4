"""`wm memory`, on a chain that was really run."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from stages.memory import _row
from tests.conftest import SLUG
from tests.stages.conftest import Output
from wm.telemetry.trend import estimate_trend, judge


def test_every_training_has_a_verdict_and_a_plot(
    chain_copy: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(chain_copy)
    trainings = json.loads(output("memory", f"runs/{SLUG}", "--json"))["trainings"]
    assert [Path(one["training"]).name for one in trainings] == ["controller", "mdnrnn", "vae"]
    for one in trainings:
        assert one["verdict"]
        assert Path(one["plot"]).read_bytes().startswith(b"\x89PNG")


def test_the_text_fits_80_columns(chain_copy: Path, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(chain_copy)
    monkeypatch.setenv("COLUMNS", "80")
    text = output("memory", f"runs/{SLUG}")
    assert "kB a step" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_line_feed_in_a_name_breaks_no_line(
    chain_copy: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(chain_copy)
    Path("runs", SLUG).rename("runs/a\nb")
    text = output("memory", "runs/a\nb")
    assert "runs/a\\nb/vae: " in text
    assert "plot: runs/a\\nb/vae/memory.png" in text


def test_a_folder_without_a_training_is_one_sentence(tmp_path: Path, output: Output) -> None:
    assert f"no training in {tmp_path} that measured its memory" in output("memory", str(tmp_path), code=66)


def test_the_reason_of_a_flat_verdict_agrees_with_it() -> None:
    slow = judge([{"step": k, "rss_anon_mb": 100 + 0.004 * k} for k in range(100)])  # 4 kB a step, 0.3 MB in all
    assert (slow.word, "0.3 MB in all; a rise is more than 8.4 MB" in slow.reason) == ("flat", True)
    noisy = judge([{"step": k, "rss_anon_mb": 100 + 0.1 * k + 300 * (k % 2)} for k in range(100)])
    assert noisy.word == "flat"
    assert "in all; a rise" in noisy.reason or "the interval reaches below" in noisy.reason


def test_the_verdict_and_the_table_say_the_same_figures() -> None:
    log = [{"step": k, "rss_anon_mb": 100 + 0.0423 * k + 3 * (k % 3)} for k in range(100)]
    trend = estimate_trend(range(100), [line["rss_anon_mb"] for line in log])
    row = _row({"phase": "training", "column": "rss_anon_mb", **asdict(trend)})
    assert f"{row[3]} kB a step ({row[4]})" == str(trend)
    assert "." not in row[3]
    assert f"{row[3]} kB a step" in judge(log).reason


@pytest.mark.parametrize("readings", [2, 3, 4])
def test_a_few_readings_have_no_interval(readings: int) -> None:
    trend = estimate_trend(range(readings), [1.0 + 60 * k for k in range(readings)])
    assert (trend.low, trend.high, trend.rises) == (None, None, False)
    assert _row({"phase": "warming up", "column": "rss_anon_mb", **asdict(trend)})[4] == "no interval"
