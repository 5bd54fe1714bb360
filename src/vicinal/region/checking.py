"""Checks that a region is sound: its file, its header, and the tables that its members wrote."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.sizes import show_size
from vicinal.region import geometry as layout
from vicinal.region.creation import user_name
from vicinal.region.filesystem import advice, filesystem_type
from vicinal.region.inspection import Connection, Home, Member, RegionState, inspect
from vicinal.region.states import Liveness, Route, SlotState

_FAULTY_MEMBER = "the member is faulty or malicious: end it, and create the region again"


@dataclass(frozen=True)
class Finding:
    """A fault of a region, or an unwise choice."""

    message: str
    remedy: str
    fault: bool
    """True for a fault; False for an unwise choice."""

    def __str__(self) -> str:
        return f"{self.message}: {self.remedy}"


def check(path: str | os.PathLike[str], *, patience: float = 3.0) -> list[Finding]:
    """Return all findings about a region; an empty list if the region is sound.

    `patience` is in seconds, for members in other virtual machines, as in inspect(). Raises
    VicinalError if the file cannot be read or its header is not a region's header.
    """
    state = inspect(path, patience=patience)
    return [
        *_file(state),
        *(finding for member in state.members for finding in _member(member)),
        *(finding for member in state.members for finding in _home(state, member)),
        *_identities(state),
        *(finding for each in state.connections for finding in _connection(state, each)),
    ]


def _file(state: RegionState) -> Iterator[Finding]:
    path = state.path
    # The memory of a broker is for several users, and its seals were checked when it came.
    if not state.brokered:
        yield from _owner(state)
    if state.reserved_bytes < state.header.first_bytes:
        yield Finding(
            f"{path} has only {show_size(state.reserved_bytes)} of "
            f"{show_size(state.header.first_bytes)} reserved, "
            "so a member's access may end the member with SIGBUS",
            "remove the region and create it again with `vicinal region create`, which reserves "
            "all of it",
            fault=True,
        )
    unwise = None if state.brokered else advice(Path(path), filesystem_type(state.device))
    if unwise:
        message, _, remedy = unwise.rpartition(": ")
        yield Finding(message, remedy, fault=False)


def _owner(state: RegionState) -> Iterator[Finding]:
    path = state.path
    if state.owner != os.geteuid():
        yield Finding(
            f"{path} belongs to {user_name(state.owner)}, and members run as "
            f"{user_name(os.geteuid())}",
            "create the region as the user that the job runs as",
            fault=True,
        )
    if state.mode & 0o077:
        yield Finding(
            f"{path} is open to other users (mode {state.mode:04o})",
            f"run `chmod 600 {path}` if you trust what other users may have written",
            fault=True,
        )


def _member(member: Member) -> Iterator[Finding]:
    name = f"the member in slot {member.slot}"
    if member.alive is False:
        yield Finding(
            f"{name} is dead (pid {member.pid} on {member.hostname or 'an unnamed host'})",
            "the next member that needs a slot takes this slot over; "
            "if the job is over, remove the region",
            fault=True,
        )
    if member.state is SlotState.CLAIMED:
        yield Finding(
            f"{name} has claimed the slot and has not joined yet",
            "check again; if this finding stays, the member died while joining",
            fault=False,
        )
    if member.state is not SlotState.JOINED:
        return

    if member.section_epoch != member.epoch:
        yield Finding(
            f"{name} has epoch {member.epoch} in its slot and "
            f"{member.section_epoch} in its section",
            _FAULTY_MEMBER,
            fault=True,
        )
    if member.liveness not in list(Liveness):
        yield Finding(
            f"{name} has an unknown kind of liveness ({member.liveness})",
            _FAULTY_MEMBER,
            fault=True,
        )


def _home(state: RegionState, member: Member) -> Iterator[Finding]:
    home = member.home
    if home is None or member.state is not SlotState.JOINED:
        return
    if home.region == state.header.id or not home.epoch or home.slot >= layout.MEMBERS_MAX:
        yield Finding(
            f"the member in slot {member.slot} says that its home is slot {home.slot}, epoch "
            f"{home.epoch}, of region {home.region}, which is impossible",
            _FAULTY_MEMBER,
            fault=True,
        )


def _identities(state: RegionState) -> Iterator[Finding]:
    """Report two members that claim the same home and nonce: only one endpoint can have both."""
    known: dict[tuple[int, Home], Member] = {}
    for member in state.members:
        if member.home is None or member.state is not SlotState.JOINED:
            continue
        other = known.setdefault((member.nonce, member.home), member)
        if other is not member:
            yield Finding(
                f"the members in slots {other.slot} and {member.slot} claim to be the same "
                "endpoint of another region",
                "one of the two lies: end the member that is not of your job, and create the "
                "region again",
                fault=True,
            )


def _connection(state: RegionState, connection: Connection) -> Iterator[Finding]:
    sender = state.member(connection.sender)
    if sender is None or sender.state is not SlotState.JOINED:
        return
    if connection.route in (Route.NETWORK, Route.ENDED) or not connection.offered:
        return  # there is no ring
    slots, ring = connection.slots, connection.ring
    arena_end = state.header.section_bytes - state.header.heap_bytes
    possible = (
        layout.RING_SLOTS_MIN <= slots <= layout.RING_SLOTS_MAX
        and slots & (slots - 1) == 0
        and ring % layout.LINE == 0
        and layout.arena_offset(state.header.members) <= ring <= arena_end
        and slots * layout.LINE <= arena_end - ring
    )
    if not possible:
        yield Finding(
            f"the member in slot {connection.sender} offers slot {connection.receiver} an "
            f"impossible ring ({slots} slots at offset {ring})",
            _FAULTY_MEMBER,
            fault=True,
        )
