"""Reads the options of a workload, and refuses unknown and invalid options."""

from collections.abc import Sequence
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload


class Options:
    """A workload's options for a driver that knows the options `known`.

    All methods raise VicinalError for a value in the study file that the driver cannot use.
    """

    def __init__(self, workload: Workload, known: Sequence[str] = ()) -> None:
        self.workload = workload
        for name in workload.options:
            if name not in known:
                raise self.error(
                    f"has an option {name}, which its driver {workload.driver} does not know",
                    f"its options are {', '.join(known)}" if known else "leave out the option",
                )

    def number(self, name: str, default: int, least: int = 1, most: int = 2**31 - 1) -> int:
        """A whole number from `least` to `most`."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(
                f"has {name}: {value!r}", f"write a whole number from {least} to {most}"
            )
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """An option that is true or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(f"has {name}: {value!r}", "write true or false")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """An option whose value is one of these words."""
        value = self._value(name, default)
        if value not in choices:
            raise self.error(f"has {name}: {value!r}", f"choose one of {', '.join(choices)}")
        return str(value)

    def given(self, name: str) -> bool:
        """Whether the study sets the option."""
        return name in self.workload.options

    def operation(self, known: Sequence[str]) -> str:
        """The workload's operation, if the driver knows it."""
        if self.workload.operation not in known:
            raise self.error(
                f"has the operation {self.workload.operation!r}, which its driver "
                f"{self.workload.driver} does not know",
                f"choose one of {', '.join(known)}",
            )
        return self.workload.operation

    def ranks(self, least: int, most: int | None = None, multiple: int = 1) -> int:
        """The workload's number of ranks, if its operation can run on that many."""
        ranks = self.workload.ranks
        if ranks < least or (most is not None and ranks > most) or ranks % multiple != 0:
            wanted = f"{least}" if most == least else f"{least} or more"
            if most is not None and most != least:
                wanted = f"{least} to {most}"
            if multiple > 1:
                wanted += f", a multiple of {multiple}"
            raise self.error(
                f"cannot run {self.workload.operation} on {ranks} ranks", f"use {wanted}"
            )
        return ranks

    def no_sizes(self) -> None:
        """Refuse sizes, for programs that choose sizes by themselves."""
        if self.workload.sizes:
            raise self.error(
                f"has sizes, but {self.workload.operation} of its driver "
                f"{self.workload.driver} has none",
                "leave out sizes",
            )

    def error(self, cause: str, remedy: str) -> VicinalError:
        """An error that names the workload."""
        return VicinalError(f"the workload {self.workload.name} {cause}", remedy)

    def _value(self, name: str, default: Any) -> Any:
        return self.workload.options.get(name, default)
