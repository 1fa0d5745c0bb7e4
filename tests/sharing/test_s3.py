"""Runs in an object store."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import SLUG
from tests.object_store import SECRET, Server
from tests.sharing.conftest import Answer, nothing_arrived
from tests.sharing.test_pull import RUN, files_of
from wm.sharing.contents import CARD, NAME
from wm.sharing.places import Place, open_place

pytestmark = pytest.mark.extra("s3")


@pytest.fixture
def target(s3: Server) -> str:
    return f"s3://{s3.bucket()}/runs/tiny"


@pytest.fixture
def trained(chain: Path, tmp_path: Path) -> str:
    """The run of `chain` with its dataset, in the folder in which commands run."""
    for name in ("runs", "data"):
        shutil.copytree(chain / name, tmp_path / "made" / name)
    return f"made/runs/{SLUG}"


def published(place: Place, folder: Path) -> dict[str, bytes]:
    files = files_of(folder)
    place.publish(files, "")
    return files


def seen(target: str) -> dict[str, bytes]:
    """What a reader finds at an address."""
    place = open_place(target)
    return {name: b"".join(place.read(name)) for name in place.files()}


def test_a_run_goes_to_a_store_and_comes_back(
    trained: str, target: str, s3: Server, shared: Path, answer: Answer, tmp_path: Path
) -> None:
    said = answer("push", trained, target, code=0)
    assert f"{target}: published" in said
    assert f"others run: wm pull {target}" in said
    assert "up to date" in answer("push", trained, target, code=0)
    card = seen(target).pop(CARD)
    assert f"wm pull {target}".encode() in card
    assert seen(target) | {CARD: b""} == files_of(shared) | {CARD: b""}
    answer("pull", target, code=0)
    assert files_of(tmp_path / RUN).items() <= seen(target).items()
    answer("verify", "runs", code=0)
    assert "up to date" in answer("pull", target, code=0)
    assert not [name for name, data in s3.objects(target).items() if SECRET.encode() in data]


def test_another_run_replaces_it_at_once_and_its_files_go(target: str, s3: Server, shared: Path) -> None:
    first = published(open_place(target), shared)
    second = first | {NAME: first[NAME] + b" "}
    place = open_place(target)
    place.files()
    place.publish(second, "")
    assert seen(target) == second
    assert len(s3.objects(target)) == len(second)


def test_of_two_pushes_one_wins_and_nothing_is_mixed(target: str, shared: Path) -> None:
    from wm.errors import Locked

    files = files_of(shared)
    one, two = open_place(target), open_place(target)
    one.files()
    two.files()
    one.publish(files, "")
    with pytest.raises(Locked, match="published to by another process at the same time"):
        two.publish(files | {NAME: files[NAME] + b" "}, "")
    assert seen(target) == files


def test_a_push_that_ends_between_two_steps_of_another_keeps_its_files(
    target: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has put its list, and not yet removed what is left of the run before."""
    from wm.artifacts.object_store import Entry, ObjectStore

    files, listing = files_of(shared), ObjectStore.entries
    new = files | {NAME: files[NAME] + b" "}
    published(open_place(target), shared)
    other = open_place(target)
    other.files()

    def overtaken(store: ObjectStore, below: str = "") -> dict[str, Entry]:
        monkeypatch.setattr(ObjectStore, "entries", listing)
        mine = open_place(target)
        mine.files()
        mine.publish(new, "")
        return listing(store, below)

    monkeypatch.setattr(ObjectStore, "entries", overtaken)
    other.publish(files | {NAME: files[NAME] + b"  "}, "")
    assert seen(target) == new


def test_a_run_that_is_replaced_while_it_is_pulled_is_one_sentence(target: str, shared: Path) -> None:
    from wm.errors import MissingInput

    files = published(open_place(target), shared)
    reader, writer = open_place(target), open_place(target)
    for place in (reader, writer):
        place.files()
    writer.publish(files | {NAME: files[NAME] + b" "}, "")
    with pytest.raises(MissingInput, match=r"has lost README\.md, or was replaced meanwhile; run the same"):
        b"".join(reader.read(CARD))


@pytest.mark.parametrize("replaces", [False, True])
def test_each_put_of_a_push_fails_in_turn(
    replaces: bool, target: str, s3: Server, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader sees the run before, or none; the same push goes through afterwards."""
    from wm.errors import Unreachable

    monkeypatch.setattr("wm.artifacts.object_store.RETRIES", 0)
    files = files_of(shared)
    before = published(open_place(target), shared) if replaces else {}
    new = files | {NAME: files[NAME] + b" ", CARD: b"new"}
    place = open_place(target)
    for at in (0, 1, len(new) // 2, len(new) - 2, len(new) - 1):
        left = [""] * at
        place.files()
        s3.spoil = lambda method, key, left=left: "" if method != "PUT" else left.pop() if left else "refuse"  # type: ignore[misc]
        with pytest.raises(Unreachable):
            place.publish(new, "")
        s3.spoil = lambda method, key: ""
        assert seen(target) == before
    place.files()
    place.publish(new, "")
    assert seen(target) == new
    assert len(s3.objects(target)) == len(new)


@pytest.mark.parametrize("how", ["cut", "flip", "refuse"])
def test_a_pull_through_a_broken_line_brings_nothing(
    how: str, target: str, s3: Server, shared: Path, answer: Answer, tmp_path: Path
) -> None:
    published(open_place(target), shared)
    s3.spoil = lambda method, key: how if key.endswith("vae/weights.safetensors") else ""
    code = 65 if how == "flip" else 69
    assert target in answer("pull", target, code=code)
    assert nothing_arrived(tmp_path)
    s3.spoil = lambda method, key: ""
    answer("pull", target, code=0)


def test_other_objects_are_neither_read_nor_removed(
    trained: str, target: str, s3: Server, shared: Path, answer: Answer
) -> None:
    s3.put(f"{target}/notes.txt", b"mine")
    assert "exists and is no shared run" in answer("push", trained, target, code=64)
    assert "is no shared run: there is no contents.json" in answer("pull", target, code=66)
    published(open_place(target), shared)
    assert "has 'notes.txt', which contents.json does not list" in answer("pull", target, code=65)
    assert s3.objects(target)["notes.txt"] == b"mine"
    assert "is a whole bucket" in answer("pull", "/".join(target.split("/")[:3]), code=64)
    assert "no such bucket" in answer("pull", "s3://nobodys/run", code=66)
