"""Errors that a user can fix. Each is one sentence and has an exit code (sysexits.h)."""

import errno
import os
import signal

# torch says in words alone what happened: on a CPU, on a GPU, and where the operating system refused.
_NO_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "Cannot allocate memory")
# Of a thread, whose stack finds no room, and of a thread or a process beyond `ulimit -u` or a container's limit: the
# system does not say which, and the same helps.
_NO_THREAD = "can't start new thread"


LONGEST_VALUE = 500  # characters of a value in a sentence


def shown(value: object) -> str:
    """A value that somebody gave, as a sentence shows it: as Python writes it, in one line, and cut where it is
    long."""
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except Exception:  # that of anybody's class, or of an integer with more digits than Python writes
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def end_of_process(code: int | None) -> str:
    """How a process ended, by its exit code as Python has it: `exit code 1`, or `signal SIGKILL` for -9."""
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # some signals have a number alone
        return f"signal {-code}"


class WmError(Exception):
    """Base of every error shown without a traceback."""

    exit_code = 70  # EX_SOFTWARE


class UsageProblem(WmError):
    """A value, name or combination that is not accepted."""

    exit_code = 64  # EX_USAGE


class BadData(WmError):
    """Data on disk that disagrees with its manifest or schema."""

    exit_code = 65  # EX_DATAERR


class MissingInput(WmError):
    """An artifact that must be created first."""

    exit_code = 66  # EX_NOINPUT


class MissingPackage(WmError):
    """A Python package that must be installed first."""

    exit_code = 69  # EX_UNAVAILABLE


class Unreachable(WmError):
    """A service on the network that does not answer, or answers that it cannot."""

    exit_code = 69  # EX_UNAVAILABLE


class WorkerFailed(WmError):
    """A task failed at every try; `task` is its number, `why` the last failure."""

    exit_code = 70  # EX_SOFTWARE

    def __init__(self, task: int, why: str, what: str = "") -> None:
        super().__init__(f"{what or f'task {task}'} {why}")
        self.task, self.why = task, why


class RankFailed(WmError):
    """A process of torchrun has ended, or does not answer."""

    exit_code = 70  # EX_SOFTWARE


class EnvironmentFault(WmError):
    """An environment of somebody else broke, or returned what an episode cannot hold."""

    exit_code = 70  # EX_SOFTWARE


class DiskProblem(WmError):
    """The disk or the disk budget is too small."""

    exit_code = 74  # EX_IOERR


class MemoryProblem(WmError):
    """The machine's memory is too small or nearly used up."""

    exit_code = 71  # EX_OSERR


class Locked(WmError):
    """Another process is writing the same artifact or dataset."""

    exit_code = 75  # EX_TEMPFAIL


class NotPermitted(WmError):
    """The operating system refuses to read or write."""

    exit_code = 77  # EX_NOPERM


class RecipeMismatch(WmError):
    """A finished artifact of another recipe exists, or inputs do not belong together."""

    exit_code = 78  # EX_CONFIG


class Stopped(WmError):
    """SIGINT, SIGTERM or SIGHUP arrived; everything committed so far is kept."""

    def __init__(self, number: int) -> None:
        super().__init__("stopped; everything finished so far is kept, and the same command resumes.")
        # As a shell says of a command that a signal ended.
        self.exit_code = 128 + number


def ran_out_of_memory(error: Exception) -> bool:
    """Whether Python, numpy, torch or the operating system did not have the memory that was asked for, or started no
    further thread or process."""
    if isinstance(error, OSError):
        # A full pipe that does not block has EAGAIN too, with another text.
        no_process = error.errno == errno.EAGAIN and error.strerror == os.strerror(errno.EAGAIN)
        return error.errno == errno.ENOMEM or no_process
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in (*_NO_MEMORY, _NO_THREAD))
    )
