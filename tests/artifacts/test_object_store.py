"""Single objects in a store whose answers are lost, cut, changed, late or errors."""

import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import outcome
from tests.object_store import SECRET, Server, python_path, variables
from wm.artifacts.object_store import ObjectStore, Taken, parse_address
from wm.errors import BadData, MissingInput, NotPermitted, Unreachable, UsageProblem


def test_an_address_is_a_bucket_and_a_prefix() -> None:
    assert parse_address("s3://lab/data/Pong.zarr/") == ("lab", "data/Pong.zarr")
    assert parse_address("s3://lab") == ("lab", "")


@pytest.mark.parametrize("text", ["s3://", "s3:///a", "s3://Lab/a", "s3://lab/../a", "s3://lab//a", "s3:/lab/a"])
def test_another_address_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="expected s3://BUCKET/PREFIX"):
        parse_address(text)


@pytest.mark.parametrize(
    "words",
    [
        ("collect", "--env", "Catch", "--data", "s3://lab/a"),
        ("info", "s3://lab/a"),
        ("verify", "s3://lab/a"),
        ("ls", "s3://lab"),
        ("clean", "s3://lab/a"),
        ("pull", "s3://lab/a"),
        ("push", "runs/a", "s3://lab/a"),
    ],
    ids=lambda words: words[0],
)
def test_without_the_extra_one_sentence_says_what_to_install(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = outcome(tmp_path, *words)
    assert done.returncode == 69
    assert done.stderr.count("\n") == 1
    assert "needs obstore; run `pip install -e '.[s3]'`" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_address_where_only_a_folder_can_be_is_refused(tmp_path: Path) -> None:
    done = outcome(tmp_path, "data", "import", "x.npz", "--env", "Catch", "--out", "s3://lab/a.zarr")
    assert done.returncode in (64, 66)
    assert not (tmp_path / "s3:").exists()


@pytest.mark.extra("s3")
def test_a_silent_store_does_not_keep_a_command_from_ending(tmp_path: Path) -> None:
    program = (
        "import signal, threading, os; from wm.artifacts.object_store import ObjectStore\n"
        "threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "ObjectStore.open('s3://lab/a').entries()"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = os.environ | variables(f"http://127.0.0.1:{silent.getsockname()[1]}")
        path = {"PYTHONPATH": python_path(Path(__file__).parents[2])}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment | path, capture_output=True, timeout=20, check=False
        )
    assert b"KeyboardInterrupt" in done.stderr


@pytest.mark.extra("s3")
def test_an_upload_may_take_longer_than_an_answer(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wm.artifacts.object_store.TIMEOUT", "1s")
    store = ObjectStore.open(f"s3://{s3.bucket()}/here")
    s3.spoil = lambda method, key: "slow" if method == "PUT" else ""
    store.put("a", b"1")
    assert store.read("a", 1) == b"1"


@pytest.mark.extra("s3")
def test_objects_that_stand_for_folders_are_left_out_and_an_odd_name_is_named(s3: Server) -> None:
    bucket = s3.bucket()
    s3.put(f"s3://{bucket}/here/", b"")
    s3.put(f"s3://{bucket}/here/a", b"1")
    assert list(ObjectStore.open(f"s3://{bucket}/here").entries()) == ["a"]
    s3.put(f"s3://{bucket}/here//b", b"1")
    with pytest.raises(BadData, match="an odd piece in its name, as in a//b"):
        ObjectStore.open(f"s3://{bucket}/here").entries()


@pytest.fixture
def store(s3: Server) -> ObjectStore:
    return ObjectStore.open(f"s3://{s3.bucket()}/here")


def once(how: str, method: str) -> Callable[[str, str], str]:
    """Spoil the first answer to a request of this method."""
    left = [how]
    return lambda asked, key: left.pop() if left and asked == method else ""


def always(how: str) -> Callable[[str, str], str]:
    return lambda method, key: how


@pytest.mark.extra("s3")
def test_objects_are_named_from_the_prefix_on(store: ObjectStore, s3: Server) -> None:
    store.put("a/b", b"12")
    store.put_new("c", b"3")
    entries = store.entries()
    assert {name: entry.size for name, entry in entries.items()} == {"a/b": 2, "c": 1}
    assert list(store.entries("a")) == ["a/b"]
    assert s3.objects(store.address) == {"a/b": b"12", "c": b"3"}
    store.remove(["c", "never"])
    assert list(store.entries()) == ["a/b"]


@pytest.mark.extra("s3")
def test_only_one_puts_a_new_object_and_only_the_reader_of_the_last_one_replaces_it(store: ObjectStore) -> None:
    store.put_new("a", b"1")
    with pytest.raises(Taken):
        store.put_new("a", b"1")
    seen = store.entries()["a"].stamp
    store.put_new("a", b"2", replaces=seen)
    with pytest.raises(Taken):
        store.put_new("a", b"3", replaces=seen)
    assert store.read("a", 1) == b"2"


@pytest.mark.extra("s3")
def test_a_new_object_whose_answer_was_lost_is_known_again(store: ObjectStore, s3: Server) -> None:
    s3.spoil = once("lose", "PUT")
    store.put_new("a", b"1")
    assert s3.requests[-3:] == [("PUT", "here/a"), ("PUT", "here/a"), ("GET", "here/a")]


@pytest.mark.extra("s3")
@pytest.mark.parametrize("how", ["refuse", "cut", "flip", "slow"])
def test_a_spoilt_answer_is_asked_for_again(
    store: ObjectStore, s3: Server, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "slow":
        monkeypatch.setattr("wm.artifacts.object_store.TIMEOUT", "1s")
        store = ObjectStore.open(store.address)
    data = bytes(range(256)) * 100
    store.put("a", data)
    s3.spoil = once(how, "GET")
    assert store.read("a", len(data), hashlib.sha256(data).hexdigest()) == data


@pytest.mark.extra("s3")
@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("refuse", Unreachable, "cannot be reached .500"),
        ("forbid", NotPermitted, "check the AWS_. variables"),
        ("cut", Unreachable, "cannot be reached"),
        ("flip", BadData, "does not match its checksum"),
    ],
)
def test_what_stays_spoilt_is_one_sentence(
    store: ObjectStore, s3: Server, how: str, kind: type[Exception], words: str
) -> None:
    store.put("a", b"12")
    s3.spoil = always(how)
    with pytest.raises(kind, match=words) as raised:
        store.read("a", 2, "0" * 64)
    assert "\n" not in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.extra("s3")
def test_what_is_missing_is_told(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingInput, match="here/a was not found"):
        store.read("a", 2)
    store.put("a", b"123")
    with pytest.raises(BadData, match="has 3 bytes; expected 2"):
        store.read("a", 2)
    with pytest.raises(MissingInput, match="no such bucket"):
        ObjectStore.open("s3://nobodys/a").entries()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(NotPermitted, match="set AWS_ACCESS_KEY_ID"):
        ObjectStore.open("s3://lab/a").entries()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:password@127.0.0.1:9")
    with pytest.raises(Unreachable, match="cannot be reached") as raised:
        ObjectStore.open("s3://lab/a").entries()
    assert "password" not in str(raised.value)
