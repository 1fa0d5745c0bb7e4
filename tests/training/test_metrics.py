from pathlib import Path

from wm.training.metrics import NAME, MetricsLog, read


def test_a_reopened_log_has_no_step_twice_and_no_torn_line(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, 0)
    for step in (10, 20, 30):
        log.write(step, {"loss": 1.0 / step})
    with open(tmp_path / NAME, "a") as file:
        file.write('{"step": 40, "lo')
    log = MetricsLog(tmp_path, 20)
    log.write(30, {"loss": 0.5})
    log.close()
    assert [(line["step"], line["loss"]) for line in read(tmp_path)] == [(10, 0.1), (20, 0.05), (30, 0.5)]
    assert all(line["rss_anon_mb"] > 1 for line in read(tmp_path))
