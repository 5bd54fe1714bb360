"""Errors that do not hide each other, told together: all of a file, or all that a plan lacks.

faults = Faults()
for part in parts:
    with faults.catch():
        read(part)
faults.check()
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from vicinal.errors import VicinalError


class CollectedError(VicinalError):
    """More than one error; the command prints a line for each.

    Callers that show a message and a remedy show those of the first, and how many more there are.
    """

    def __init__(self, errors: Sequence[VicinalError]) -> None:
        first, more = errors[0], len(errors) - 1
        count = "one more error" if more == 1 else f"{more} more errors"
        super().__init__(first.message, f"{first.remedy} (and {count})")
        self._errors = tuple(errors)

    @property
    def each(self) -> tuple[VicinalError, ...]:
        """The errors, in the order in which they were found."""
        return self._errors


class Faults:
    """Errors that were found so far."""

    def __init__(self) -> None:
        self._found: list[VicinalError] = []

    def add(self, message: str, remedy: str) -> None:
        """Add an error."""
        self.extend([VicinalError(message, remedy)])

    def extend(self, errors: Iterable[VicinalError]) -> None:
        """Add errors, each once: several nodes may lack the same."""
        known = {str(each) for each in self._found}
        for each in errors:
            if str(each) not in known:
                known.add(str(each))
                self._found.append(each)

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Collect the error, or errors, that end the body of the `with` statement."""
        try:
            yield
        except VicinalError as error:
            self.extend(error.each)

    def check(self) -> None:
        """Raise what was found: VicinalError, or CollectedError if there is more than one error."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise CollectedError(self._found)
