"""Where shared runs are: a folder or a repository of the Hugging Face Hub, by its address."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from wm.errors import UsageProblem

_HUB = re.compile(r"hf://(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?/?")
_EXPECTED = "expected a folder, such as shared/Pong, or hf://USER/NAME"


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


def open_place(text: str, private: bool = False) -> Place:
    """The place at an address: a folder, `file:` and a folder, or `hf://USER/NAME` with an optional `@REVISION`.

    Raises UsageProblem for another address, MissingPackage without the extra of the Hub."""
    if match := _HUB.fullmatch(text):
        from wm.sharing.hub import HubPlace

        return HubPlace.open(match["repository"], match["revision"], private)
    path = re.sub(r"^file:(//(?=/))?", "", text)
    scheme = re.match(r"([a-z][a-z0-9+.-]+)://", text)
    if not path or (scheme and path == text) or path.startswith("//"):
        reason = "object stores are not supported yet" if scheme and scheme[1] == "s3" else "that is no address"
        raise UsageProblem(f"{text!r}: {reason}; {_EXPECTED}.")
    from wm.sharing.folder import FolderPlace

    return FolderPlace(Path(path))
