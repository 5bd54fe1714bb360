"""Moves members of a region to the network and back, at the manager's request.

The region has a word for each member slot that only the manager writes: the requested route to the
slot's member. The member and its peers read the word some twenty times a second. They move each
direction by themselves, and write the current route into their connection lines.

The manager also tells members at once that a guest ended. A guest that dies sends no farewell, and
its peers would notice its silence only after VICINAL_PEER_TIMEOUT. For this verdict the region has
a second word for each member slot, which only the manager writes, too.
"""

import mmap
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.region.filesystem import MAP_WHOLE
from vicinal.region.geometry import VERDICT_BYTES, slot_offset, verdicts_offset
from vicinal.region.inspection import Connection, Member, RegionState, inspect
from vicinal.region.opening import open_region
from vicinal.region.records import SLOT
from vicinal.region.states import RequestedRoute, Route, SlotState

_ENDED = 1
_STEP = 0.02
"""Seconds between two reads of the members' state."""


@dataclass(frozen=True)
class Outcome:
    """The result of a request to detach, leave or attach."""

    members: tuple[int, ...]
    """Slots of the members that were asked."""
    moved: int
    """Number of connections that use the requested route; each direction of a pair is one
    connection. For leave(): number of members that left."""
    troubles: tuple[str, ...]
    """Why the other connections or members have not moved, one line each."""


def detach(
    path: str | os.PathLike[str] | int,
    members: Collection[int] = (),
    *,
    timeout: float = 10.0,
) -> Outcome:
    """Ask members (slots; all if none are given) to use the network, and wait until they do.

    `timeout` is in seconds. The outcome names the members that have not moved by then; they may
    move later. Raises VicinalError if the region cannot be written or has no such member.
    """
    return _request_route(path, members, timeout, network=True)


def leave(
    path: str | os.PathLike[str] | int,
    members: Collection[int] = (),
    *,
    timeout: float = 10.0,
) -> Outcome:
    """Ask members to use the network and to leave the region, and wait until they have left.

    Afterwards their processes have no mapping of the region, so its device can be removed from
    them. The members look for another region about once a second; they return to this region after
    attach(). Arguments and errors are as for detach(), but `moved` counts members, whose slots are
    free.
    """
    state = inspect(path, patience=0)
    asked = _choose(state, members)
    leave = {each.slot: each.epoch << 32 | RequestedRoute.LEAVE for each in asked}
    _write(path, state.offset, leave)
    deadline = time.monotonic() + timeout
    while True:
        time.sleep(_STEP)
        state = inspect(path, patience=0)
        there = {
            (each.slot, each.epoch) for each in state.members if each.state is SlotState.JOINED
        }
        behind = [each for each in asked if (each.slot, each.epoch) in there]
        if not behind or time.monotonic() > deadline:
            break
    troubles = tuple(_why_still_there(each, timeout) for each in behind)
    slots = tuple(sorted(each.slot for each in asked))
    return Outcome(slots, len(asked) - len(behind), troubles)


def attach(
    path: str | os.PathLike[str] | int,
    members: Collection[int] = (),
    *,
    timeout: float = 10.0,
) -> Outcome:
    """Ask members to use the region again. Arguments and errors are as for detach().

    Without `members` the request includes members that left after leave(). They join again by
    themselves, as new members, and attach() does not wait for them.
    """
    state = inspect(path, patience=0)
    left = {} if members else _those_that_left(state)
    if left:
        _write(path, state.offset, left)
        if not any(each.state is SlotState.JOINED for each in state.members):
            return Outcome((), 0, ())
    return _request_route(path, members, timeout, network=False)


def let_return(path: str | os.PathLike[str] | int, members: Collection[int] = ()) -> None:
    """Revoke leave() for all members that have left, and for `members` (slots) that have not left
    yet.

    Members that have left return by themselves, now or when they have the region's device again.
    Other members are not changed, and let_return() does not wait.
    """
    state = inspect(path, patience=0)
    words = _those_that_left(state)
    for each in state.members:
        if each.slot in members and each.leaving:
            words[each.slot] = each.epoch << 32 | RequestedRoute.RETURN
    if words:
        _write(path, state.offset, words)


def _request_route(
    path: str | os.PathLike[str] | int, slots: Collection[int], timeout: float, *, network: bool
) -> Outcome:
    state = inspect(path, patience=0)
    asked = _choose(state, slots)
    # RETURN instead of REGION: a member that is about to leave may leave at this moment, and must
    # then be able to return.
    requested = RequestedRoute.NETWORK if network else RequestedRoute.RETURN
    words = {each.slot: each.epoch << 32 | requested for each in asked}
    _write(path, state.offset, words)
    named = {member.slot for member in asked}
    deadline = time.monotonic() + timeout
    while True:
        time.sleep(_STEP)
        state = inspect(path, patience=0)
        concerned = [each for each in state.connections if _concerns(state, each, named)]
        behind = [each for each in concerned if not _is_settled(state, each)]
        waits = any(each.route not in (Route.STAYS, Route.ENDED) for each in behind)
        if not waits or time.monotonic() > deadline:
            break
    troubles = [_trouble(state, each, timeout) for each in behind]
    troubles += [
        f"{_name(member)} is dead"
        for member in state.members
        if member.slot in named and member.alive is False
    ]
    moved = len(concerned) - len(behind)
    return Outcome(tuple(sorted(named)), moved, tuple(dict.fromkeys(troubles)))


