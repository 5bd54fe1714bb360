"""Independent errors, collected and reported together: all of a file, or all of a plan.

faults = Faults() for part in parts:
    with faults.catch():
        read(part)
faults.check()
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, Self, TypeVar

from vicinal.base.errors import VicinalError

T = TypeVar("T")


class CollectedError(VicinalError):
    """Several errors; the command prints a line for each.

    Callers that show only `message` and `remedy` show the first error and the number of further
    errors.
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


class FaultyPartError(Exception):
    """Code used a part of a file that is known to be wrong; no further error is reported."""


class FaultyPart:
    """Placeholder for a wrong part of a file, so that the rest of the file can be read.

    Any use of the placeholder raises FaultyPartError, which Faults.catch() ignores. So code that
    depends on a wrong part reports nothing.
    """

    def _use(self, *_: object) -> NoReturn:
        raise FaultyPartError

    def __deepcopy__(self, _: object) -> Self:
        return self

    __getattr__ = __getitem__ = __iter__ = __contains__ = __len__ = __bool__ = __eq__ = _use
    __hash__ = __str__ = __format__ = __int__ = __index__ = __float__ = __fspath__ = _use
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __call__ = __reversed__ = _use


FAULTY: Any = FaultyPart()


class Faults:
    """The errors that were found so far."""

    def __init__(self) -> None:
        self._found: list[VicinalError] = []

    def add(self, message: str, remedy: str) -> None:
        """Add an error."""
        self.extend([VicinalError(message, remedy)])

    def extend(self, errors: Iterable[VicinalError]) -> None:
        """Add errors, each once: several nodes may lack the same resource."""
        known = {str(each) for each in self._found}
        with suppress(FaultyPartError):
            for each in errors:
                if str(each) not in known:
                    known.add(str(each))
                    self._found.append(each)

    def attempt(self, function: Callable[..., T], *arguments: Any, otherwise: Any = FAULTY) -> T:
        """Call a function and return its result; if the function raises, collect its error and
        return `otherwise`."""
        results: list[T] = [otherwise]
        with self.catch():
            results.append(function(*arguments))
        return results[-1]

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Collect the error, or the errors, that end the body of the `with` statement."""
        try:
            yield
        except FaultyPartError:
            pass
        except VicinalError as error:
            self.extend(error.each)

    def check(self) -> None:
        """Raise the collected errors: VicinalError for one, CollectedError for several, nothing for
        none."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise CollectedError(self._found)
