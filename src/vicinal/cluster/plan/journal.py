"""What was made of a cluster, in a file that is written before and after each step.

A command may be killed at any moment, and the host may lose its power. What the journal says was
begun and not ended is half made at worst: the next `up` or `down` takes it away.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.journal import LineJournal
from vicinal.cluster.plan.resource import Json, Recorded


class Event(StrEnum):
    """What a line says of a resource."""

    BEGUN = "begun"
    """It is being made."""
    MADE = "made"
    REMOVING = "removing"
    REMOVED = "removed"


@dataclass(frozen=True)
class Entry:
    """The last that was written of a resource that is there, or may be."""

    key: str
    settings: Mapping[str, Json]
    needs: tuple[str, ...]
    event: Event

    @property
    def whole(self) -> bool:
        """Whether it was made, and nobody began to take it away."""
        return self.event is Event.MADE


class Journal:
    """The journal of one cluster. Whoever writes it holds the cluster's lock."""

    def __init__(self, file: Path) -> None:
        self._lines = LineJournal(file)

    def entries(self) -> dict[str, Entry]:
        """What is there or may be, by its key, in the order in which it was made."""
        found: dict[str, Entry] = {}
        for line in self._lines.lines():
            try:
                record = json.loads(line)
                entry = Entry(
                    record["key"],
                    record["settings"],
                    tuple(record["needs"]),
                    Event(record["event"]),
                )
            except (ValueError, KeyError, TypeError) as error:
                raise VicinalError(
                    f"{self._lines.file} has a line that no command of ours writes",
                    "see what is left of the cluster, and remove the file",
                ) from error
            if entry.event is Event.REMOVED:
                found.pop(entry.key, None)
            else:
                found[entry.key] = entry
        return found

    def write(self, resource: Recorded, event: Event) -> None:
        """Add a line, which is on the disk when this returns. Raises VicinalError."""
        record = {
            "event": event,
            "key": resource.key,
            "settings": dict(resource.settings),
            "needs": list(resource.needs),
        }
        try:
            self._lines.append(record)
        except OSError as error:
            raise VicinalError(
                f"{self._lines.file} cannot be written ({describe_os_error(error)}), and nothing "
                "is made or taken away that is not written down",
                "make room there, or see that this user may write there",
            ) from error
