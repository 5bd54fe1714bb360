"""Regions whose members are written by a test: nobody lives in them."""

import os
from collections.abc import Mapping
from pathlib import Path

from vicinal.region import create, records
from vicinal.region import geometry as layout
from vicinal.region.records import Record, Value
from vicinal.region.states import Liveness, SlotState

MEMBERS = 4


class WrittenRegion:
    """A region without heaps, and what tests write into it."""

    def __init__(self, path: Path, members: int = MEMBERS, label: str = "written") -> None:
        self.path = path
        self.members = members
        region = create(path, members=members, label=label)
        self.section_bytes = (region.region_bytes - layout.sections_offset(members)) // members

    def write(self, kind: Record, offset: int, values: Mapping[str, Value]) -> None:
        with self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), kind.write(values), offset)

    def join(self, slot: int, *, rank: int, epoch: int = 1, **more: Value) -> None:
        """Write a member whose life shows by its heartbeat."""
        values: dict[str, Value] = {
            "epoch": epoch,
            "rank": rank,
            "pid": 100 + rank,
            "hostname": f"node{rank}".encode(),
            "liveness": Liveness.HEARTBEAT,
            "job": 7,
        }
        self.write(records.SECTION, self._section(slot), values | more)
        claim = epoch << 32 | SlotState.JOINED
        self.write(records.SLOT, layout.slot_offset(slot), {"claim": claim})

    def leave(self, slot: int, epoch: int = 1) -> None:
        self.write(records.SLOT, layout.slot_offset(slot), {"claim": epoch << 32})

    def condemn(self, slot: int, epoch: int = 1) -> None:
        """Write that the host's manager saw the member end."""
        offset = layout.verdicts_offset(self.members) + slot * layout.VERDICT_BYTES
        self.write(records.VERDICT, offset, {"verdict": epoch << 32 | 1})

    def connect(self, sender: int, receiver: int, **values: Value) -> None:
        offset = self._section(sender) + layout.connections_offset(self.members)
        line: dict[str, Value] = {"id": 1, "receiver_epoch": 1, "slots": 16}
        self.write(records.CONNECTION, offset + receiver * layout.LINE, line | values)

    def beyond(self, sender: int, line: int, **values: Value) -> None:
        offset = self._section(sender) + layout.network_offset(self.members)
        self.write(
            records.NETWORK_LINE, offset + line * layout.NETWORK_LINE_BYTES, {"nonce": 9} | values
        )

    def _section(self, slot: int) -> int:
        return layout.section_offset(slot, self.members, self.section_bytes)
