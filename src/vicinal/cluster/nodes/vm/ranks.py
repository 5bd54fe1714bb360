"""The ranks of jobs in one VM of a cluster: they leave its region and return to it.

The host names that members wrote into the region say which members are in a VM. These names
need not be true: a member that names another VM is at worst told to leave with that VM.
The VM itself is asked whether any of its processes still has the region mapped.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.vm.guest_ssh import GuestSsh
from vicinal.cluster.nodes.vm.vm import Vm
from vicinal.region import Member, attach, inspect, leave
from vicinal.region.states import SlotState

_POLL_SECONDS = 0.2
_STRANGER_SECONDS = 5.0
"""Time limit for a process that has the region mapped and did not leave it: it may be ending."""

# Processes that have mapped a PCI device's memory. Only the VM's user's processes are visible.
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
"""An endpoint of a rank: the process number in its VM, and the endpoint's index."""


@dataclass(frozen=True)
class Return:
    """Where endpoints of ranks are that should return to a region."""

    back: int
    """Number of endpoints in the region."""
    out: int
    """Number of endpoints that use the network. Endpoints of ended processes count in neither."""
    why: str = ""
    """Cause and remedy, if any endpoint uses the network."""


def members_in(vm: Vm) -> list[Member]:
    """The members of the VM's region whose host name is this VM's."""
    path = region_of(vm)
    if path is None:
        return []
    return [
        member
        for member in inspect(path, patience=0).members
        if member.state is SlotState.JOINED and member.hostname == vm.name
    ]


def send_out(vm: Vm, *, seconds: float) -> tuple[Endpoint, ...]:
    """Make all ranks in a VM leave its region and use the network; returns their endpoints.

    Afterwards no process in the VM has the region mapped. Raises VicinalError if a rank stays,
    because it has no network or makes no progress. call_back() undoes this, also after an error.
    """
    path = region_of(vm)
    if path is None:
        return ()
    out = members_in(vm)
    if out:
        outcome = leave(path, [member.slot for member in out], timeout=seconds)
        if outcome.troubles:
            raise VicinalError(
                f"not all ranks in {vm.name} leave its region: {outcome.troubles[0]}",
                "move the VM afterwards",
            )
    _check_unmapped(vm, {str(member.pid) for member in out}, seconds)
    return tuple((member.pid, member.endpoint) for member in out)


def call_back(vm: Vm) -> None:
    """Let ranks that left the VM's region return, now or when the VM has it again."""
    path = region_of(vm)
    if path is None:
        return
    members = inspect(path, patience=0).members
    if any(each.leaving or each.state is SlotState.JOINED for each in members):
        attach(path, timeout=0)


def await_back(vm: Vm, whom: Collection[Endpoint], *, seconds: float) -> Return:
    """Wait until endpoints that left another region are in the VM's, or find out why not."""
    deadline = time.monotonic() + seconds
    while True:
        there = {(member.pid, member.endpoint) for member in members_in(vm)}
        out = set(whom) - there
        if not out or time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    why = _why_out(vm, out, seconds) if out else ""
    return Return(len(whom) - len(out), len(out) if why else 0, why)


def region_of(vm: Vm) -> Path | None:
    """The path of the VM's region on this host; None without a region."""
    return None if vm.region is None else Path("/dev/shm") / vm.region


def _check_unmapped(vm: Vm, left: Collection[str], seconds: float) -> None:
    """Raise VicinalError if a process in the VM would lose memory that it uses.

    Ranks that left the region unmap it next. A slow VM gets `seconds` for this.
    """
    guest = GuestSsh(vm)
    guest.enter()
    began = time.monotonic()
    while have := guest.run(["sh", "-c", _WHO_HAS_IT]).stdout.splitlines():
        processes = dict(line.partition(" ")[::2] for line in have)
        waited = time.monotonic() - began
        strangers = processes.keys() - left
        if strangers and waited > _STRANGER_SECONDS:
            number = min(strangers)
            raise VicinalError(
                f"the process {number} in {vm.name} has mapped its region, and is not a rank "
                f"that could leave it: {processes[number].strip()[:60]}",
                "wait until it ends, or end it",
            )
        if waited > seconds:
            number = min(processes)
            raise VicinalError(
                f"the process {number} in {vm.name} left its region, and still has it mapped "
                f"after {waited:.0f} s: {processes[number].strip()[:60]}",
                "check whether the process is stopped, and continue it",
            )
        time.sleep(_POLL_SECONDS)


def _why_out(vm: Vm, out: Collection[Endpoint], seconds: float) -> str:
    """Why endpoints are not in the VM's region; "" if their processes have ended."""
    guest = GuestSsh(vm)
    guest.enter()
    processes = sorted({str(process) for process, _ in out})
    found = guest.run(["sh", "-c", _LOOK, "sh", *processes]).stdout.splitlines()
    if not any(line.startswith("lives ") for line in found):
        return ""
    if "there" not in found:
        return (
            f"the guest {vm.name} does not see the region's device: see its kernel's messages "
            "(dmesg); its ranks use the device when it appears"
        )
    if "usable" not in found:
        return (
            f"the guest {vm.name} does not let its users open the region's device: check "
            "whether udevd runs there; its ranks use the device when they may open it"
        )
    path = region_of(vm)
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
