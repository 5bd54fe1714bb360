"""That the machines of a cluster over several hosts are saved: a line of its journal.

A line that was begun and not ended is a save that was interrupted, or could not be undone: some
machines may stand still, or be saved, while others run.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vicinal.cluster.hosts.record import SAVE_KIND
from vicinal.cluster.plan.journal import Entry
from vicinal.cluster.plan.resource import Json

KEY = f"{SAVE_KIND}/main"
"""The line's key: all machines are saved together."""


@dataclass(frozen=True)
class SaveRecord:
    """All that there is to say of it."""

    @property
    def key(self) -> str:
        """Its key in the journal."""
        return KEY

    @property
    def needs(self) -> tuple[str, ...]:
        """It is not made anew with anything of this host."""
        return ()

    @property
    def settings(self) -> Mapping[str, Json]:
        """None: each host knows what it has."""
        return {}


def is_saved(entries: Mapping[str, Entry]) -> bool:
    """Whether all machines were saved, and nobody began to let them go on."""
    return KEY in entries and entries[KEY].whole


def is_half_saved(entries: Mapping[str, Entry]) -> bool:
    """Whether a command did not come to the end of saving them, or of letting them go on."""
    return KEY in entries and not entries[KEY].whole
