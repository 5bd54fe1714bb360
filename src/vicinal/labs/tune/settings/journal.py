"""What was changed on this machine, in a file that is written before each change.

A command may be killed at any moment. What it changed is undone by the next command, if it was to
last no longer than its command, or was half applied. What was applied to stay is in the journal,
too, with what was there before, until it is restored.

What knobs set is forgotten by the kernel when the machine is started anew, so what was written
before that says nothing any more.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.base.files import sync_directory
from vicinal.base.journal import LineJournal
from vicinal.labs.tune.knob import Value


class Kind(StrEnum):
    """What values were changed for."""

    APPLY = "apply"
    """To stay, until they are restored or the machine is started anew."""
    BOOT = "boot"
    """The same, at the machine's start."""
    TRIAL = "trial"
    """For as long as the command runs."""


@dataclass(frozen=True)
class Change:
    """What a knob had, and what it was to get."""

    knob: str
    before: Value
    value: Value
    device: Mapping[str, int]
    """What tells its device from another of the same name."""


@dataclass
class Operation:
    """What one command changed, and what of it was not set back."""

    kind: Kind
    boot: str
    """The start of the machine that it was done in."""
    changes: dict[str, Change] = field(default_factory=dict)
    """By their knobs' names, in the order in which they were made."""
    kept: bool = False
    """Whether it is whole, and to stay."""


class Journal:
    """The journal of one machine. Whoever writes it holds the lock of its directory."""

    def __init__(self, file: Path) -> None:
        self._lines = LineJournal(file)

    def operations(self) -> list[Operation]:
        """What is not set back, in the order in which it was done."""
        found: list[Operation] = []
        for line in self._lines.lines():
            try:
                record = json.loads(line)
                _EVENTS[record["event"]](found, record)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise VicinalError(
                    f"{self._lines.file} has a line that no command of ours writes",
                    "see what it says was changed, set that back by hand, and remove the file",
                ) from error
        return found

    def begin(self, kind: Kind, boot: str) -> None:
        """An operation begins."""
        self._lines.append({"event": "begin", "kind": kind, "boot": boot})

    def change(self, change: Change) -> None:
        """The operation is about to change a knob."""
        record = {"knob": change.knob, "before": change.before, "value": change.value}
        self._lines.append({"event": "change", **record, "device": dict(change.device)})

    def keep(self) -> None:
        """The operation is whole, and stays."""
        self._lines.append({"event": "keep"})

    def undone(self, knob: str) -> None:
        """A knob of the last operation has again what it had before it."""
        self._lines.append({"event": "undone", "knob": knob})

    def end(self) -> None:
        """Nothing of the last operation is left; nothing of any, and the file goes."""
        self._lines.append({"event": "end"})
        if not self.operations():
            self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._lines.file.unlink(missing_ok=True)
        if self._lines.file.parent.is_dir():
            sync_directory(self._lines.file.parent)


Record = Mapping[str, object]


def _begin(found: list[Operation], record: Record) -> None:
    found.append(Operation(Kind(str(record["kind"])), str(record["boot"])))


def _change(found: list[Operation], record: Record) -> None:
    before, value, device = record["before"], record["value"], record["device"]
    if not isinstance(before, int | str) or not isinstance(value, int | str):
        raise TypeError
    if not isinstance(device, dict):
        raise TypeError
    name = str(record["knob"])
    found[-1].changes[name] = Change(name, before, value, device)


def _keep(found: list[Operation], _record: Record) -> None:
    found[-1].kept = True


def _undone(found: list[Operation], record: Record) -> None:
    del found[-1].changes[str(record["knob"])]


def _end(found: list[Operation], _record: Record) -> None:
    found.pop()


_EVENTS: dict[str, Callable[[list[Operation], Record], None]] = {
    "begin": _begin,
    "change": _change,
    "keep": _keep,
    "undone": _undone,
    "end": _end,
}
