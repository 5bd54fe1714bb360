"""What a check says: a status, a sentence, and what to do about it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from vicinal.host.system import Host


class Status(StrEnum):
    """How a finding is judged."""

    PASS = "pass"
    """It can be used."""
    WARN = "warn"
    """It can be used, but slower, not by everybody, or not for everything; or nobody knows."""
    FAIL = "fail"
    """It is here, and no cluster can use it until the remedy is done."""
    SKIP = "skip"
    """This host has no such thing."""


@dataclass(frozen=True)
class Finding:
    """One line of what was found out."""

    status: Status
    text: str
    """What was found: a phrase without a final full stop."""
    remedy: str = ""
    """What to do about it; never empty where something is to be done."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The same for programs: what JSON can hold."""

    def __post_init__(self) -> None:
        if self.status in (Status.WARN, Status.FAIL) and not self.remedy:
            raise ValueError(f"no remedy for: {self.text}")


@dataclass(frozen=True)
class Check:
    """One thing that is examined."""

    name: str
    """What users call it: a word, such as `iommu`."""
    title: str
    about: str
    """What it looks at, for the list of checks."""
    examine: Callable[[Host], Iterable[Finding]]


def passed(text: str, **facts: Any) -> Finding:
    """A finding that is as it should be."""
    return Finding(Status.PASS, text, facts=facts)


def warned(text: str, remedy: str, **facts: Any) -> Finding:
    """A finding that limits or slows."""
    return Finding(Status.WARN, text, remedy, facts)


def failed(text: str, remedy: str, **facts: Any) -> Finding:
    """A finding that prevents."""
    return Finding(Status.FAIL, text, remedy, facts)


def skipped(text: str, remedy: str = "", **facts: Any) -> Finding:
    """A finding that there is nothing to examine, and why; `remedy` is how there would be."""
    return Finding(Status.SKIP, text, remedy, facts)
