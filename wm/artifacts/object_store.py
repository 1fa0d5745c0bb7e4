"""Objects below a prefix of an S3 bucket, through obstore (the extra `s3`).

obstore reads credentials, region and endpoint from the usual environment variables (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL). Nothing of them is printed or stored: what an
error says is an HTTP status or the code of S3, never the request.
"""

import hashlib
import re
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from wm import extras
from wm.errors import BadData, MissingInput, NotPermitted, Unreachable, UsageProblem

SCHEME = "s3://"
TIMEOUT, CONNECT_TIMEOUT = "60s", "10s"  # for an answer, and for a connection
UPLOAD_TIMEOUT = "600s"  # for an answer to an upload, which begins with its first byte: 17 MB at 2 Mbit/s take 70 s
RETRIES = 6  # of a request, by obstore, each after twice the time of the one before: 6 seconds in all
RETRY_TIMEOUT = timedelta(seconds=60)  # after which a request is not sent again: a silent store is given up after 120 s
TRIES = 3  # of an object whose bytes did not arrive whole
PARALLEL = 8  # requests at a time: an answer takes longer than its bytes
PIECE = 1 << 20  # bytes that are read at once
# In a listing. A billion frames have 1.2 million (docs/scale.md), which take half a gigabyte; a stranger's bucket must
# not fill the memory.
MAX_OBJECTS = 2_000_000
_ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[A-Za-z0-9_][A-Za-z0-9._=@-]*)*)/?")
_WRITER = "writer"  # a field of an object's metadata, by which a writer knows its own objects
_REASON = re.compile(r"<Code>(\w+)</Code>|status code: (\d{3}[ \w]*)|HTTP error: ([a-z ]+)|(timed out)")
_BAD_NAME = re.compile(r"[Ee]mpty path segment|EmptySegment|BadSegment|illegal character")
_NO_CREDENTIALS = re.compile(r"169\.254\.169\.254|Missing ?(Access|Secret)")  # where machines of AWS ask for theirs
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Taken(Exception):
    """An object that was to be new exists, or one that was to be replaced has changed; somebody else put it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a listing: bytes, a stamp that changes with its contents, and when it was put, in seconds."""

    size: int
    stamp: str
    modified: float


def is_address(text: str) -> bool:
    """Whether a text is meant as an address in an object store."""
    return text.startswith(SCHEME)


def parse_address(text: str) -> tuple[str, str]:
    """Bucket and prefix; the prefix may be empty. Raises UsageProblem for another text."""
    if (match := _ADDRESS.fullmatch(text)) is None:
        raise UsageProblem(
            f"{text!r} is no address of an object store; expected s3://BUCKET/PREFIX of letters, digits, '-', '_', "
            "'.', '=' and '@', as in s3://lab/data/Pong."
        )
    return match[1], match[2].strip("/")


