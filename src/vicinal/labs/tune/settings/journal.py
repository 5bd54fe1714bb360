"""The journal: changes of this host, in a file that is written before each change.

A command may be killed at any moment. The next command undoes its changes if these were temporary
or incomplete. A change that is meant to stay is in the journal too, with the former value, until it
is restored.

A reboot resets all knobs, so records of earlier boots have no meaning.
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
    """The purpose of an operation."""

    APPLY = "apply"
    """Stays until it is restored or the host reboots."""
    BOOT = "boot"
    """As APPLY, at the host's boot."""
    TRIAL = "trial"
    """Lasts as long as the command."""


@dataclass(frozen=True)
class Change:
    """A knob's former value and its new value."""

    knob: str
    before: Value
    value: Value
    device: Mapping[str, int]
    """Facts that tell the device from another device of the same name."""


@dataclass
class Operation:
    """The changes of one command that are not restored."""

    kind: Kind
    boot: str
    """The id of the boot in which the command ran."""
    changes: dict[str, Change] = field(default_factory=dict)
    """By knob, in the order of the changes."""
    kept: bool = False
    """Whether the operation is complete and its changes stay."""


class Journal:
    """The journal of one host. A writer holds the lock of its directory."""

    def __init__(self, file: Path) -> None:
        self._lines = LineJournal(file)

    def operations(self) -> list[Operation]:
        """The operations that are not restored, oldest first.

        Raises VicinalError for a line that no command writes.
        """
        found: list[Operation] = []
        for line in self._lines.lines():
            try:
                record = json.loads(line)
                _EVENTS[record["event"]](found, record)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise VicinalError(
                    f"{self._lines.file} has a line that no command of Vicinal writes",
                    "restore the values in the file by hand, and remove the file",
                ) from error
        return found

    def begin(self, kind: Kind, boot: str) -> None:
        """Record that an operation begins."""
        self._lines.append({"event": "begin", "kind": kind, "boot": boot})

    def change(self, change: Change) -> None:
        """Record a change of the operation, before it is made."""
        record = {"knob": change.knob, "before": change.before, "value": change.value}
        self._lines.append({"event": "change", **record, "device": dict(change.device)})

    def keep(self) -> None:
        """Record that the operation is complete and its changes stay."""
        self._lines.append({"event": "keep"})

    def undone(self, knob: str) -> None:
        """Record that a knob of the last operation has its former value again."""
        self._lines.append({"event": "undone", "knob": knob})

    def end(self) -> None:
        """Record that the last operation is undone; remove the file if no operation is left."""
        self._lines.append({"event": "end"})
        if not self.operations():
            self.clear()

    def clear(self) -> None:
        """Remove the file."""
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
