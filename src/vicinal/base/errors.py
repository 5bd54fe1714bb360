"""The one kind of error that a user of Vicinal gets to see."""

import sys


class VicinalError(Exception):
    """Something the user can act on: what went wrong, and what to do about it.

    Both parts are phrases without a final full stop, since the command prints them as
    one line: `vicinal: error: <message>: <remedy>`.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}"

    @property
    def each(self) -> "tuple[VicinalError, ...]":
        """The errors that it stands for: itself, unless it is several (vicinal.base.faults)."""
        return (self,)


class TimeLimitError(VicinalError):
    """Something was still at work when the time was over that it was given."""


def describe_os_error(error: OSError) -> str:
    """The reason of an operating system error in words: 'permission denied'."""
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def fail(line: str, status: int = 1) -> int:
    """Tell the user of an error, in one line; the exit status that it has."""
    sys.stderr.write(f"vicinal: error: {' '.join(line.split())}\n")
    return status


def complain(error: VicinalError) -> int:
    """Tell the user of an error, or of several, each in its line; the exit status."""
    return max(fail(str(each)) for each in error.each)
