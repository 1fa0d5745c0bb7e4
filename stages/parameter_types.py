"""The values that options and arguments take: numbers within bounds, names, paths and addresses.

What a value cannot be is said before the command begins, with the value and what was expected.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stages import console
from wm.artifacts.disk import require_possible
from wm.errors import MissingInput, UsageProblem
from wm.settings.base import WANTED, suggestion

if TYPE_CHECKING:
    from wm.episodes.mirror import Mirror

_LONGEST = 40  # characters of a value in a sentence


class WrongValue(click.BadParameter):
    """A value that its option cannot have: says which was given, and what was expected."""

    def format_message(self) -> str:
        """The option's name and the sentence."""
        assert self.param is not None
        return f"{self.param.opts[0]} {self.message}"


class Number(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A whole number, or with `kind` float any, within bounds that are part of it."""

    def __init__(self, kind: type[int] | type[float] = int, low: float | None = None, high: float | None = None):
        self.name = "number"
        self._kind, self._low, self._high = kind, low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        """The number. Raises WrongValue; NaN is within no bounds."""
        try:
            number = self._kind(value)
        except ValueError:
            raise self._wrong(repr(value), param, ctx) from None
        low, high = self._low, self._high
        if (low is None or number >= low) and (high is None or number <= high):
            return number
        raise self._wrong(str(value), param, ctx)

    def _wrong(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> WrongValue:
        expected, low, high = WANTED[self._kind], self._low, self._high
        if low is not None:
            expected += f" of at least {low}" if high is None else f" from {low} to {high}"
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        return WrongValue(f"is {text}; expected {expected}.", ctx, param)


class OneOf(click.Choice[Any]):
    """One of several names. Raises WrongValue, with the nearest of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name as it is declared."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            nearest = suggestion(str(value), map(str, self.choices))
            raise WrongValue(f"is {str(value)[:_LONGEST]!r}; {nearest}", ctx, param) from None


class GivenPath(click.Path):
    """A path. Raises UsageProblem for one at which nothing can be, and for an empty one, as a shell gives it for a
    variable that is not set: Path would take it for the working folder. An option's path has a name, also where it is
    given as `.`: what belongs to a folder lies beside it."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)  # reading says what may not be read, with its own exit code

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path."""
        if value == "" and param is not None:
            name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
            raise UsageProblem(f"{name} is empty; expected a path.")
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        require_possible(path)
        if isinstance(param, click.Option) and path.name in ("", ".."):
            path = path.resolve()
            if not path.name:
                raise UsageProblem(f"{param.opts[0]} is {value}; expected the path of something in a folder.")
        return path


class FilePath(GivenPath):
    """The path of a page or a picture to write. Raises UsageProblem for a folder, for another suffix than these, and
    inside what is finished, before the work is done."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__()
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A Path."""
        from wm.artifacts import manifest

        if value and Path(value).is_dir():
            raise UsageProblem(f"{value} is a folder; expected the path of a file.")
        path: Path = super().convert(value, param, ctx)
        if param is not None and path.suffix.lower() not in self._suffixes:
            expected = " or ".join(self._suffixes)
            raise UsageProblem(f"{param.opts[0]} is {path}; expected a name that ends in {expected}.")
        manifest.require_outside(path)
        return path


class PagePath(FilePath):
    """The path of an HTML page to write."""

    def __init__(self) -> None:
        super().__init__(".html", ".htm")


class DatasetPath(GivenPath):
    """A path, or the s3:// address of a dataset, in place of which a command is given the folder that mirrors it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Ask the store for what is new in a dataset there."""
        if not _is_address(value) or (ctx and ctx.resilient_parsing):
            return super().convert(value, param, ctx)
        mirror = mount(value)
        mirror.refresh()
        return mirror.folder


class ExistingPath(GivenPath):
    """A path that exists, or with `addresses` an s3:// address, which stays a text. Raises MissingInput."""

    def __init__(self, addresses: bool = False) -> None:
        super().__init__()
        self._addresses = addresses

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A text for an address, a Path for anything else."""
        if self._addresses and _is_address(value):
            return value
        path: Path = super().convert(value, param, ctx)
        if not os.path.lexists(path):  # a link to nothing is there, and damaged
            raise MissingInput(f"{path} does not exist; `wm ls` shows what there is.")
        return path


def _is_address(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("s3:/")


def mount(address: str) -> "Mirror":
    """The mirror of a dataset in an object store, in data/.s3; messages name its address."""
    from wm.episodes import mirror

    mounted = mirror.mount(address, Path("data"))
    console.show_as(str(mounted.folder), mounted.store.address)
    return mounted


def place_of(path: Path) -> Path:
    """The path beside which files about a dataset are written: its own, or for s3://lab/x/Pong data/Pong."""
    if len(path.parts) < 2 or path.parts[:2] != ("data", ".s3"):
        return path
    return Path("data", path.name.rpartition("+")[2])
