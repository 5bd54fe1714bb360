"""Reads a region: its header, its members, and the messages of each pair.

A hostile member may have written any of the data, and the data change during the read. So the
reader copies each record once, checks the copy, and makes text safe for a terminal.
"""

import os
import stat
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.base.printable import printable
from vicinal.region import geometry as layout
from vicinal.region import records
from vicinal.region.locks import is_locked
from vicinal.region.module import region_offset
from vicinal.region.opening import open_region, socket_of
from vicinal.region.records import Record, Value
from vicinal.region.states import Liveness, RequestedRoute, Route, SlotState

_ANEW = "remove the region and create it again"


@dataclass(frozen=True)
class Header:
    """The region's first page."""

    version: int
    members: int
    region_bytes: int
    section_bytes: int
    """Bytes of each member's section, its heap included."""
    heap_bytes: int
    id: str
    created: datetime
    label: str
    sparse_heaps: bool = False
    """Whether pages of heaps are reserved only when they are used."""

    @property
    def first_bytes(self) -> int:
        """Bytes of the region that were reserved when it was created."""
        heap_bytes = self.heap_bytes if self.sparse_heaps else 0
        return layout.first_bytes(self.members, self.section_bytes, heap_bytes)


@dataclass(frozen=True)
class Home:
    """The first region of a member of several regions; the member's address names it."""

    region: str
    """The region's id, in the notation of Header.id."""
    slot: int
    epoch: int


@dataclass(frozen=True)
class DirectCounts:
    """What a member's process did in the region by its own loads and stores, without messages."""

    collectives: int = 0
    collective_bytes: int = 0
    """What the process wrote for others."""
    one_sided: int = 0
    """Operations on windows."""
    one_sided_bytes: int = 0
    """What the process read and wrote at the targets."""


@dataclass(frozen=True)
class Member:
    """An endpoint that took a slot. A slot that was never taken has no Member."""

    slot: int
    epoch: int
    state: SlotState
    """FREE: the member left; its section stays readable until another member takes the slot."""
    alive: bool | None
    """Whether the member is alive. None: it left, it is joining, or inspect() did not wait for its
    heartbeat.

    A member that left counts as alive while its living process has memory in the heap.
    """
    liveness: int
    """A value of Liveness, or an invalid number."""
    rank: int | None
    pid: int
    """The process number in the member's own PID namespace."""
    hostname: str
    endpoint: int
    """Number of the endpoint within its process, from 0."""
    arena_used: int
    """Used bytes of the arena."""
    section_epoch: int
    """Epoch in the section. Equal to `epoch`, except before the member writes its section."""
    nonce: int = 0
    """Part of the member's address, by which peers in other regions name the member."""
    network: bool = False
    """Whether the member has a network address."""
    detached: bool = False
    """Whether the manager asks for the network as the route to this member."""
    leaving: bool = False
    """Whether the manager asked the member to leave the region; stays True after the member
    left."""
    home: Home | None = None
    """None for a member whose address names this region."""
    job: int = 0
    """Number of the member's job from VICINAL_JOB; 0 if the variable was unset."""
    windows: int = 0
    """Blocks of MPI's windows and of MPI_Alloc_mem that keep the member from leaving the region;
    0 while the manager does not ask it to."""
    direct: DirectCounts = DirectCounts()
    """All 0 except for the first endpoint of a process with libvicinal-mpi.so."""
    sleeping: int = 0
    """0 while the member polls; otherwise it may sleep until a peer wakes it (SLEEPING_... in
    provider/region/layout.h)."""
    heartbeat: int = 0
    """A counter that changes while the member lives, if its liveness is HEARTBEAT."""

    @property
    def condition(self) -> str:
        """One word: alive, dead, left, holding, joining or unknown.

        A holding member has left, but its process still has memory in the heap.
        """
        if self.state is SlotState.HELD and self.alive is True:
            return "holding"
        if self.state in (SlotState.FREE, SlotState.HELD):
            return "left"
        if self.alive is not None:
            return "alive" if self.alive else "dead"
        return "joining" if self.state is SlotState.CLAIMED else "unknown"


@dataclass(frozen=True)
class Connection:
    """A ring from one member to another, and the traffic through the ring."""

    sender: int
    receiver: int
    receiver_epoch: int
    slots: int
    """Slots in the ring."""
    ring: int
    """Byte offset of the ring in the sender's section."""
    messages: int
    bytes: int
    """Messages and bytes sent; the sender updates both from time to time."""
    route: Route = Route.REGION
    """The current route. There is no ring while messages use the network."""
    offered: bool = True
    """Whether the receiver is told about a ring. False while a pair moves back from the network."""
    ended: int = 0
    """Epoch of the receiver whose violation of the region's protocol the sender found; 0: none."""


