"""The ranks of jobs in one machine of a cluster: they leave its region and return to it.

The host names that members wrote into the region say which members are in a machine. These names
need not be true: a member that names another machine is at worst told to leave with that machine.
The machine itself is asked whether any of its processes still has the region mapped.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.guest_ssh import GuestSsh
from vicinal.cluster.nodes.vm.machine import Machine
from vicinal.region import Member, attach, inspect, leave
from vicinal.region.states import SlotState

_POLL_SECONDS = 0.2
_STRANGER_SECONDS = 5.0
"""Time limit for a process that has the region mapped and did not leave it: it may be ending."""

# Processes that have mapped a PCI device's memory. Only the machine's user's processes are visible.
_WHO_HAS_IT = """
for process in /proc/[0-9]*; do
    grep -q '/resource2' "$process/maps" 2>/dev/null || continue
    echo "${process#/proc/} $(tr '\\0' ' ' <"$process/cmdline")"
done
true
"""


# Processes that still live, and whether this user may use a region's device.
_LOOK = """
for process in "$@"; do [ ! -d "/proc/$process" ] || echo "lives $process"; done
for device in /sys/bus/pci/devices/*; do
    [ "$(cat "$device/vendor" "$device/device" | tr '\\n' ' ')" = '0x1af4 0x1110 ' ] || continue
    echo there
    [ ! -r "$device/resource2" ] || [ ! -w "$device/resource2" ] || echo usable
done
"""

Endpoint = tuple[int, int]
"""An endpoint of a rank: the process number in its machine, and the endpoint's index."""


@dataclass(frozen=True)
class Return:
    """Where endpoints of ranks are that should return to a region."""

    back: int
    """Number of endpoints in the region."""
    out: int
    """Number of endpoints that use the network. Endpoints of ended processes count in neither."""
    why: str = ""
    """Cause and remedy, if any endpoint uses the network."""


def members_in(machine: Machine) -> list[Member]:
    """The members of the machine's region whose host name is this machine's."""
    path = region_of(machine)
    if path is None:
        return []
    return [
        member
        for member in inspect(path, patience=0).members
        if member.state is SlotState.JOINED and member.hostname == machine.name
    ]


def send_out(machine: Machine, *, seconds: float) -> tuple[Endpoint, ...]:
    """Make all ranks in a machine leave its region and use the network; returns their endpoints.

    Afterwards no process in the machine has the region mapped. Raises VicinalError if a rank stays,
    because it has no network or makes no progress. call_back() undoes this, also after an error.
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
                "move the machine afterwards",
            )
    _check_unmapped(machine, {str(member.pid) for member in out}, seconds)
    return tuple((member.pid, member.endpoint) for member in out)


def call_back(machine: Machine) -> None:
    """Let ranks that left the machine's region return, now or when the machine has it again."""
    path = region_of(machine)
    if path is None:
        return
    members = inspect(path, patience=0).members
    if any(each.leaving or each.state is SlotState.JOINED for each in members):
        attach(path, timeout=0)


def await_back(machine: Machine, whom: Collection[Endpoint], *, seconds: float) -> Return:
    """Wait until endpoints that left another region are in the machine's, or find out why not."""
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
    """The path of the machine's region on this host; None without a region."""
    return None if machine.region is None else Path("/dev/shm") / machine.region


def _check_unmapped(machine: Machine, left: Collection[str], seconds: float) -> None:
    """Raise VicinalError if a process in the machine would lose memory that it uses.

    Ranks that left the region unmap it next. A slow machine gets `seconds` for this.
    """
    guest = GuestSsh(machine)
    guest.enter()
    began = time.monotonic()
    while have := guest.run(["sh", "-c", _WHO_HAS_IT]).stdout.splitlines():
        processes = dict(line.partition(" ")[::2] for line in have)
        waited = time.monotonic() - began
        strangers = processes.keys() - left
        if strangers and waited > _STRANGER_SECONDS:
            number = min(strangers)
            raise VicinalError(
                f"the process {number} in {machine.name} has mapped its region, and is not a rank "
                f"that could leave it: {processes[number].strip()[:60]}",
                "wait until it ends, or end it",
            )
        if waited > seconds:
            number = min(processes)
            raise VicinalError(
                f"the process {number} in {machine.name} left its region, and still has it mapped "
                f"after {waited:.0f} s: {processes[number].strip()[:60]}",
                "check whether the process is stopped, and continue it",
            )
        time.sleep(_POLL_SECONDS)


def _why_out(machine: Machine, out: Collection[Endpoint], seconds: float) -> str:
    """Why endpoints are not in the machine's region; "" if their processes have ended."""
    guest = GuestSsh(machine)
    guest.enter()
    processes = sorted({str(process) for process, _ in out})
    found = guest.run(["sh", "-c", _LOOK, "sh", *processes]).stdout.splitlines()
    if not any(line.startswith("lives ") for line in found):
        return ""
    if "there" not in found:
        return (
            f"the guest {machine.name} does not see the region's device: see its kernel's messages "
            "(dmesg); its ranks use the device when it appears"
        )
    if "usable" not in found:
        return (
            f"the guest {machine.name} does not let its users open the region's device: check "
            "whether udevd runs there; its ranks use the device when they may open it"
        )
    path = region_of(machine)
    assert path is not None
    state = inspect(path)
    taken = (SlotState.CLAIMED, SlotState.JOINED, SlotState.HELD)
    if sum(each.state in taken and each.alive is not False for each in state.members) >= (
        state.header.members
    ):
        return (
            f"the region there is full, with room for {state.header.members} endpoints: raise "
            "region.members; the ranks join when others leave"
        )
    return (
        f"they have not joined it within {seconds:g} s: ranks join when they call MPI; see the "
        "job's standard error for other causes"
    )
