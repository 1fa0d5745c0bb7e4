"""A shared run in a repository of the Hugging Face Hub, through huggingface_hub (the extra `hub`).

A file is streamed from the revision whose list was read, not through the library's cache: so no more is written than
the contents allow, and nothing lies elsewhere on the disk. The token is the library's (HF_TOKEN or `hf auth login`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wm import extras
from wm.errors import MissingInput, NotPermitted, Unreachable, UsageProblem
from wm.sharing.contents import CARD

_OWN = frozenset({CARD, ".gitattributes"})  # what a repository that was made on the website begins with
_PIECE = 1 << 20  # bytes that are read at once
_LOGIN = "log in with `hf auth login` if it is private"


class HubPlace:
    """A repository, `user/name`, at a `revision` (None: the newest). One that does not exist yet is created by
    `publish`, as a private one if that is asked for."""

    replaceable = _OWN

    def __init__(self, api: Any, repository: str, revision: str | None, private: bool) -> None:
        self._api, self._repository, self._revision, self._private = api, repository, revision, private
        self.address = f"hf://{repository}" + (f"@{revision}" if revision else "")
        self.name = self.address
        self._commit: str | None = None

    @classmethod
    def open(cls, repository: str, revision: str | None, private: bool) -> "HubPlace":
        """Raises MissingPackage where huggingface_hub is not installed."""
        extras.require("hub", f"hf://{repository}")
        from huggingface_hub import HfApi

        return cls(HfApi(), repository, revision, private)

    def files(self) -> dict[str, int]:
        """Every file with its size, at the revision that `read` reads from now on; empty where nothing is found."""
        try:
            with _explained(self.name):
                info = self._api.model_info(self._repository, revision=self._revision, files_metadata=True)
        except MissingInput:
            # Nothing there: a push creates the repository.
            return {}
        self._commit = str(info.sha)
        return {str(sibling.rfilename): int(sibling.size or 0) for sibling in info.siblings or []}

    def read(self, file: str) -> Iterator[bytes]:
        """The bytes of a file in pieces."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        url = hf_hub_url(self._repository, file, revision=self._commit, endpoint=self._api.endpoint)
        headers = build_hf_headers() | {"Accept-Encoding": "identity"}  # a compressed answer could be a bomb
        with _explained(self.name), get_session().stream("GET", url, headers=headers) as response:
            hf_raise_for_status(response)
            yield from response.iter_bytes(_PIECE)

    def publish(self, files: Mapping[str, bytes], message: str) -> None:
        """One commit with these files and without all others."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()  # of a library that a person did not call
        if self._revision:
            raise UsageProblem(f"{self.name} is a revision; publish to hf://{self._repository}.")
        stale = self.files().keys() - files.keys() - _OWN
        operations = [
            *(CommitOperationAdd(name, data) for name, data in files.items()),
            *(CommitOperationDelete(name) for name in sorted(stale)),
        ]
        with _explained(self.name):
            self._api.create_repo(self._repository, private=self._private or None, exist_ok=True)
            self._api.create_commit(
                self._repository, operations, commit_message=message, parent_commit=self._commit
            )  # a commit of somebody else in between is refused


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Errors of the Hub, and of the network, as ours."""
    from huggingface_hub import errors

    try:
        yield
    except (errors.GatedRepoError, errors.LocalTokenNotFoundError) as error:
        raise NotPermitted(f"{name} may not be read with your token ({_first_line(error)}); ask its owner.") from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError):
        raise MissingInput(f"{name} was not found; check the name, and {_LOGIN}.") from None
    except errors.HFValidationError as error:
        raise UsageProblem(f"{name} is no name of the Hub: {_first_line(error)}") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        # Unauthenticated and forbidden; the Hub answers 404 for private repositories of others.
        if status in (401, 403):
            raise NotPermitted(f"the Hub refuses {name} ({status}); log in with a token that may do this.") from None
        raise Unreachable(f"the Hub answered {status} for {name}; try again later.") from None
    except (errors.HTTPError, OSError, RuntimeError) as error:  # of the network, and of the store of large files
        # huggingface_hub raises RuntimeError from its store of large files.
        raise Unreachable(f"the Hub cannot be reached for {name} ({_first_line(error)}); try again later.") from None


def _first_line(error: BaseException) -> str:
    error = error.__cause__ or error  # which file was not uploaded tells less than why
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
