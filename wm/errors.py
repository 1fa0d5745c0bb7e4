"""What a user can fix. Each error is one sentence and knows its exit code (sysexits.h)."""


class WmError(Exception):
    """Base of every error shown without a traceback."""

    exit_code = 70


class UsageProblem(WmError):
    """A value, name or combination that cannot be honoured."""

    exit_code = 64


class BadData(WmError):
    """Something on disk is not what its manifest or schema says."""

    exit_code = 65


class MissingInput(WmError):
    """An artifact that has to be made first."""

    exit_code = 66


class MissingPackage(WmError):
    """A Python package that has to be installed first."""

    exit_code = 69


class WorkerFailed(WmError):
    """A task failed more often than we try; `task` is its number, `why` what happened the last time."""

    exit_code = 70

    def __init__(self, task: int, why: str, what: str = "") -> None:
        super().__init__(f"{what or f'task {task}'} {why}")
        self.task, self.why = task, why


class DiskProblem(WmError):
    """The disk, or the budget given to it, does not suffice."""

    exit_code = 74


class MemoryProblem(WmError):
    """The machine's memory does not suffice, or is being used up."""

    exit_code = 71


class Locked(WmError):
    """Another process is writing the same thing."""

    exit_code = 75


class NotPermitted(WmError):
    """The operating system does not let us read or write."""

    exit_code = 77


class RecipeMismatch(WmError):
    """A finished artifact of another recipe stands in the way, or inputs do not belong together."""

    exit_code = 78


class Stopped(WmError):
    """SIGINT or SIGTERM arrived; everything committed so far is kept."""

    def __init__(self, signal: int) -> None:
        super().__init__("stopped; everything finished so far is kept, and the same command continues.")
        self.exit_code = 128 + signal