@dataclass(frozen=True)
class Beyond:
    """Traffic of a member over the network to a peer outside the region."""

    sender: int
    nonce: int
    """The peer's nonce."""
    messages: int
    bytes: int


@dataclass(frozen=True)
class RegionState:
    """The result of inspect()."""

    path: str
    file_bytes: int
    reserved_bytes: int
    """Bytes that the filesystem has allocated for the file."""
    owner: int
    mode: int
    device: int
    offset: int
    """Offset of the region in the file; greater than 0 only in a memory module."""
    header: Header
    members: tuple[Member, ...]
    connections: tuple[Connection, ...]
    beyond: tuple[Beyond, ...] = ()
    brokered: bool = False
    """Whether a broker handed out the region; `path` is its name then, socket:PATH."""

    @property
    def name(self) -> str:
        """The value for VICINAL_REGION."""
        return self.path if self.brokered else f"file:{self.path}"

    def member(self, slot: int) -> Member | None:
        """Return the member in a slot; None if the slot has none."""
        return self._by_slot.get(slot)

    @cached_property
    def _by_slot(self) -> dict[int, Member]:
        return {member.slot: member for member in self.members}

    def of_job(self, job: int) -> "RegionState":
        """Return the state with only the members of one job and their traffic; jobs may share a
        region."""
        members = tuple(each for each in self.members if each.job == job)
        slots = {each.slot for each in members}
        return replace(
            self,
            members=members,
            connections=tuple(each for each in self.connections if each.sender in slots),
            beyond=tuple(each for each in self.beyond if each.sender in slots),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the state as plain values; sizes are in bytes, times in ISO 8601."""
        return {
            "path": self.path,
            "file_bytes": self.file_bytes,
            "reserved_bytes": self.reserved_bytes,
            "owner": self.owner,
            "mode": f"{self.mode:04o}",
            "offset": self.offset,
            "header": vars(self.header) | {"created": self.header.created.isoformat()},
            "members": [
                vars(member)
                | {
                    "state": member.state.name.lower(),
                    "condition": member.condition,
                    "nonce": f"{member.nonce:016x}",
                    "home": None if member.home is None else vars(member.home),
                    "direct": vars(member.direct),
                }
                for member in self.members
            ],
            "beyond": [vars(each) | {"nonce": f"{each.nonce:016x}"} for each in self.beyond],
            "connections": [
                vars(connection) | {"route": connection.route.name.lower()}
                for connection in self.connections
            ],
        }


def inspect(region: str | os.PathLike[str] | int, *, patience: float = 1.0) -> RegionState:
    """Read a region, given its path, its name socket:PATH or a descriptor of its file.

    Members in other virtual machines show that they are alive only by a counter; `patience` is the
    time in seconds for which inspect() waits for these counters. Without such members there is no
    wait. Raises VicinalError if there is no file, if this user may not read the file, or if the
    file holds no valid region.
    """
    if isinstance(region, int):
        return _Reader(region, f"/proc/self/fd/{region}").state(patience)
    brokered = socket_of(region) is not None
    name = os.fspath(region) if brokered else str(Path(region).absolute())
    fd = open_region(region)
    try:
        return _Reader(fd, name, brokered=brokered).state(patience)
    finally:
        os.close(fd)


class _Reader:
    """An open region file; header() checks its geometry once."""

    def __init__(self, fd: int, path: str, *, brokered: bool = False) -> None:
        self.fd = fd
        self.path = path
        self.brokered = brokered
        self.status = os.fstat(fd)
        if not stat.S_ISREG(self.status.st_mode):
            raise VicinalError(f"{path} is not a regular file", "name a region's file")
        try:
            self.offset = region_offset(fd, self.status.st_size)
        except OSError as error:
            raise VicinalError(
                f"cannot read region {path}: {describe_os_error(error)}", _ANEW
            ) from error
        self.room = self.status.st_size - self.offset
        self.header = self._header()

    def state(self, patience: float) -> RegionState:
        members = self._members(patience)
        return RegionState(
            path=self.path,
            file_bytes=self.status.st_size,
            reserved_bytes=self.status.st_blocks * 512,
            owner=self.status.st_uid,
            mode=stat.S_IMODE(self.status.st_mode),
            device=self.status.st_dev,
            offset=self.offset,
            header=self.header,
            members=members,
            connections=tuple(
                connection for member in members for connection in self._connections(member)
            ),
            beyond=tuple(each for member in members for each in self._beyond(member)),
            brokered=self.brokered,
        )

    def _read(self, kind: Record, offset: int, count: int) -> list[dict[str, Value]]:
        return kind.read(self._bytes(kind, offset, count))

    def _bytes(self, kind: Record, offset: int, count: int) -> bytes:
        try:
            data = os.pread(self.fd, kind.size * count, self.offset + offset)
        except OSError as error:
            raise VicinalError(
                f"cannot read region {self.path}: {describe_os_error(error)}", _ANEW
            ) from error
        if len(data) < kind.size * count:
            raise VicinalError(f"region {self.path} is truncated", _ANEW)
        return data

    def _header(self) -> Header:
        if self.room < records.HEADER.size:
            raise VicinalError(
                f"{self.path} is not a region: the file has only {self.room} bytes",
                "create one with `vicinal region create`",
            )
        raw = self._read(records.HEADER, 0, 1)[0]
        version, members = int(raw["version"]), int(raw["members"])
        section_bytes, region_bytes = int(raw["section_bytes"]), int(raw["region_bytes"])
        heap_bytes = int(raw["heap_bytes"])
        if int(raw["magic"]) != layout.MAGIC:
            raise VicinalError(
                f"{self.path} is not a region: the file does not begin with a region's magic",
                "create one with `vicinal region create`",
            )
        if version != layout.VERSION:
            raise VicinalError(
                f"region {self.path} has format version {version}, "
                f"and this Vicinal knows version {layout.VERSION}",
                "install the Vicinal that created the region, or remove the region and create it "
                "again",
            )
        sparse_heaps = int(raw["sparse_heaps"])
        fault = layout.section_fault(members, section_bytes, heap_bytes)
        if sparse_heaps > 1:
            fault = f"{sparse_heaps} for sparse heaps: 0 and 1 are possible"
        if fault:
            raise VicinalError(f"the header of region {self.path} says {fault}", _ANEW)
        if (
            int(raw["sections_offset"]) != layout.sections_offset(members)
            or layout.region_bytes(members, section_bytes) != region_bytes
        ):
            raise VicinalError(f"the header of region {self.path} contradicts itself", _ANEW)
        if region_bytes > self.room:
            raise VicinalError(
                f"region {self.path} is truncated: it has {self.room} of {region_bytes} bytes",
                _ANEW,
            )
        return Header(
            version,
            members,
            region_bytes,
            section_bytes,
            heap_bytes,
            bytes(raw["id"]).hex(),
            datetime.fromtimestamp(min(int(raw["created"]), 253402300799), UTC),
            _text(bytes(raw["label"])),
            bool(sparse_heaps),
        )

    def _members(self, patience: float) -> tuple[Member, ...]:
        count = self.header.members
        slots = self._read(records.SLOT, layout.slot_offset(0), count)
        claims = [int(each["claim"]) for each in slots]
        requests = [int(each["requested_route"]) for each in slots]
        table = self._read(records.VERDICT, layout.verdicts_offset(count), count)
        verdicts = [int(each["verdict"]) for each in table]
        taken = [slot for slot in range(count) if claims[slot] != 0]
        sections = {slot: self._section(slot) for slot in taken}
        beating = {
            slot: int(sections[slot]["heartbeat"])
            for slot in taken
            if claims[slot] & 0xFFFFFFFF in (SlotState.JOINED, SlotState.HELD)
            and int(sections[slot]["liveness"]) == Liveness.HEARTBEAT
        }
        alive = self._watch(beating, patience)
        members = []
        for slot in taken:
            claim = claims[slot]
            marked_dead = verdicts[slot] == (claim >> 32 << 32 | 1)
            member = self._member(
                slot, claim, sections[slot], False if marked_dead else alive.get(slot)
            )
            requested = requests[slot] & 0xFFFFFFFF if requests[slot] >> 32 == claim >> 32 else 0
            detached = requested in (RequestedRoute.NETWORK, RequestedRoute.LEAVE)
            leaving = requested == RequestedRoute.LEAVE
            members.append(replace(member, detached=detached, leaving=leaving))
        return tuple(members)

    def _member(
        self, slot: int, claim: int, section: dict[str, Value], alive: bool | None
    ) -> Member:
        state = claim & 0xFFFFFFFF
        if state not in list(SlotState):
            raise VicinalError(
                f"slot {slot} of region {self.path} has the unknown state {state}", _ANEW
            )
        if state == SlotState.CLAIMED and int(section["epoch"]) != claim >> 32:
            section = records.SECTION.zero  # the section is still the previous member's
        if state not in (SlotState.JOINED, SlotState.HELD):
            alive = None
        elif alive is None and int(section["liveness"]) == Liveness.LOCK:
            alive = is_locked(self.fd, slot)
        if state == SlotState.HELD and alive is False:
            alive = None  # the process ended, and with it the memory in the heap
        rank = int(section["rank"])
        return Member(
            slot=slot,
            epoch=claim >> 32,
            state=SlotState(state),
            alive=alive,
            liveness=int(section["liveness"]),
            rank=None if rank == records.NO_RANK else rank,
            pid=int(section["pid"]),
            hostname=_text(bytes(section["hostname"])),
            endpoint=int(section["endpoint"]),
            arena_used=int(section["arena_used"]),
            section_epoch=int(section["epoch"]),
            nonce=int(section["nonce"]),
            network=int(section["core"]) != 0,
            home=_home(section),
            job=int(section["job"]),
            windows=int(section["windows"]),
            direct=DirectCounts(
                collectives=int(section["collectives"]),
                collective_bytes=int(section["collective_bytes"]),
                one_sided=int(section["one_sided"]),
                one_sided_bytes=int(section["one_sided_bytes"]),
            ),
            sleeping=int(section["sleeping"]),
            heartbeat=int(section["heartbeat"]),
        )

    def _section(self, slot: int) -> dict[str, Value]:
        offset = layout.section_offset(slot, self.header.members, self.header.section_bytes)
        return self._read(records.SECTION, offset, 1)[0]

    def _watch(self, beating: dict[int, int], patience: float) -> dict[int, bool | None]:
        """Whether each member's heartbeat counter increased within `patience` seconds, by slot."""
        if patience <= 0:
            return {}
        alive: dict[int, bool | None] = dict.fromkeys(beating, False)
        deadline = time.monotonic() + patience
        while not all(alive.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
            for slot, before in beating.items():
                alive[slot] = alive[slot] or int(self._section(slot)["heartbeat"]) != before
        return alive

    def _table(
        self, member: Member, kind: Record, within: int, count: int
    ) -> list[tuple[int, dict[str, Value]]]:
        """The lines of a table in a member's section that are not all zero, with their numbers.

        None if the section belongs to an earlier member. In a region of hundreds of members, most
        of the lines of a table are zero.
        """
        if member.state is SlotState.CLAIMED or member.section_epoch != member.epoch:
            return []
        members, section_bytes = self.header.members, self.header.section_bytes
        offset = layout.section_offset(member.slot, members, section_bytes)
        return kind.used(self._bytes(kind, offset + within, count))

    def _beyond(self, member: Member) -> list[Beyond]:
        """A member's traffic over the network."""
        start = layout.network_offset(self.header.members)
        lines = self._table(member, records.NETWORK_LINE, start, layout.NETWORK_LINES)
        return [
            Beyond(member.slot, int(line["nonce"]), int(line["messages"]), int(line["bytes"]))
            for _, line in lines
            if int(line["nonce"]) != 0
        ]

    def _connections(self, member: Member) -> list[Connection]:
        """The rings that a member created."""
        count = self.header.members
        start = layout.connections_offset(count)
        lines = self._table(member, records.CONNECTION, start, count)
        return [
            Connection(
                sender=member.slot,
                receiver=receiver,
                receiver_epoch=int(line["receiver_epoch"]),
                slots=int(line["slots"]),
                ring=int(line["ring"]),
                messages=int(line["messages"]),
                bytes=int(line["bytes"]),
                route=_route(int(line["route"])),
                offered=int(line["id"]) != 0,
                ended=int(line["ended"]),
            )
            for receiver, line in lines
            if int(line["id"]) != 0 or _route(int(line["route"])) is not Route.REGION
        ]


def _route(number: int) -> Route:
    """The route in a connection line; an invalid number counts as REGION."""
    return Route(number) if number in list(Route) else Route.REGION


def _home(section: dict[str, Value]) -> Home | None:
    region, slot = bytes(section["home"]).hex(), int(section["home_slot"])
    epoch = int(section["home_epoch"])
    return Home(region, slot, epoch) if int(region, 16) or slot or epoch else None


def _text(raw: bytes) -> str:
    """Text from another party up to its NUL, made safe for a terminal."""
    return printable(raw.split(b"\0", 1)[0].decode("utf-8", "replace"))