def in_parallel(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """`function` of every item, several at a time. Raises the error of the first item that has one, once those that
    have begun are done. A signal does not wait for them."""
    waiting = deque((Future[_Result](), item) for item in items)
    answers = [answer for answer, _ in waiting]

    def work() -> None:
        while waiting:
            try:
                answer, item = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            _settle(answer, partial(function, item))

    # Daemons: a request that hangs must not keep the process from ending.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(PARALLEL, len(answers)))]
    for thread in threads:
        thread.start()
    try:
        return [answer.result() for answer in answers]
    except Exception:
        # What has not begun is dropped; what runs is waited for, so that nothing is written after the error.
        waiting.clear()
        for thread in threads:
            thread.join()
        raise
    finally:
        waiting.clear()


def _settle(answer: Future[_Result], request: Callable[[], _Result]) -> None:
    try:
        answer.set_result(request())
    except BaseException as error:  # raised where the answer is waited for
        answer.set_exception(error)


def _answer(where: str, request: Callable[[], _Result]) -> _Result:
    """What a request returns, with errors of obstore as ours. It runs in a thread, for obstore would answer no signal
    before the store does."""
    with _explained(where):
        if threading.current_thread() is not threading.main_thread():
            return request()
        # Only the main thread gets signals, so only it must not wait inside obstore.
        answer = Future[_Result]()
        threading.Thread(target=_settle, args=(answer, request), daemon=True).start()
        return answer.result()


class ObjectStore:
    """The objects whose names begin with a prefix; they are named without it. `address` is shown to people."""

    def __init__(self, client: Any, uploads: Any, address: str) -> None:
        self._client, self._uploads, self.address = client, uploads, address

    @classmethod
    def open(cls, text: str) -> "ObjectStore":
        """The store at an address; nothing is sent yet. Raises UsageProblem, and MissingPackage without obstore."""
        bucket, prefix = parse_address(text)
        extras.require("s3", text)
        from obstore.store import S3Store

        # Plain HTTP only where AWS_ENDPOINT_URL asks for it, as a store of one's own may.
        options = {"allow_http": True, "connect_timeout": CONNECT_TIMEOUT}
        retries = {"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT}
        address = f"{SCHEME}{bucket}/{prefix}".rstrip("/")
        with _explained(address):
            client, uploads = (
                S3Store(
                    bucket, prefix=prefix or None, client_options={**options, "timeout": timeout}, retry_config=retries
                )
                for timeout in (TIMEOUT, UPLOAD_TIMEOUT)
            )  # fmt: skip
        return cls(client, uploads, address)

    def entries(self, below: str = "") -> dict[str, Entry]:
        """Every object, or those below a folder, by name in alphabetical order, but for the empty ones that stand for
        folders. Raises BadData for too many."""
        return dict(sorted(_answer(self.address, partial(self._list, below))))

    def _list(self, below: str) -> list[tuple[str, Entry]]:
        import obstore

        listed = list[tuple[str, Entry]]()
        for batch in obstore.list(self._client, prefix=below or None):
            for item in batch:
                name, size = item["path"], item["size"]
                if size or (name and not name.endswith("/")):
                    listed.append((name, Entry(size, item["e_tag"] or "", item["last_modified"].timestamp())))
            if len(listed) > MAX_OBJECTS:
                raise BadData(f"{self.address} has more than {MAX_OBJECTS:,} objects; give a longer prefix.")
        return listed

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        try:
            self._head(name)
        except MissingInput:
            return False
        return True

    def _head(self, name: str) -> Any:
        import obstore

        return _answer(f"{self.address}/{name}", partial(obstore.head, self._client, name))

    def read(self, name: str, size: int, sha256: str = "") -> bytes:
        """The bytes of an object, which are `size`, with this digest if one is given; asked for again if the answer was
        cut or changed. Raises MissingInput where there is none, BadData for other bytes."""
        where, problem = f"{self.address}/{name}", ""
        for _ in range(TRIES):
            try:
                data = _answer(where, partial(self._get, name, size))
            except Unreachable as error:
                # An answer that was cut is asked for again; a missing object and other errors are raised at once.
                unreachable, problem = error, ""
                continue
            if len(data) == size and (not sha256 or hashlib.sha256(data).hexdigest() == sha256):
                return data
            problem = f"{where} does not match its checksum; run `wm verify` on its dataset."
        if problem:
            raise BadData(problem)
        raise unreachable

    def _get(self, name: str, size: int) -> bytes:
        import obstore

        answer = obstore.get(self._client, name)
        # Compared before the body is read: a stranger's object of the right name may be larger than memory.
        if answer.meta["size"] != size:
            raise BadData(f"{self.address}/{name} has {answer.meta['size']} bytes; expected {size}.")
        return bytes(answer.bytes())

    def pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of an object in pieces."""
        import obstore

        where = f"{self.address}/{name}"
        stream = iter(_answer(where, lambda: obstore.get(self._client, name).stream(min_chunk_size=PIECE)))
        while (piece := _answer(where, partial(next, stream, None))) is not None:
            yield bytes(piece)

    def put(self, name: str, data: bytes) -> None:
        """Put an object, in place of another one of that name."""
        self._put(name, data, "overwrite")

    def put_new(self, name: str, data: bytes, replaces: str = "") -> None:
        """Put an object that does not exist, or in place of the one with the stamp `replaces`. Raises Taken if somebody
        else was first. An answer may be lost and the request sent twice: so what is there is asked who put it."""
        token = uuid.uuid4().hex
        try:
            self._put(name, data, {"e_tag": replaces} if replaces else "create", token)
        except Taken:
            if self._writer(name) != token:
                raise

    def _put(self, name: str, data: bytes, mode: Any, token: str = "") -> None:
        # No token where a plain overwrite is meant: then nobody asks whose the object is.
        import obstore

        attributes = {_WRITER: token} if token else None
        # In one request: the parts of a larger upload would not be conditional.
        put = partial(obstore.put, mode=mode, attributes=attributes, use_multipart=False)
        _answer(f"{self.address}/{name}", lambda: put(self._uploads, name, data))

    def _writer(self, name: str) -> str:
        import obstore

        try:
            answer = _answer(f"{self.address}/{name}", partial(obstore.get, self._client, name))
            return str(answer.attributes.get(_WRITER, ""))
        except MissingInput:
            return ""

    def holds(self, name: str, data: bytes) -> bool:
        """Whether the object has exactly these bytes."""
        try:
            return bool(self._head(name)["size"] == len(data)) and self.read(name, len(data)) == data
        except (MissingInput, BadData):
            return False

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, as far as they exist."""
        import obstore

        in_parallel(lambda name: _answer(f"{self.address}/{name}", partial(obstore.delete, self._client, name)), names)


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Errors of obstore as ours."""
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError:
        raise MissingInput(f"{where} was not found; check the address.") from None
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise Taken(where) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
        raise NotPermitted(f"{where} is not allowed with these credentials; check the AWS_* variables.") from None
    except (exceptions.BaseError, ValueError) as error:
        raise _problem(where, str(error)) from None


def _problem(where: str, text: str) -> BadData | MissingInput | NotPermitted | Unreachable:
    """What went wrong, by the words of obstore, of which no more is repeated than a status or a code."""
    if _BAD_NAME.search(text):
        return BadData(f"{where} has an object with an odd piece in its name, as in a//b; give a longer prefix.")
    if "NoSuchBucket" in text:
        return MissingInput(f"{where} has no such bucket; create it, or check AWS_ENDPOINT_URL and AWS_REGION.")
    if _NO_CREDENTIALS.search(text):
        return NotPermitted(
            f"{where} needs credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "AWS_SKIP_SIGNATURE=true for a public bucket."
        )
    match = _REASON.search(text)
    why = next(filter(None, match.groups()), "").strip() if match else ""
    reason = f" ({why})" if why else ""
    return Unreachable(f"{where} cannot be reached{reason}; check AWS_ENDPOINT_URL, or try again later.")
