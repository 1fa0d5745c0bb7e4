"""ls, info, view, export and clean, on a dataset that was really collected."""

import html.parser
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from stages.cli import run
from tests.conftest import RECIPE, SLUG, make_episode, write_dataset
from wm.artifacts import locks
from wm.episodes import schema
from wm.episodes.dataset import QUARANTINE, Dataset
from wm.episodes.writer import Writer, create

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    create(tmp_path / "data" / "d.zarr", {**RECIPE, "policy": "<b>sticky</b>", "seed": 3})
    with Writer(tmp_path / "data" / "d.zarr", {**RECIPE, "policy": "<b>sticky</b>", "seed": 3}) as writer:
        for index in range(20):
            writer.add(make_episode(index, rows=10 + index).pack())
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(list(words)) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_ls_lists_datasets_and_artifacts_finished_or_not(
    chain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(chain)
    found = json.loads(told(capsys, "ls", "--json"))["found"]
    kinds = {line["path"].removeprefix(f"runs/{SLUG}/"): line["kind"] for line in found}
    assert kinds[f"data/{SLUG}.zarr"] == "episodes"
    assert {kinds[name] for name in ("vae", "mdnrnn", "controller")} == {"vae", "mdnrnn", "controller"}
    assert "24 episodes" in told(capsys, "ls")


def test_info_of_an_artifact_has_its_settings_and_provenance(
    chain: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(chain)
    text = told(capsys, "info", f"runs/{SLUG}/vae")
    assert "setting latent" in text
    assert "provenance command" in text
    body = json.loads(told(capsys, "info", f"runs/{SLUG}/vae", "--json"))
    assert body["recipe"]["settings"]["latent"] == 4


def test_info_of_a_dataset_counts_what_is_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "info", "data/d.zarr", "--json"))
    returns = [make_episode(k, rows=10 + k).rewards.sum() for k in range(20)]
    assert (found["episodes"], found["steps"]) == (20, sum(9 + k for k in range(20)))
    assert found["mean_return"] == pytest.approx(np.mean(returns), abs=1e-4)
    assert sum(found["returns"]["counts"]) == 20
    size = sum(p.stat().st_size for p in (here / "data" / "d.zarr").glob("part-*/**/*") if p.is_file())
    assert found["bytes"] == size
    assert found["bytes_per_frame"] == pytest.approx(size / found["frames"], abs=0.1)
    assert "returns" in told(capsys, "info", "data/d.zarr")
    assert "is neither a dataset" in told(capsys, "info", "data", code=66)


def test_a_page_needs_nothing_from_elsewhere_and_escapes_what_it_shows(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(told(capsys, "view", "data/d.zarr", "--episodes", "0,3-5").strip()).read_text()
    addresses = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            addresses.extend(str(value) for name, value in attributes if name in ("src", "href"))

    Reader().feed(page)
    assert len(addresses) == 4
    assert all(address.startswith("data:image/png;base64,") for address in addresses)
    assert "<b>sticky</b>" not in page
    assert "&lt;b&gt;sticky" in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_page_works_in_a_browser(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the path")
    told(capsys, "view", "data/d.zarr", "--out", "page.html")
    options = ["--headless", "--disable-gpu", "--dump-dom"]
    options += ["--no-sandbox"] if os.name == "posix" and os.getuid() == 0 else []
    done = subprocess.run(
        [browser, *options, (here / "page.html").as_uri()], capture_output=True, text=True, timeout=60
    )
    assert 'data-ready="12"' in done.stdout, done.stderr[-500:]
    assert done.stdout.count("step 0 of ") == 12


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("view", "data/d.zarr", "--episodes", "a-b"), 64, "expected numbers and ranges"),
        (("view", "data/d.zarr", "--episodes", "99"), 66, "has no episode 99"),
        (("view", "data/d.zarr", "--episodes", "5-3"), 64, "smaller first"),
        (
            ("export", "data/d.zarr", "--to", "npz", "--episodes", "0-99999999999999999999"),
            64,
            "up to 100,000 episodes",
        ),
        (("export", "data/nowhere.zarr", "--to", "npz"), 66, "is not a dataset"),
    ],
)
def test_bad_words_are_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, sentence: str
) -> None:
    assert sentence in told(capsys, *words, code=code)


def test_exported_npz_files_hold_the_episodes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(told(capsys, "export", "data/d.zarr", "--to", "npz").strip())
    assert len(list(folder.iterdir())) == 20
    real = make_episode(7, rows=17)
    with np.load(folder / "episode-000007.npz") as held:
        for name in ("frames", "actions", "rewards", "labels"):
            assert np.array_equal(held[name], getattr(real, name)), name
        assert (held["terminated"], held["seed"]) == (True, 1007)
    assert "exists; remove it" in told(capsys, "export", "data/d.zarr", "--to", "npz", code=64)


