"""A shared run in an object store (the extra `s3`).

The files of a push lie in a folder that is named after its list of contents, and `contents.json` at the prefix says
which folder counts. It is put last, and only if nobody else has put one meanwhile. So a push replaces a run at once,
one that is killed leaves nothing that is read, and two pushes never mix.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping

from wm.artifacts import json_reader
from wm.artifacts.object_store import ObjectStore, Taken, in_parallel, parse_address
from wm.errors import BadData, Locked, MissingInput, UsageProblem
from wm.sharing.contents import MAX_FILES, NAME

AGE = 86_400  # seconds after which files that no list names are nobody's: a push may take hours
_DIGITS = 16  # of the digest, in the name of a folder
_VERSION = re.compile(rf"[0-9a-f]{{{_DIGITS}}}")


class StorePlace:
    """A prefix of a bucket, where there may be nothing yet."""

    replaceable = frozenset[str]()

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.name = self.address = store.address
        self._version, self._stamp = "", ""  # of the run that is there

    @classmethod
    def open(cls, text: str) -> "StorePlace":
        """Raises MissingPackage where obstore is not installed, UsageProblem for a bucket without a prefix."""
        if not parse_address(text)[1]:
            raise UsageProblem(f"{text} is a whole bucket; expected s3://BUCKET/PREFIX of one run.")
        return cls(ObjectStore.open(text))

    def files(self) -> dict[str, int]:
        """Every file of the run that is there, with its size, and any other object but those of unfinished pushes."""
        entries = self._store.entries()
        self._version = self._stamp = ""
        if (listed := entries.pop(NAME, None)) is not None:
            if listed.size > json_reader.MAX_BYTES:
                raise BadData(f"{self.name}/{NAME} has {listed.size} bytes; expected at most {json_reader.MAX_BYTES}.")
            self._version, self._stamp = _version(self._store.read(NAME, listed.size)), listed.stamp
        sizes = {NAME: listed.size} if listed else {}
        for name, entry in entries.items():
            version, _, below = name.partition("/")
            if version == self._version:
                sizes[below] = entry.size
            elif not (_VERSION.fullmatch(version) and below):
                sizes[name] = entry.size
            if len(sizes) > MAX_FILES + 100:
                raise BadData(f"{self.name} has more than {MAX_FILES} files; that is no shared run.")
        return sizes

    def read(self, file: str) -> Iterator[bytes]:
        """The bytes of a file in pieces, of the run that `files` listed."""
        try:
            yield from self._store.pieces(file if file == NAME else f"{self._version}/{file}")
        except MissingInput:
            raise MissingInput(
                f"{self.name} has lost {file}, or was replaced meanwhile; run the same command again."
            ) from None

    def publish(self, files: Mapping[str, bytes], message: str) -> None:
        """Put the files, then the list in place of the one that `files` saw, and remove the files of that one, and
        those of pushes that were killed a day ago. Raises Locked if somebody else has published there since."""
        version = _version(files[NAME])
        others = [name for name in files if name != NAME]
        in_parallel(lambda name: self._store.put(f"{version}/{name}", files[name]), others)
        try:
            self._store.put_new(NAME, files[NAME], replaces=self._stamp)
        except Taken:
            raise Locked(
                f"{self.name} was published to by another process at the same time, whose run is there now; pull it, "
                "or push again to replace it."
            ) from None
        entries = self._store.entries()
        # By the store's own clock, for those of machines differ.
        current, old = {f"{version}/{name}" for name in others}, max(item.modified for item in entries.values()) - AGE
        versions = {name: name.partition("/")[0] for name in entries.keys() - current}
        self._store.remove(
            name
            for name, folder in versions.items()
            if _VERSION.fullmatch(folder) and (folder in (version, self._version) or entries[name].modified < old)
        )


def _version(contents: bytes) -> str:
    """The folder of a run's files, by its list."""
    return hashlib.sha256(contents).hexdigest()[:_DIGITS]
