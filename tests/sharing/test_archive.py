"""A run in one zip file travels like one in a folder, from a path or from a web address."""

import functools
import http.server
import json
import resource
import socketserver
import stat
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import SLUG, outcome, run
from tests.sharing.conftest import Answer, nothing_arrived
from tests.sharing.test_pull import files_of
from wm.sharing.contents import NAME


@pytest.fixture(scope="module")
def archive(published: Path, chain: Path) -> Path:
    """The published run in one file; not to be changed."""
    target = published.with_suffix(".zip")
    run(chain, "push", f"runs/{SLUG}", str(target))
    return target


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of the test's folder, served on this machine."""
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_zip_file_holds_what_a_folder_would_and_equal_runs_make_equal_files(
    archive: Path, published: Path, chain: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(archive) as opened:
        assert {name: opened.read(name) for name in opened.namelist()} == files_of(published)
    before = archive.read_bytes()
    assert "up to date" in run(chain, "push", f"runs/{SLUG}", str(archive)).stdout
    again = tmp_path / "new" / "folder" / "again.zip"
    run(chain, "push", f"runs/{SLUG}", str(again))
    assert again.read_bytes() == archive.read_bytes() == before


def test_it_arrives_from_a_path_and_from_the_web(archive: Path, tmp_path: Path, address: str, answer: Answer) -> None:
    (tmp_path / "T.zip").write_bytes(archive.read_bytes())
    assert json.loads(answer("pull", "T.zip", "--json", code=0))["status"] == "received"
    arrived = files_of(tmp_path / "runs")
    assert f"{SLUG}/vae/weights.safetensors" in arrived
    words = "pull", f"{address}/T.zip", "--run", "runs/web", "--data", "data/web.zarr"
    answer(*words, code=0)
    assert files_of(tmp_path / "runs" / SLUG) == files_of(tmp_path / "runs" / "web")
    assert "up to date" in answer(*words, code=0)


def test_an_address_without_a_run_or_with_too_much_is_refused(
    archive: Path, chain: Path, tmp_path: Path, address: str, answer: Answer
) -> None:
    assert "is no shared run" in answer("pull", f"{address}/missing.zip", code=66)
    (tmp_path / "big.zip").write_bytes(bytes(3_000_000))
    assert "more than --max-size 100,000 bytes" in answer("pull", f"{address}/big.zip", "--max-size", "100kB", code=64)
    assert "cannot be reached" in answer("pull", "http://127.0.0.1:9/T.zip", code=69)
    assert nothing_arrived(tmp_path)
    done = outcome(chain, "push", f"runs/{SLUG}", f"{address}/T.zip")
    assert (done.returncode, "can only be pulled from" in done.stderr) == (64, True)


def test_a_download_that_the_disk_does_not_take_is_no_fault_of_the_network(
    tmp_path: Path, address: str, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big.zip").write_bytes(bytes(3_000_000))
    monkeypatch.setattr("wm.sharing.archive.IN_MEMORY", 1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # as a disk that is full
    try:
        said = answer("pull", f"{address}/big.zip", code=74)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"the disk failed at {tempfile.gettempdir()}" in said
    assert nothing_arrived(tmp_path)


@pytest.mark.parametrize("reply", [b"garbage", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort"])
def test_a_server_that_does_not_speak_http_is_one_sentence(reply: bytes, tmp_path: Path, answer: Answer) -> None:
    class Broken(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(reply)

    with socketserver.TCPServer(("127.0.0.1", 0), Broken) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert "cannot be reached" in answer("pull", f"http://127.0.0.1:{server.server_address[1]}/T.zip", code=69)
        server.shutdown()
    assert nothing_arrived(tmp_path)


def _rewritten(change: Callable[[zipfile.ZipFile, zipfile.ZipInfo, bytes], None]) -> Callable[[Path], None]:
    """Spoil an archive by writing its entries anew, `change` in the place of the first one of V."""

    def spoil(path: Path) -> None:
        with zipfile.ZipFile(path) as opened:
            entries = [(entry, opened.read(entry)) for entry in opened.infolist()]
        with zipfile.ZipFile(path, "w") as opened:
            for entry, data in entries:
                write = change if entry.filename == "vae/model.json" else zipfile.ZipFile.writestr
                write(opened, entry, data)

    return spoil


def _as_link(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, data: bytes) -> None:
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    opened.writestr(entry, b"/etc/passwd")


def _outside(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, data: bytes) -> None:
    opened.writestr(entry, data)
    opened.writestr("../evil.py", b"import os")


def _twice(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, data: bytes) -> None:
    opened.writestr(entry, data)
    with pytest.warns(UserWarning, match="Duplicate"):
        opened.writestr(entry.filename, b"another")


def _bomb(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, data: bytes) -> None:
    opened.writestr(entry.filename, bytes(50_000_000), zipfile.ZIP_DEFLATED)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as opened:
        header = opened.getinfo("vae/model.json").header_offset
    data[header + 100] ^= 1
    path.write_bytes(data)


def _no_archive(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04 and nothing else")


def _marked(place: int, value: int) -> Callable[[Path], None]:
    """Spoil an archive by a byte of the entry that its list has for a file of V."""

    def spoil(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[data.rindex(b"vae/model.json") - 46 + place] = value
        path.write_bytes(data)

    return spoil


def _begun_elsewhere(path: Path) -> None:
    """The list begins behind the archive's end, so the files begin before its start."""
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x05\x06") + 16
    data[place : place + 4] = (2**31 - 1).to_bytes(4, "little")
    path.write_bytes(data)


def _endless_list(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as opened:
        for number in range(20_000):
            opened.writestr(f"{number:0100}", b"")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_marked(6, 99), "is no zip file, or a damaged one"),  # of a version that zipfile does not know
        (_marked(8, 0x20), "is damaged at vae/model.json"),  # patched data
        (_marked(8, 0x40), "is damaged at vae/model.json"),  # strong encryption
        (_begun_elsewhere, "its list of files says that one begins at byte -"),
        (_endless_list, "its list of files has"),
        (_rewritten(_as_link), "which is no plain file"),
        (_rewritten(_outside), f"which {NAME} does not list"),
        (_rewritten(_twice), "twice"),
        (_rewritten(_bomb), "is of 50000000 bytes"),
        (_truncated, "is no zip file, or a damaged one"),
        (_flipped, "is damaged at vae/model.json"),
        (_no_archive, "is no zip file, or a damaged one"),
    ],
)
def test_a_hostile_archive_is_refused_in_one_sentence(
    spoil: Callable[[Path], None], sentence: str, archive: Path, tmp_path: Path, answer: Answer
) -> None:
    (tmp_path / "T.zip").write_bytes(archive.read_bytes())
    spoil(tmp_path / "T.zip")
    assert sentence in answer("pull", "T.zip", code=65)
    assert nothing_arrived(tmp_path)
    assert not (tmp_path.parent / "evil.py").exists()
