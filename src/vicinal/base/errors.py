"""The error that all commands report to their user, and its output."""

import sys


class VicinalError(Exception):
    """An error that the user can act on: what happened, and the remedy.

    Message and remedy are phrases without a final full stop, because the command prints both as one
    line: `vicinal: error: <message>: <remedy>`.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}"

    @property
    def each(self) -> "tuple[VicinalError, ...]":
        """The single errors: this error itself, or the parts of a CollectedError
        (vicinal.base.faults)."""
        return (self,)


class TimeLimitError(VicinalError):
    """Work did not end within its time limit."""


def describe_os_error(error: OSError) -> str:
    """The reason of an operating system error, with a small first letter: 'permission denied'."""
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def fail(line: str, status: int = 1) -> int:
    """Print an error as one line on standard error, and return the exit status."""
    sys.stderr.write(f"vicinal: error: {' '.join(line.split())}\n")
    return status


def complain(error: VicinalError) -> int:
    """Print each of the errors as a line of its own, and return the exit status."""
    return max(fail(str(each)) for each in error.each)
