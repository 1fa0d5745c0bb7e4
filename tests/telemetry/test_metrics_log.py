import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wm import extras
from wm.runtime import Runtime
from wm.telemetry.metrics_log import NAME, MetricsLog, read
from wm.telemetry.tensorboard import add_image
from wm.telemetry.trackers import Trackers


def test_a_reopened_log_has_one_line_a_step_and_none_incomplete(tmp_path: Path) -> None:
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


@pytest.mark.extra("tb")
def test_tensorboard_has_the_same_scalars_and_the_images(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = MetricsLog(tmp_path, -1)
    for step in (1, 2):
        log.write(step, {"loss": 0.5 * step, "validation_loss": 3.0})
    log.close()
    picture = tmp_path / "picture.png"
    Image.fromarray(np.full((4, 6, 3), 200, np.uint8)).save(picture)
    add_image(Runtime(), tmp_path, 2, "reconstructions", picture.read_bytes())
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    lines = read(tmp_path)
    assert set(events.Tags()["scalars"]) == set(lines[0])
    assert {"step", "loss", "validation_loss", "rss_anon_mb", "unexplained_mb"} <= set(lines[0])
    for name in ("loss", "rss_anon_mb"):
        assert [event.value for event in events.Scalars(name)] == pytest.approx([line[name] for line in lines])
    (image,) = events.Images("reconstructions")
    assert (image.width, image.height) == (6, 4)
    for names, written in ((("wandb",), False), (("tensorboard",), True)):
        folder = tmp_path / names[0]
        add_image(Runtime(track=Trackers(names, print)), folder, 2, "reconstructions", picture.read_bytes())
        assert folder.exists() == written


@pytest.mark.extra("tb")
def test_a_resumed_training_keeps_the_points_of_its_checkpoint_in_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    killed = MetricsLog(tmp_path, -1)
    for step in (10, 20, 30):
        killed.write(step, {"loss": 1.0 / step})
    killed.close()
    time.sleep(1.1)  # event files are named by the second
    resumed = MetricsLog(tmp_path, 20)
    for step in (30, 40):
        resumed.write(step, {"loss": 1.0 / step})
    resumed.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [10, 20, 30, 40]


def test_a_tensorboard_that_cannot_be_imported_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "packages" / "tensorboard"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text('raise TypeError("descriptors cannot be created directly")')
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard" or "utils.tensorboard" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(broken.parent))
    lines: list[str] = []
    log = MetricsLog(tmp_path, -1, log=lines.append)
    log.write(1, {"loss": 0.5})
    log.close()
    assert len(read(tmp_path)) == 1
    (line,) = lines
    assert line.startswith("warning: TensorBoard gets no curves: the import of tensorboard failed: descriptors cannot")
    assert line.endswith("run `pip install -e '.[tb]'`.")
    assert "descriptors" in extras.import_problem("tb")  # as wm doctor shows it


def test_lines_say_how_long_a_training_took_in_all_its_sessions(tmp_path: Path) -> None:
    first = MetricsLog(tmp_path, -1, clock=iter((100.0, 101.0, 104.0, 109.0)).__next__)
    for step in (10, 20, 30):
        first.write(step, {})
    assert first.earlier_seconds == 0
    resumed = MetricsLog(tmp_path, 20, clock=iter((7.0, 9.5)).__next__)  # what came after step 20 is lost
    resumed.write(30, {})
    assert resumed.earlier_seconds == 4
    assert [line["seconds"] for line in read(tmp_path)] == [1, 4, 6.5]
