"""Findings of checks: a status, a sentence, and a remedy."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from vicinal.host.system import Host


class Status(StrEnum):
    """The judgement of a finding."""

    PASS = "pass"
    """Usable."""
    WARN = "warn"
    """Usable with limits: slower, not for every user, or not for every purpose; or the state is
    unknown."""
    FAIL = "fail"
    """Present, but unusable until the remedy is applied."""
    SKIP = "skip"
    """This host does not have the examined thing."""


@dataclass(frozen=True)
class Finding:
    """One line of a check's result. Raises ValueError if WARN or FAIL comes without a remedy."""

    status: Status
    text: str
    """A phrase without a final full stop."""
    remedy: str = ""
    """What the user can do; never empty for WARN and FAIL."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The same for programs: values that JSON can hold."""

    def __post_init__(self) -> None:
        if self.status in (Status.WARN, Status.FAIL) and not self.remedy:
            raise ValueError(f"no remedy for: {self.text}")


@dataclass(frozen=True)
class Check:
    """One thing that `vicinal doctor` examines."""

    name: str
    """The name on the command line: a word, such as `iommu`."""
    title: str
    about: str
    """What the check examines, for the list of checks."""
    examine: Callable[[Host], Iterable[Finding]]


def passed(text: str, **facts: Any) -> Finding:
    """A finding of status PASS."""
    return Finding(Status.PASS, text, facts=facts)


def warned(text: str, remedy: str, **facts: Any) -> Finding:
    """A finding of status WARN: the thing is limited or slow."""
    return Finding(Status.WARN, text, remedy, facts)


def failed(text: str, remedy: str, **facts: Any) -> Finding:
    """A finding of status FAIL: the thing is unusable."""
    return Finding(Status.FAIL, text, remedy, facts)


def skipped(text: str, remedy: str = "", **facts: Any) -> Finding:
    """A finding of status SKIP: there is nothing to examine. `remedy` says how to get the thing."""
    return Finding(Status.SKIP, text, remedy, facts)
