"""Runs on the Hugging Face Hub, through huggingface_hub and a local fake of the Hub's HTTP interface."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SLUG, command, environment
from tests.sharing.conftest import Answer, nothing_arrived, relist
from tests.sharing.fake_hub import TOKEN, FakeHub, serve
from tests.sharing.test_pull import RUN, files_of
from wm import extras
from wm.sharing.contents import CARD, NAME

# huggingface_hub's own uploads use a spelling that its HTTP library has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")

NAME_ON_HUB = "me/tiny"
SOURCE = f"hf://{NAME_ON_HUB}"
WEIGHTS = "vae/weights.safetensors"


def forget_the_library() -> None:
    """It reads its variables when it is imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        del sys.modules[name]


def variables(address: str, folder: Path, token: str = TOKEN) -> dict[str, str]:
    """Those of a person who is logged in at a Hub. Its own store of large files is not HTTP of the Hub; without it the
    library uploads as git LFS does."""
    return {"HF_ENDPOINT": address, "HF_HOME": str(folder / "hf"), "HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """An empty Hub, and a person who is logged in there."""
    hub = FakeHub()
    with serve(hub) as address:
        for name, value in variables(address, tmp_path).items():
            monkeypatch.setenv(name, value)
        forget_the_library()
        yield hub
        forget_the_library()


def wm(folder: Path, address: str, token: str, *words: str) -> subprocess.CompletedProcess[str]:
    known = environment(**variables(address, folder, token))
    known["PYTHONPATH"] = os.pathsep.join([known["PYTHONPATH"], *sys.path])
    return subprocess.run(command(*words), cwd=folder, env=known, capture_output=True, text=True)


@pytest.mark.extra("hub")
def test_a_run_goes_to_the_hub_in_one_commit_and_comes_back(chain: Path, tmp_path: Path) -> None:
    """As a person calls it: HF_ENDPOINT is read when the library is imported."""
    hub = FakeHub()
    with serve(hub) as address:
        pushed = wm(tmp_path, address, TOKEN, "push", str(chain / "runs" / SLUG), SOURCE)
        assert pushed.returncode == 0, pushed.stderr
        assert f"{SOURCE}: published" in pushed.stdout
        assert "others run: wm pull hf://me/tiny" in pushed.stdout
        assert len(hub.repositories[NAME_ON_HUB]) == 2, "its creation and one commit"
        pulled = wm(tmp_path, address, "", "pull", SOURCE)
    assert pulled.returncode == 0, pulled.stderr
    files = hub.files(NAME_ON_HUB)
    assert files is not None
    arrived = files_of(tmp_path / RUN)
    assert arrived.items() <= files.items()
    assert arrived[WEIGHTS]
    assert "pip install -e '.[hub]'" in files[CARD].decode()


@pytest.mark.extra("hub")
def test_the_card_is_what_the_hub_indexes(published: Path) -> None:
    from huggingface_hub import ModelCard

    data = ModelCard((published / CARD).read_text()).data
    (result,) = data.eval_results
    assert (result.task_type, result.metric_type) == ("reinforcement-learning", "mean_reward")
    assert result.dataset_name == "tests.tiny:Tiny-v0"
    assert " +/- " in result.metric_value
    assert data.library_name == "wm"


@pytest.mark.extra("hub")
def test_the_same_again_is_no_commit_and_a_change_replaces_files(hub: FakeHub, chain: Path, answer: Answer) -> None:
    run = str(chain / "runs" / SLUG)
    answer("push", run, SOURCE, "--private", code=0)
    assert hub.private == {NAME_ON_HUB}
    assert hub.validated[0].startswith("---\nlibrary_name: wm\n")
    assert "up to date" in answer("push", run, SOURCE, code=0)
    assert len(hub.repositories[NAME_ON_HUB]) == 2
    answer("push", run, SOURCE, "--without", "latents", code=0)
    files = hub.files(NAME_ON_HUB)
    assert files is not None
    assert not [name for name in files if name.startswith("latents")]
    assert ".gitattributes" in files
    assert len(hub.repositories[NAME_ON_HUB]) == 3


@pytest.mark.extra("hub")
def test_a_repository_of_something_else_is_not_replaced(hub: FakeHub, chain: Path, answer: Answer) -> None:
    run = str(chain / "runs" / SLUG)
    hub.commit(NAME_ON_HUB, {"model.bin": b"of somebody else"})
    assert "is no shared run; give another place" in answer("push", run, SOURCE, code=64)
    hub.commit(NAME_ON_HUB, {CARD: b"made on the website", ".gitattributes": b""})
    answer("push", run, SOURCE, code=0)


@pytest.mark.extra("hub")
def test_a_revision_is_pulled_as_it_was_and_large_files_need_no_token(
    hub: FakeHub, published: Path, tmp_path: Path, answer: Answer
) -> None:
    oid = hub.commit(NAME_ON_HUB, files_of(published))
    hub.commit(NAME_ON_HUB, {"other": b""})
    answer("pull", f"{SOURCE}@{oid}", code=0)
    assert any(request.startswith("GET /large/") for request in hub.requests)
    assert not hub.leaked
    assert "which contents.json does not list" not in answer("pull", f"{SOURCE}@{oid}", code=0)
    assert "no shared run" in answer("pull", SOURCE, code=66)
    assert "is a revision" in answer("push", str(tmp_path / RUN), f"{SOURCE}@{oid}", "--episodes", "0", code=64)


@pytest.mark.extra("hub")
def test_what_the_hub_serves_is_a_strangers(hub: FakeHub, shared: Path, answer: Answer) -> None:
    hub.commit(NAME_ON_HUB, files_of(shared) | {"vae/setup.py": b"import os"})
    assert "which contents.json does not list" in answer("pull", SOURCE, code=65)
    hub.commit(NAME_ON_HUB, files_of(shared) | {WEIGHTS: (shared / WEIGHTS).read_bytes()[::-1]})
    assert "is not what hf://me/tiny/contents.json says" in answer("pull", SOURCE, code=65)
    hub.commit(NAME_ON_HUB, files_of(shared) | {WEIGHTS: b"short"})
    assert "is of 5 bytes" in answer("pull", SOURCE, code=65)
    relist(shared, files={"../x": {"size": 1, "sha256": "0" * 64}})
    hub.commit(NAME_ON_HUB, files_of(shared))
    assert "which is no file of a run" in answer("pull", SOURCE, code=65)
    hub.commit(NAME_ON_HUB, {NAME: b" " * (2 << 20)})
    assert "is larger than" in answer("pull", SOURCE, code=65)
    assert nothing_arrived(shared.parent)


@pytest.mark.extra("hub")
def test_what_the_hub_refuses_is_one_sentence(
    hub: FakeHub, published: Path, chain: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = str(chain / "runs" / SLUG)
    assert "or it is private" in answer("pull", "hf://me/nothing", code=66)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "the Hub refuses" in answer("push", run, SOURCE, code=77)
    hub.commit(NAME_ON_HUB, files_of(published))
    hub.private.add(NAME_ON_HUB)
    assert "or it is private" in answer("pull", SOURCE, code=66)
    hub.status = 500
    assert "answered 500" in answer("pull", SOURCE, code=69)


@pytest.mark.extra("hub")
def test_without_a_network_it_is_one_sentence(tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables("http://127.0.0.1:9", tmp_path).items():
        monkeypatch.setenv(name, value)
    forget_the_library()
    assert "cannot be reached" in answer("pull", SOURCE, code=69)
    forget_the_library()


def test_without_its_package_the_hub_is_one_sentence(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "import_problem", lambda extra: "not installed")
    assert "needs huggingface-hub; run `pip install" in answer("pull", SOURCE, code=69)
