"""The ranks in one VM leave the region of their job, and may come back: asked through its file.

The region has a word for each member that only the host's manager writes (region/detaching.py). So
nothing has to be asked in the guest, into which OpenNebula's drivers have no way. Whose ranks they
are shows by their hearts: members in VMs count ten times a second, and those of a VM that stands
still do not. A host name would say less, since VMs of one image may all have the same.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.region.detaching import leave, let_return
from vicinal.region.inspection import inspect
from vicinal.region.states import Liveness, SlotState

LEAVE_SECONDS = 60.0
"""For ranks to leave: they do when they call MPI."""
_HEART_SECONDS = 1.0
"""So long a heart is listened to, in which it beats ten times."""


@contextmanager
def ranks_out(
    region: Path, still: Callable[[], AbstractContextManager[None]] | None, name: str
) -> Iterator[int]:
    """Have the ranks of one VM leave a region; gives how many did, and they stay out.

    `still` has the VM stand still meanwhile; None: all members are this VM's. If what is within
    fails, or a rank does not leave, they may come back. Raises VicinalError.
    """
    slots = _slots_in(region, still)
    try:
        if slots:
            outcome = leave(region, slots, timeout=LEAVE_SECONDS)
            if outcome.troubles:
                raise VicinalError(
                    f"not all ranks in {name} leave the region: {outcome.troubles[0]}",
                    "let the job end, or try again later",
                )
        yield len(slots)
    except BaseException:
        let_return(region, slots)
        raise


def ranks_may_return(region: Path) -> None:
    """Let those that left a region come back to it."""
    let_return(region)


def _slots_in(region: Path, still: Callable[[], AbstractContextManager[None]] | None) -> list[int]:
    """Slots of the members in one VM that live.

    Who is silent all the time is dead or stopped, and could not leave. If it goes on one day, it
    finds that its region's device is gone, and talks over the network.
    """
    alive = _beating(region)
    if alive and still is not None:
        with still():
            alive -= _beating(region)
    return sorted(slot for slot, _ in alive)


def _beating(region: Path) -> set[tuple[int, int]]:
    """Slots and epochs of those whose hearts beat now."""
    return {
        (member.slot, member.epoch)
        for member in inspect(region, patience=_HEART_SECONDS).members
        if member.state is SlotState.JOINED
        and member.liveness == Liveness.HEARTBEAT
        and member.alive
    }