def test_minari_reads_what_was_exported(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari", reason="the extra minari is not installed")
    pytest.importorskip("h5py", reason="the extra minari is not installed")
    folder = Path(told(capsys, "export", "data/d.zarr", "--to", "minari").strip())
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder.resolve()))
    (name,) = minari.list_local_datasets()
    held = minari.load_dataset(name)
    assert (held.total_episodes, held.total_steps) == (20, sum(9 + k for k in range(20)))
    for number, episode in enumerate(held.iterate_episodes()):
        real = make_episode(number, rows=10 + number)
        assert np.array_equal(episode.observations, real.frames)
        assert np.array_equal(episode.actions, real.actions[:-1])
        assert np.allclose(episode.rewards, real.rewards[:-1])
        assert (bool(episode.terminations[-1]), bool(episode.truncations[-1])) == (real.terminated, real.truncated)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # imageio leaves pipes open
def test_films_are_read_back(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imageio = pytest.importorskip("imageio.v2", reason="the extra mp4 is not installed")
    pytest.importorskip("imageio_ffmpeg", reason="the extra mp4 is not installed")
    folder = Path(told(capsys, "export", "data/d.zarr", "--to", "mp4", "--episodes", "2").strip())
    film = imageio.mimread(folder / "episode-000002.mp4", memtest=False)
    assert len(film) == 12
    assert film[0].shape == (128, 128, 3)
    blocks = np.stack(film).reshape(12, 32, 4, 32, 4, 3).mean(axis=(2, 4))
    assert np.abs(blocks.mean(axis=-1) - make_episode(2, rows=12).frames.mean(axis=-1)).mean() < 12


def test_a_missing_extra_gets_its_pip_line(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "run `pip install -e '.[mp4]'`" in told(capsys, "export", "data/d.zarr", "--to", "mp4", code=69)


def litter(here: Path) -> None:
    for name in (".staging/abc/frames", f"{QUARANTINE}/part-000090-000091"):
        (here / "data" / "d.zarr" / name).mkdir(parents=True)
    (here / "data" / "d.zarr" / ".staging" / "abc" / "frames" / "c.0").write_bytes(bytes(1000))
    (here / "data" / "d.zarr" / QUARANTINE / "part-000090-000091" / "c.0").write_bytes(bytes(300))
    (here / "data" / ".d.zarr.0123abcd.tmp").mkdir()
    (here / "runs" / "X" / "vae.partial").mkdir(parents=True)
    (here / "runs" / "X" / "vae.partial" / "weights").write_bytes(bytes(50))
    (here / "runs" / "X" / "vae.partial" / ".m.0123abcd.tmp").write_bytes(bytes(7))


def test_clean_removes_orphans_alone_and_says_what_more_could_go(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    litter(here)
    assert json.loads(told(capsys, "clean", "--dry-run", "--json"))["bytes"] == 1000
    assert (here / "data" / "d.zarr" / ".staging").exists()
    text = told(capsys, "clean")
    assert "freed 1.0 kB" in text
    assert "300 B more with --quarantine" in text
    assert "57 B more with --unfinished" in text
    assert not (here / "data" / "d.zarr" / ".staging").exists()
    assert (here / "runs" / "X" / "vae.partial" / "weights").exists()
    assert "freed 357 B" in told(capsys, "clean", "--quarantine", "--unfinished")
    assert Dataset.open(here / "data" / "d.zarr").episodes == 20


def test_clean_leaves_what_a_running_process_holds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    litter(here)
    with locks.exclusive(here / "data" / "d.zarr"):
        assert "a running process holds it" in told(capsys, "clean")
    assert (here / "data" / "d.zarr" / ".staging" / "abc").exists()


def test_a_dataset_that_goes_on_without_a_part_still_does_when_its_quarantine_was_cleaned(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PART_ROWS", 60)
    write_dataset(here / "data" / "e.zarr", 9)
    (here / "data" / "e.zarr" / "part-000003-000006" / "zarr.json").write_bytes(b"?")
    told(capsys, "verify", "data/e.zarr", "--repair")
    assert Dataset.open(here / "data" / "e.zarr").missing == [(3, 6)]
    told(capsys, "clean", "--quarantine")
    assert Dataset.open(here / "data" / "e.zarr").missing == [(3, 6)]
    assert "more with --quarantine" not in told(capsys, "clean")
