"""The journal of a cluster: the resources that exist, written before and after each step.

A command may be killed at any moment, and the host may lose power. A resource with a `begun` line
and no `made` line may be half made; the next `up` or `down` removes it.
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
    """The event of a line."""

    BEGUN = "begun"
    """The creation begins."""
    MADE = "made"
    REMOVING = "removing"
    REMOVED = "removed"


@dataclass(frozen=True)
class Entry:
    """The last line of a resource that exists or may exist."""

    key: str
    settings: Mapping[str, Json]
    needs: tuple[str, ...]
    event: Event

    @property
    def whole(self) -> bool:
        """Whether the resource was created, and its removal has not begun."""
        return self.event is Event.MADE


class Journal:
    """The journal of one cluster. Only a command that holds the cluster's lock may write it."""

    def __init__(self, file: Path) -> None:
        self._lines = LineJournal(file)

    def entries(self) -> dict[str, Entry]:
        """Return the last entry of each resource that exists or may exist, by its key.

        The order is that of creation. Raises VicinalError for a malformed line.
        """
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
                    f"{self._lines.file} has a line that Vicinal does not write",
                    "remove by hand what is left of the cluster, and then the file",
                ) from error
            if entry.event is Event.REMOVED:
                found.pop(entry.key, None)
            else:
                found[entry.key] = entry
        return found

    def write(self, resource: Recorded, event: Event) -> None:
        """Append a line, which is on disk when the call returns.

        Raises VicinalError if the file cannot be written.
        """
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
                f"{self._lines.file} cannot be written ({describe_os_error(error)}): Vicinal "
                "creates and removes only what it records first",
                "free space there, or let this user write there",
            ) from error
