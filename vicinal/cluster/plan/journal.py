"""What was made of a cluster, in a file that is written before and after each step.

A command may be killed at any moment, and the host may lose its power. What the journal says was
begun and not ended is half made at worst: the next `up` or `down` takes it away.

Each line is a JSON object; a last line that is torn was not written, and what it would have said
was not done yet.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vicinal.cluster.plan.resource import Json, Resource
from vicinal.errors import VicinalError


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
        self._file = file
        self._torn = True
        """Whether its last line may be torn: it is not, once we have written one to its end."""

    def entries(self) -> dict[str, Entry]:
        """What is there or may be, by its key, in the order in which it was made."""
        found: dict[str, Entry] = {}
        for line in self._lines():
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
                    f"{self._file} has a line that no command of ours writes",
                    "see what is left of the cluster, and remove the file",
                ) from error
            if entry.event is Event.REMOVED:
                found.pop(entry.key, None)
            else:
                found[entry.key] = entry
        return found

    def write(self, resource: Resource, event: Event) -> None:
        """Add a line, which is on the disk when this returns."""
        record = {
            "event": event,
            "key": resource.key,
            "settings": dict(resource.settings),
            "needs": list(resource.needs),
        }
        text = json.dumps(record) + "\n"
        file = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if self._torn:
                os.ftruncate(file, sum(len(line) + 1 for line in self._lines()))
            self._torn = True
            os.write(file, text.encode())
            os.fsync(file)
            self._torn = False
        finally:
            os.close(file)

    def _lines(self) -> list[bytes]:
        """The lines that were written to their end."""
        try:
            return self._file.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
