"""Asking members of a region to reach each other over the network for a while, and back.

The region has a word for each member slot that only its manager writes: whether its member is to
be reached over the network. The member and its peers look at it some twenty times a second, move
each direction by itself, and say in their connection lines how what they send goes.

The manager also tells members that a guest ended, the moment it does. A guest that dies says no
farewell, and its peers would find out by its silence, after VICINAL_PEER_TIMEOUT. The region has a
second word for each member slot that only the manager writes, for this verdict.
"""

import mmap
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.region.geometry import VERDICT_BYTES, slot_offset, verdicts_offset
from vicinal.region.inspection import Connection, Member, RegionState, inspect
from vicinal.region.records import SLOT
from vicinal.region.states import RequestedRoute, Route, SlotState

_ENDED = 1
_STEP = 0.02
"""Seconds between two looks at what members say."""


@dataclass(frozen=True)
class Outcome:
    """What became of such a wish."""

    members: tuple[int, ...]
    """Slots of the members that it was about."""
    moved: int
    """Connections that go the way they were to go; each direction of a pair is one."""
    troubles: tuple[str, ...]
    """Why others do not, a line each."""


def detach(
    path: str | os.PathLike[str] | int,
    members: Collection[int] = (),
    *,
    timeout: float = 10.0,
) -> Outcome:
    """Have members (by slot; all if none are named) be reached over the network, and wait for it.

    Raises VicinalError where the region cannot be written, or has no such member. `timeout` is in
    seconds; who has not moved by then is in the outcome, and may do so later.
    """
    return _wish(path, members, timeout, network=True)


def leave(
    path: str | os.PathLike[str] | int,
    members: Collection[int] = (),
    *,
    timeout: float = 10.0,
) -> Outcome:
    """Have members be reached over the network, and leave the region; wait until they have.

    Their processes have nothing of the region any more then: its device can be taken away from
    them. They look for another region in its place, about once a second; for this one, from
    attach() on. As detach(), but what has `moved` are members, whose slots are free.
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
    """The way back: have members be reached through the region. As detach().

    Without `members` it is also about those that were to leave(), and have: they come back by
    themselves, as other members, which is not waited for.
    """
    state = inspect(path, patience=0)
    left = {} if members else _those_that_left(state)
    if left:
        _write(path, state.offset, left)
        if not any(each.state is SlotState.JOINED for each in state.members):
            return Outcome((), 0, ())
    return _wish(path, members, timeout, network=False)


def let_return(path: str | os.PathLike[str] | int, members: Collection[int] = ()) -> None:
    """Take leave() back: of who has left, and of those `members` (slots) that have not yet.

    Who has left comes back by itself, now or when it has the region's device again. Others are left
    alone, and nothing is waited for.
    """
    state = inspect(path, patience=0)
    words = _those_that_left(state)
    for each in state.members:
        if each.slot in members and each.leaving:
            words[each.slot] = each.epoch << 32 | RequestedRoute.RETURN
    if words:
        _write(path, state.offset, words)


def _wish(
    path: str | os.PathLike[str] | int, slots: Collection[int], timeout: float, *, network: bool
) -> Outcome:
    state = inspect(path, patience=0)
    asked = _choose(state, slots)
    # One that is about to leave may do so just now: others must find out where it went.
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
            raise VicinalError(f"nobody is in region {state.path}", "start the job first")
        return joined
    there = {member.slot: member for member in joined}
    for slot in slots:
        if slot not in there:
            raise VicinalError(
                f"there is no member in slot {slot} of region {state.path}",
                f"`vicinal region show {state.path}` lists them",
            )
    return [there[slot] for slot in slots]


def _write(path: str | os.PathLike[str] | int, offset: int, words: dict[int, int]) -> None:
    try:
        fd = os.open(
            f"/proc/self/fd/{path}" if isinstance(path, int) else path, os.O_RDWR | os.O_CLOEXEC
        )
    except OSError as error:
        raise VicinalError(
            f"cannot write region {path}: {describe_os_error(error)}",
            "run as the user it belongs to",
        ) from error
    try:
        _, within = SLOT.fields["requested_route"]
        with mmap.mmap(fd, 0) as memory, memoryview(memory) as every:
            for slot, word in words.items():
                start = offset + slot_offset(slot) + within
                with every[start : start + 8] as part, part.cast("Q") as place:
                    place[0] = word  # one aligned store: members see all of it or nothing
    finally:
        os.close(fd)


def _those_that_left(state: RegionState) -> dict[int, int]:
    """What to write into the words of slots whose member was to leave, and has."""
    return {
        each.slot: each.epoch << 32 | RequestedRoute.RETURN
        for each in state.members
        if each.leaving and each.state is not SlotState.JOINED
    }


def _why_still_there(member: Member, seconds: float) -> str:
    if not member.network:
        return (
            f"{_name(member)} is in no network and stays in the region: start it with "
            "VICINAL_NET unset, or set to the same provider everywhere"
        )
    if member.alive is False:
        return f"{_name(member)} is dead"
    return (
        f"{_name(member)} has not left the region within {seconds:g} s: it, another endpoint of "
        "its process or another member makes no progress (stopped, or computing without a call of "
        "MPI), is in no network, or its application has memory in the region (`--heap`)"
    )


def _concerns(state: RegionState, connection: Connection, slots: Collection[int]) -> bool:
    """Is it between two that are there, and one of them meant? What one says to itself stays."""
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
            f"{_name(sender)} and {_name(receiver)} found in the region what cannot be and use the "
            "network for good: run `vicinal region check` and start the job again"
        )
    if connection.route is Route.STAYS:
        for each in (receiver, sender):
            if not each.network:
                return (
                    f"{_name(each)} is in no network and stays in the region: start it with "
                    "VICINAL_NET unset, or set to the same provider everywhere"
                )
        return (
            f"{_name(sender)} does not reach {_name(receiver)} over the network and stays in the "
            "region: check VICINAL_NET_INTERFACE and the nodes' addresses"
        )
    return (
        f"{_name(sender)} has not moved what it sends to {_name(receiver)} within {seconds:g} s: "
        "one of them makes no progress (stopped, or computing without a call of MPI)"
    )


def condemn(region: Path, hostname: str) -> list[int]:
    """Declare all members that call themselves `hostname` dead; return their slots.

    The name is what a member wrote, so a guest that lies harms itself and nobody else.
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
        mmap.mmap(file.fileno(), 0) as memory,
        memoryview(memory) as every,
    ):
        for member in members:
            start = first + member.slot * VERDICT_BYTES
            with every[start : start + VERDICT_BYTES] as part, part.cast("Q") as place:
                # One aligned store: a peer sees all of it or nothing.
                place[0] = member.epoch << 32 | _ENDED
    return [member.slot for member in members]
