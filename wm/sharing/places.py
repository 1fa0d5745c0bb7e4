"""Where shared runs are: a folder, a zip file, a repository of the Hugging Face Hub or a prefix of an object store."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from wm.artifacts.object_store import is_address
from wm.errors import UsageProblem
from wm.sharing.contents import MAX_BYTES

_HUB = re.compile(r"hf://(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?/?")
_HAS_USER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*@")
_WEB = re.compile(r"https?://[^/\s]+/\S+\.zip", re.I)
_EXPECTED = (
    "expected a folder, such as shared/Pong, a .zip file, its https:// address, hf://USER/NAME, or s3://BUCKET/PREFIX"
)


class Place(Protocol):
    """A place of one shared run. `name` is shown to people; `address` is what others give to `wm pull`, empty where
    that is another path for everyone. A push may replace the `replaceable` files, whoever wrote them."""

    name: str
    address: str
    replaceable: frozenset[str]

    def files(self) -> dict[str, int]:
        """Every file there with its bytes, by relative name; empty if there is nothing. Raises BadData for a link."""
        ...

    def read(self, file: str) -> Iterator[bytes]:
        """The bytes of a file in pieces."""
        ...

    def publish(self, files: Mapping[str, bytes], message: str) -> None:
        """Put these files there in place of all others, all of them or none."""
        ...


def open_place(text: str, private: bool = False, max_size: int = MAX_BYTES) -> Place:
    """The place at an address: a folder or a zip file, also after `file:`, the web address of a zip file of at most
    `max_size` bytes, `hf://USER/NAME` with an optional `@REVISION`, or `s3://BUCKET/PREFIX`.

    Raises UsageProblem for another address or one with a user, MissingPackage without the extra of the Hub or of
    object stores."""
    if _HAS_USER.match(text):
        raise UsageProblem(
            "that address has a user or a password, which would be shown and stored with what comes from it; give one "
            "without, or download the file and name that."
        )
    if match := _HUB.fullmatch(text):
        from wm.sharing.hub import HubPlace

        return HubPlace.open(match["repository"], match["revision"], private)
    if private:
        raise UsageProblem(
            f"--private creates a private repository on the Hub, and {text!r} is none; leave it out, or push to "
            "hf://USER/NAME."
        )
    if is_address(text):
        from wm.sharing.s3 import StorePlace

        return StorePlace.open(text)
    if _WEB.fullmatch(text):
        from wm.sharing.archive import DownloadPlace

        return DownloadPlace(text, max_size)
    path = re.sub(r"^file:(//(?=/))?", "", text)
    scheme = re.match(r"([a-z][a-z0-9+.-]+)://", text)
    if not path or (scheme and path == text) or path.startswith("//"):
        raise UsageProblem(f"{text!r}: that is no address; {_EXPECTED}.")
    if path.lower().endswith(".zip") and not Path(path).is_dir():
        from wm.sharing.archive import ArchivePlace

        return ArchivePlace(Path(path))
    from wm.sharing.folder import FolderPlace

    return FolderPlace(Path(path))
