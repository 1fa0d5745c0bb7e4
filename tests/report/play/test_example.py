"""The game that comes with wm."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import outcome, run
from tests.report.play.reference import parts_of
from wm.report.play import page as play_page
from wm.report.play.example import LARGEST

NODE = shutil.which("node")
PLAY = """
const fs = require("fs"), vm = require("vm"), [folder, file] = process.argv.slice(1);
for (const name of ["layers.js", "models.js", "dream.js"]) {
  vm.runInThisContext(fs.readFileSync(`${folder}/${name}`, "utf8"), {filename: name});
}
globalThis.content = JSON.parse(fs.readFileSync(file, "utf8"));
const open = "readWeights(content.weights, content.world.numbers).then(all => openWorld(content.world, all))";
vm.runInThisContext(open).then(world => {
  globalThis.world = world;
  console.log(vm.runInThisContext(`
    const middle = {uniform: () => .5, normal: () => 0}, lasted = [];
    let moved = 0;
    for (const start of world.starts) {
      const dream = new Dream(world, start), first = Float32Array.from(world.decoder.decode(dream.z));
      while (!dream.ended && dream.steps < 100) dream.step(world.space.encode(dream.choose(middle)), 1, middle);
      lasted.push(dream.steps);
      world.decoder.decode(dream.z).forEach((value, i) => { moved = Math.max(moved, Math.abs(value - first[i])); });
    }
    JSON.stringify({lasted, moved});
  `));
});
"""


def test_the_example_needs_no_run_and_its_page_is_small(tmp_path: Path) -> None:
    assert run(tmp_path, "play", "--example").stdout.strip() == "play.html"
    assert (tmp_path / "play.html").stat().st_size <= LARGEST
    world, weights = parts_of((tmp_path / "play.html").read_text())
    assert world["env"] == "CartPole"
    assert world["controller"] is not None
    assert len(weights) > 100_000
    done = outcome(tmp_path, "play")
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "--env is missing" in done.stderr
    assert "or give --example" in done.stderr


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_c_balances_the_examples_pole(tmp_path: Path) -> None:
    run(tmp_path, "play", "--example", "--out", "page.html")
    world, weights = parts_of((tmp_path / "page.html").read_text())
    (tmp_path / "content.json").write_text(json.dumps({"world": world, "weights": weights}))
    words = [str(NODE), "-e", PLAY, str(Path(play_page.__file__).parent), str(tmp_path / "content.json")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    played = json.loads(done.stdout)
    assert sorted(played["lasted"])[len(played["lasted"]) // 2] == 100  # steps, from most starts
    assert played["moved"] > 0.3  # of a pixel's range
