"""The ranks of jobs in one machine of a cluster, which leave its region and come back to it.

Which members of a region are in a machine is said by the host names that they wrote there. Nobody
has to believe that: who names another machine is at worst told to leave with that one, and whether
anybody in the machine still has the region is asked in the machine itself.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.cluster.nodes.vm.way_in import WayIn
from vicinal.region import Member, attach, inspect, leave
from vicinal.region.states import SlotState

_POLL_SECONDS = 0.2
_STRANGER_SECONDS = 5.0
"""For a process that has the region, and is none of those who left: it may be about to end."""

# Who has mapped a PCI device's memory; those of other users than the machine's are not seen.
_WHO_HAS_IT = """
for process in /proc/[0-9]*; do
    grep -q '/resource2' "$process/maps" 2>/dev/null || continue
    echo "${process#/proc/} $(tr '\\0' ' ' <"$process/cmdline")"
done
true
"""


# Who of the processes lives yet, and whether this user may use a device of a region.
_LOOK = """
for process in "$@"; do [ ! -d "/proc/$process" ] || echo "lives $process"; done
for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" "$device/device" | tr '\\n' ' ')" = '0x1af4 0x1110 ' ] || continue
    echo there
    [ ! -r "$device/resource2" ] || [ ! -w "$device/resource2" ] || echo usable
done
"""

Endpoint = tuple[int, int]
"""Of a rank: its process, by the number that it has in its machine, and which of its endpoints."""


@dataclass(frozen=True)
class Return:
    """What became of the endpoints of ranks that were to come back to a region."""

    back: int
    """So many are in it."""
    out: int
    """So many talk over the network; those of processes that ended meanwhile are neither."""
    why: str = ""
    """If any do: the cause, and the remedy."""


def members_in(machine: Machine) -> list[Member]:
    """The members of the machine's region that say that they are in it."""
    path = region_of(machine)
    if path is None:
        return []
    return [
        member
        for member in inspect(path, patience=0).members
        if member.state is SlotState.JOINED and member.hostname == machine.name
    ]


def send_out(machine: Machine, *, seconds: float) -> tuple[Endpoint, ...]:
    """Have all ranks in a machine leave its region and talk over the network; returns who did.

    When this returns nobody in the machine has the region. Raises VicinalError where one stays: it
    is in no network, or makes no progress. call_back() takes it back then, too.
    """
    path = region_of(machine)
    if path is None:
        return ()
    out = members_in(machine)
    if out:
        outcome = leave(path, [member.slot for member in out], timeout=seconds)
        if outcome.troubles:
            raise VicinalError(
                f"not all ranks in {machine.name} leave its region: {outcome.troubles[0]}",
                "then it can be moved",
            )
    _check_unmapped(machine, {str(member.pid) for member in out}, seconds)
    return tuple((member.pid, member.endpoint) for member in out)


def call_back(machine: Machine) -> None:
    """Let ranks that left the region of a machine come back, now or when it has that again."""
    path = region_of(machine)
    if path is None:
        return
    members = inspect(path, patience=0).members
    if any(each.leaving or each.state is SlotState.JOINED for each in members):
        attach(path, timeout=0)


def await_back(machine: Machine, whom: Collection[Endpoint], *, seconds: float) -> Return:
    """Wait until those that left another region are in the machine's; and if not, find out why."""
    deadline = time.monotonic() + seconds
    while True:
        there = {(member.pid, member.endpoint) for member in members_in(machine)}
        out = set(whom) - there
        if not out or time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    why = _why_out(machine, out, seconds) if out else ""
    return Return(len(whom) - len(out), len(out) if why else 0, why)


def region_of(machine: Machine) -> Path | None:
    """The file of its region on this host."""
    return None if machine.region is None else Path("/dev/shm") / machine.region


def _check_unmapped(machine: Machine, left: Collection[str], seconds: float) -> None:
    """Raise VicinalError for a process in the machine that would lose memory which it uses.

    Those that left the region unmap it next, however slow their machine is: they have `seconds`.
    """
    guest = WayIn(machine)
    guest.enter()
    began = time.monotonic()
    while have := guest.run(["sh", "-c", _WHO_HAS_IT]).stdout.splitlines():
        processes = dict(line.partition(" ")[::2] for line in have)
        waited = time.monotonic() - began
        strangers = processes.keys() - left
        if strangers and waited > _STRANGER_SECONDS:
            number = min(strangers)
            raise VicinalError(
                f"the process {number} in {machine.name} has its region, and is no rank that could "
                f"leave it: {processes[number].strip()[:60]}",
                "wait for its end, or end it",
            )
        if waited > seconds:
            number = min(processes)
            raise VicinalError(
                f"the process {number} in {machine.name} left its region, and still has it mapped "
                f"after {waited:.0f} s: {processes[number].strip()[:60]}",
                "see whether it is stopped, and let it go on",
            )
        time.sleep(_POLL_SECONDS)


def _why_out(machine: Machine, out: Collection[Endpoint], seconds: float) -> str:
    """Why endpoints are not in the machine's region; nothing where their processes have ended."""
    guest = WayIn(machine)
    guest.enter()
    processes = sorted({str(process) for process, _ in out})
    found = guest.run(["sh", "-c", _LOOK, "sh", *processes]).stdout.splitlines()
    if not any(line.startswith("lives ") for line in found):
        return ""
    if "there" not in found:
        return (
            f"the guest {machine.name} does not see the region's device: see its kernel's messages "
            "(dmesg); its ranks find the device when it is there"
        )
    if "usable" not in found:
        return (
            f"the guest {machine.name} does not let its users open the region's device: see "
            "whether udevd runs there; its ranks find the device when they may open it"
        )
    path = region_of(machine)
    assert path is not None
    state = inspect(path)
    taken = (SlotState.CLAIMED, SlotState.JOINED, SlotState.HELD)
    if sum(each.state in taken and each.alive is not False for each in state.members) >= (
        state.header.members
    ):
        return (
            f"the region there is full, it has room for {state.header.members} endpoints: let "
            "region.members be more; they join when others leave"
        )
    return (
        f"they have not joined it within {seconds:g} s: they do so when they call MPI; what else "
        "keeps them away is on the job's standard error"
    )