def _choose(state: RegionState, slots: Collection[int]) -> list[Member]:
    joined = [member for member in state.members if member.state is SlotState.JOINED]
    if not slots:
        if not joined:
            raise VicinalError(f"region {state.path} has no members", "start the job first")
        return joined
    there = {member.slot: member for member in joined}
    for slot in slots:
        if slot not in there:
            raise VicinalError(
                f"there is no member in slot {slot} of region {state.path}",
                f"`vicinal region show {state.path}` lists the members",
            )
    return [there[slot] for slot in slots]


def _write(path: str | os.PathLike[str] | int, offset: int, words: dict[int, int]) -> None:
    fd = open_region(f"/proc/self/fd/{path}" if isinstance(path, int) else path, write=True)
    try:
        _, within = SLOT.fields["requested_route"]
        with mmap.mmap(fd, 0, flags=MAP_WHOLE) as memory, memoryview(memory) as every:
            for slot, word in words.items():
                start = offset + slot_offset(slot) + within
                with every[start : start + 8] as part, part.cast("Q") as target:
                    target[0] = word  # one aligned store: members see the old word or the new word
    finally:
        os.close(fd)


def _those_that_left(state: RegionState) -> dict[int, int]:
    """The words that let members return, by slot, for the members that left after leave()."""
    return {
        each.slot: each.epoch << 32 | RequestedRoute.RETURN
        for each in state.members
        if each.leaving and each.state is not SlotState.JOINED
    }


def _why_still_there(member: Member, seconds: float) -> str:
    if not member.network:
        return (
            f"{_name(member)} has no network address and stays in the region: start its job with "
            "VICINAL_NET unset, or set to the same provider on all hosts"
        )
    if member.alive is False:
        return f"{_name(member)} is dead"
    if member.windows:
        kept = "1 window" if member.windows == 1 else f"{member.windows} windows"
        return (
            f"{_name(member)} has not left the region within {seconds:g} s: {kept} of MPI, or as "
            "many blocks of MPI_Alloc_mem, lie there: free them, or start the job with "
            "VICINAL_WINDOWS=off"
        )
    return (
        f"{_name(member)} has not left the region within {seconds:g} s: the member, another "
        "endpoint of its process or another member is stopped, computes without calling MPI, has "
        "no network address, or has application memory in the region (`--heap`)"
    )


def _concerns(state: RegionState, connection: Connection, slots: Collection[int]) -> bool:
    """Whether a connection joins two living members of which one was asked, except a member with
    itself."""
    sender, receiver = state.member(connection.sender), state.member(connection.receiver)
    return (
        sender is not None
        and receiver is not None
        and sender is not receiver
        and receiver.epoch == connection.receiver_epoch
        and all(
            each.state is SlotState.JOINED and each.alive is not False
            for each in (sender, receiver)
        )
        and (connection.sender in slots or connection.receiver in slots)
    )


def _is_settled(state: RegionState, connection: Connection) -> bool:
    sender, receiver = state.member(connection.sender), state.member(connection.receiver)
    wanted = any(each is not None and each.detached for each in (sender, receiver))
    return connection.route in ((Route.NETWORK, Route.ENDED) if wanted else (Route.REGION,))


def _name(member: Member | None) -> str:
    assert member is not None
    rank = "" if member.rank is None else f" (rank {member.rank})"
    return f"the member in slot {member.slot}{rank}"


def _trouble(state: RegionState, connection: Connection, seconds: float) -> str:
    sender, receiver = state.member(connection.sender), state.member(connection.receiver)
    assert sender is not None
    assert receiver is not None
    if connection.route is Route.ENDED:
        return (
            f"{_name(sender)} and {_name(receiver)} found invalid data in the region and use the "
            "network for the rest of the job: run `vicinal region check` and start the job again"
        )
    if connection.route is Route.STAYS:
        for each in (receiver, sender):
            if not each.network:
                return (
                    f"{_name(each)} has no network address and stays in the region: start its job "
                    "with VICINAL_NET unset, or set to the same provider on all hosts"
                )
        return (
            f"{_name(sender)} cannot reach {_name(receiver)} over the network and stays in the "
            "region: check VICINAL_NET_INTERFACE and the nodes' addresses"
        )
    return (
        f"{_name(sender)} has not moved its messages to {_name(receiver)} within {seconds:g} s: "
        "one of the two is stopped, or computes without calling MPI"
    )


def mark_dead(region: Path, hostname: str) -> list[int]:
    """Declare all members with this host name dead; return their slots.

    Each member writes its own host name, so a guest with a false name harms only itself.
    """
    state = inspect(region, patience=0)
    members = [
        member
        for member in state.members
        if member.hostname == hostname and member.state is not SlotState.FREE
    ]
    first = state.offset + verdicts_offset(state.header.members)
    with (
        region.open("r+b") as file,
        mmap.mmap(file.fileno(), 0, flags=MAP_WHOLE) as memory,
        memoryview(memory) as every,
    ):
        for member in members:
            start = first + member.slot * VERDICT_BYTES
            with every[start : start + VERDICT_BYTES] as part, part.cast("Q") as target:
                # One aligned store: a peer sees the old word or the new word.
                target[0] = member.epoch << 32 | _ENDED
    return [member.slot for member in members]
