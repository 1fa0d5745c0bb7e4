"""What is published: what a manifest lists and others need, with a card; nothing that tells of the machine."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import SLUG, TINY, run
from tests.sharing.conftest import Answer, other_seed, reseal
from tests.sharing.test_pull import files_of
from wm.artifacts import manifest
from wm.episodes.dataset import Dataset
from wm.sharing.bundle import portable
from wm.sharing.contents import CARD

RUN = f"runs/{SLUG}"


def test_the_same_run_is_published_once(trained: Path, answer: Answer) -> None:
    assert json.loads(answer("push", RUN, "shared", "--json", code=0))["status"] == "published"
    before = files_of(trained.parents[1] / "shared")
    assert "up to date" in answer("push", RUN, "shared", code=0)
    assert files_of(trained.parents[1] / "shared") == before


def test_a_changed_run_replaces_the_published_one(trained: Path, answer: Answer) -> None:
    answer("push", RUN, "shared", code=0)
    answer("push", RUN, "shared", "--without", "latents", "--without", "dream", "--episodes", "2", code=0)
    shared = trained.parents[1] / "shared"
    assert not (shared / "latents").exists()
    assert Dataset.open(shared / "episodes.zarr").episodes == 2
    assert sorted(path.name for path in shared.parent.iterdir()) == [".shared.lock", "data", "runs", "shared"]


@pytest.mark.parametrize("target", ["shared", "shared.zip"])
def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    target: str, trained: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(trained)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1000))
    assert f"the run of {RUN} needs about" in answer("push", RUN, target, code=74)
    assert not (trained.parents[1] / target).exists()


def test_a_damaged_publication_is_published_again(trained: Path, answer: Answer) -> None:
    answer("push", RUN, "shared", code=0)
    path = trained.parents[1] / "shared" / "vae" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[::-1])
    assert "published" in answer("push", RUN, "shared", code=0)


def test_what_is_no_publication_is_not_replaced(trained: Path, answer: Answer) -> None:
    mine = trained.parents[1] / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    assert "is no shared run; give another place" in answer("push", RUN, "mine", code=64)
    answer("push", RUN, "shared", code=0)
    notes = trained.parents[1] / "shared" / "notes.txt"
    notes.write_text("mine")
    assert "also holds notes.txt" in answer("push", RUN, "shared", "--episodes", "1", code=64)
    assert notes.read_text() == "mine"


def test_the_first_episodes_travel_as_they_are(trained: Path, answer: Answer) -> None:
    answer("push", RUN, "shared", "--episodes", "3", code=0)
    few, all_ = (
        Dataset.open(trained.parents[1] / "shared/episodes.zarr"),
        Dataset.open(trained.parents[1] / f"data/{SLUG}.zarr"),
    )
    assert few.recipe == all_.recipe
    assert few.fingerprint == all_.first(3).fingerprint
    for one, other in zip(few.episodes_of(few.parts[0]), all_.episodes_of(all_.parts[0]), strict=False):
        assert (one.frames == other.frames).all()
        assert (one.rewards == other.rewards).all()


def test_nothing_of_the_machine_travels(trained: Path, answer: Answer) -> None:
    """Logs of TensorBoard have its name in theirs, snapshots of memory its paths, commands those that were typed."""
    vae = trained / "vae"
    (vae / "tensorboard").mkdir(exist_ok=True)  # there where the extra is installed
    (vae / "tensorboard" / "events.out.tfevents.1.laptop-of-lovelace.7.0").write_bytes(b"x")
    (vae / "memory-1.json").write_text('{"lines": ["/home/lovelace/wm/x.py:3"]}')
    (vae / "notes.txt").write_text("listed by no manifest")
    body = manifest.read_json(vae / manifest.NAME)
    command = "wm train-vae --data /home/lovelace/data/Tiny.zarr --config=../lovelace/x.toml --env 'tests.tiny:Tiny-v0'"
    provenance = body["provenance"] | {"command": command, "host": "laptop-of-lovelace", "python": "3.11"}
    others = [path.relative_to(vae).as_posix() for path in vae.rglob("*") if path.is_file()]
    kept = {key: value for key, value in body.items() if key not in ("files", "sha256")} | {"provenance": provenance}
    names = sorted(set(others) - {manifest.NAME, "notes.txt"})
    (vae / manifest.NAME).unlink()
    manifest.write(vae, kept, names)
    answer("push", RUN, "shared", code=0)
    published = files_of(trained.parents[1] / "shared")
    suspects = [name for name in published if re.search("tensorboard|memory|notes", name)]
    assert suspects in ([], ["vae/memory.png"])  # its plot is drawn where a training took long enough
    assert not [name for name, data in published.items() if b"lovelace" in data]
    shown = json.loads(published["vae/manifest.json"])["provenance"]["command"]
    assert shown == "wm train-vae --data Tiny.zarr --config=x.toml --env tests.tiny:Tiny-v0"
    assert shown in published[CARD].decode()


def test_a_path_of_the_machine_in_settings_is_refused(trained: Path, answer: Answer) -> None:
    body = manifest.read_json(trained / "dream" / manifest.NAME)
    recipe = body["recipe"] | {"settings": body["recipe"]["settings"] | {"note": str(trained.parents[1] / "x")}}
    reseal(trained / "dream", recipe=recipe)
    assert "dream/manifest.json has the path" in answer("push", RUN, "shared", code=65)
    assert not (trained.parents[1] / "shared").exists()


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("wm collect --env Pong --data data/Pong.zarr", "wm collect --env Pong --data data/Pong.zarr"),
        ("wm collect --env ALE/Pong-v5", "wm collect --env ALE/Pong-v5"),
        ("wm x --run '/home/a b/runs/Pong'", "wm x --run Pong"),
        ("wm x --run=~ada/runs/Pong/ 'C:\\Users\\ada\\x'", "wm x --run=Pong x"),
        ("wm x ~ada / ..", "wm x . . .."),
        ("wm 'x", ""),
        ("wm x --data s3://lab/private/Pong --set a=/b=c/d", "wm x --data Pong --set a=d"),
        ("wm x --executor=dask:tcp://10.0.0.7:8786 --data=s3://lab/x=1/y", "wm x --executor=dask:ADDRESS --data=y"),
    ],
)
def test_of_a_path_out_of_the_folder_only_the_last_name_is_kept(typed: str, shown: str) -> None:
    assert portable(typed) == shown


def test_an_older_score_is_not_published_with_a_newer_agent(trained: Path, answer: Answer) -> None:
    reseal(trained / "controller", recipe=other_seed(trained / "controller"))
    sentence = answer("push", RUN, "shared", code=78)
    assert "was made from another controller" in sentence
    assert "--without" in sentence


def test_a_run_without_c_or_m_tells_the_command_that_trains_it(trained: Path, answer: Answer) -> None:
    for name in ("controller", "mdnrnn"):
        shutil.rmtree(trained / name)
        sentence = answer("push", RUN, "shared", code=66)
        assert f"run `wm train-{name} --env {TINY}` first" in sentence
    assert not (trained.parents[1] / "shared").exists()


def test_what_cannot_be_published_is_one_sentence(trained: Path, answer: Answer) -> None:
    assert "runs/none does not exist; `wm ls` shows" in answer("push", "runs/none", "shared", code=66)
    train = f"wm train-controller --env {TINY}"
    assert f"run `{train} --name other` first" in answer("push", RUN, "shared", "--agent", "other", code=66)
    assert "expected a number or all" in answer("push", RUN, "shared", "--episodes", "few", code=64)
    assert "expected a number or all" in answer("push", RUN, "shared", "--episodes", "9" * 5000, code=64)
    assert "--without is 'vae'; expected one of latents" in answer("push", RUN, "shared", "--without", "vae", code=64)
    assert "more than --max-size" in answer("push", RUN, "shared", "--max-size", "1kB", code=64)
    shutil.rmtree(trained.parents[1] / "data")
    assert "--episodes 0" in answer("push", RUN, "shared", code=66)
    (trained / "vae" / "model.json").write_text("{}")
    assert "model.json" in answer("push", RUN, "shared", "--episodes", "0", code=65)
    assert not (trained.parents[1] / "shared").exists()


def test_a_run_without_score_dream_and_episodes_has_a_card_that_says_so(trained: Path, answer: Answer) -> None:
    for name in ("evaluation", "dream"):
        shutil.rmtree(trained / name)
    answer("push", RUN, "shared", "--episodes", "0", code=0)
    card = (trained.parents[1] / "shared" / CARD).read_text()
    assert "was not evaluated" in card
    assert "model-index" not in card
    assert "](vae/reconstructions.png)" in card
    assert "0 of the 24 episodes" in card


def test_the_card_tells_score_baseline_protocol_cost_and_limits(published: Path) -> None:
    card = (published / CARD).read_text()
    score = manifest.read_json(published / "evaluation" / "controller" / manifest.NAME)["metrics"]
    assert f"| agent | {score['mean']:.1f} ± {score['ci95']:.1f} | 6 |" in card
    assert f"| random policy | {score['random']['mean']:.1f} ± {score['random']['ci95']:.1f} | 6 |" in card
    for text in (
        "Protocol: gymnasium",
        "Too few episodes",
        "](dream/dream.gif)",
        "commit",
        "cores",
        "one training seed",
    ):
        assert text in card
    for model in ("V, the VAE", "M, the predictor", "C, the controller"):
        assert re.search(rf"\| {model} \| [\d,]+ \|", card)  # parameters
    assert (published / "dream" / "dream.gif").is_file()
    front = card.split("---\n")[1]
    assert "model-index:\n" in front
    assert f'      type: "{TINY}"\n' in front
    returns = json.loads((published / "evaluation" / "controller" / "score.json").read_text())["returns"]
    deviation = (sum((value - score["mean"]) ** 2 for value in returns) / (len(returns) - 1)) ** 0.5
    assert f"value: {score['mean']:.2f} +/- {deviation:.2f}\n" in front


def test_an_interrupted_push_leaves_what_was_published(
    trained: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer("push", RUN, "shared", code=0)
    before = files_of(trained.parents[1] / "shared")
    with monkeypatch.context() as patched:
        patched.setattr("wm.artifacts.durable.publish", _full)
        answer("push", RUN, "shared", "--episodes", "1", code=74)
    assert files_of(trained.parents[1] / "shared") == before
    answer("push", RUN, "shared", "--episodes", "1", code=0)


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_place_whose_name_is_no_utf_8_is_a_place(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made there records the command, and what is published is compared with the names of folders."""
    there = shutil.copytree(chain, tmp_path / os.fsdecode(b"a\xff"))
    words = ["evaluate", "--env", TINY, "--episodes", "2", "--run", str(there / "runs" / SLUG)]
    monkeypatch.setattr("sys.argv", ["wm", *words])
    run(there, *words)
    recorded = json.loads((there / "runs" / SLUG / "evaluation/controller/manifest.json").read_text())["provenance"]
    assert "a\\udcff" in recorded["command"]
    run(there, "push", f"runs/{SLUG}", str(tmp_path / "T"))
    assert (tmp_path / "T" / CARD).is_file()


@pytest.mark.parametrize(
    "target",
    [RUN, f"{RUN}/sub", f"{RUN}/sub.zip", f"file:{RUN}/vae/sub", "linked/sub", f"data/{SLUG}.zarr/sub", "runs", "."],
)
def test_a_run_is_published_neither_in_nor_around_what_is_read(trained: Path, answer: Answer, target: str) -> None:
    folder = trained.parents[1]
    (folder / "linked").symlink_to(trained)
    before = files_of(folder)
    said = answer("push", RUN, target, code=64)
    assert "which is published; name a path" in said
    assert target.removeprefix("file:") in said
    assert files_of(folder) == before
