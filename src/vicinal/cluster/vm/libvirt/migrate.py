"""Moving a domain from one libvirt to another while its guest runs.

A host's region and functions stay on the host. The guest gives them up before the move, and
afterwards gets those of the other host. If any step fails, the domain ends up where it was, with
its former devices.
"""

import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from queue import Empty, Queue
from threading import Thread

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.devices import PciFunction
from vicinal.cluster.vm.libvirt.binding import explained, libvirt
from vicinal.cluster.vm.libvirt.domain_devices import (
    attach_pci_function,
    attach_region,
    await_removal,
    detach_pci_function,
    detach_region,
    has_pci_function,
    has_region,
)
from vicinal.cluster.vm.libvirt.domain_xml import is_emulated
from vicinal.cluster.vm.libvirt.lifecycle import (
    DomainState,
    check_region_may_leave,
    lookup,
    observe,
    ours,
    remove,
    resume,
)
from vicinal.cluster.vm.libvirt.side import Side, described_for

_FLAGS = (
    libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
)
_SECURE = libvirt.VIR_DOMAIN_XML_SECURE
_COMPLETED = libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED
_ABORT_SECONDS = 60.0
_LEFTOVER_SECONDS = 10.0
"""Time for libvirt to end an incoming domain whose sender has ended."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Moved:
    """The durations of a move."""

    seconds: float
    """From the first detached device to the last attached device."""
    still_seconds: float | None
    """Time during which the guest was paused, as libvirt reports it; None: not reported.

    An emulated guest is paused while its memory is copied.
    """


def migrate(name: str, here: Side, there: Side, *, seconds: float = 300.0) -> Moved:
    """Move a running domain, with its definition, from `here` to `there`.

    The guest's ranks must have left the region for the network. The region of the other side is
    another region, and its file must exist. End connections through the virtio port first too.

    Raises VicinalError if the move fails, or if releasing a device or the move takes longer than
    `seconds`. The domain then runs on `here` and gets its devices back, unless its guest did not
    release them in time. The same holds if the move is interrupted.
    """
    domain = ours(here.hypervisor, name)
    check_region_may_leave(domain.XMLDesc(), f"{name} cannot be moved")
    if lookup(there.hypervisor, name) is not None:
        raise VicinalError(
            f"a domain {name} exists at {there.hypervisor.uri} already",
            "remove it, or choose another host",
        )
    home = _as_it_is(name, here)
    away = there if home.region is not None else replace(there, region=None)
    began = time.monotonic()
    with ExitStack() as undo:
        undo.callback(_bring_home, name, home, away, seconds)
        _take(name, home, seconds)
        _move(name, here, there, seconds)
        give(name, away)
        undo.pop_all()
    return Moved(time.monotonic() - began, _still_seconds(name, away))


def settle(name: str, home: Side, away: Side) -> Side | None:
    """The side that a domain is on, after a move that ended at an unknown point.

    The domain runs there, but may lack its devices, and is removed from the other side. None: it is
    on neither side. Not for a domain that its owner paused.
    """
    deadline = time.monotonic() + _LEFTOVER_SECONDS
    while True:
        states = [observe(side.hypervisor, name) for side in (home, away)]
        match states:
            case [DomainState.ABSENT, DomainState.ABSENT]:
                return None
            case [_, DomainState.ABSENT]:
                resume(home.hypervisor, name)  # it is paused if only the last part was missing
                return home
            case [DomainState.ABSENT, _]:
                resume(away.hypervisor, name)
                return away
            case [_, DomainState.RUNNING]:
                remove(home.hypervisor, name)
                return away
        # The incoming domain is incomplete, and never ran.
        if time.monotonic() > deadline:
            remove(away.hypervisor, name)
        time.sleep(_POLL_SECONDS)


def _as_it_is(name: str, side: Side) -> Side:
    """The side with only those devices that the domain has."""
    region = side.region
    if region is not None and not has_region(side.hypervisor, name, region.name):
        region = None
    missing = _lacking(name, side)
    if missing:
        raise VicinalError(f"{name} has no function {missing[0].address}", "see `vicinal vf list`")
    return replace(side, region=region)


def _bring_home(name: str, home: Side, away: Side, seconds: float) -> None:
    with suppress(VicinalError):  # the first error is the one to report
        if settle(name, home, away) is away:
            _take(name, away, seconds)
            _move(name, away, home, seconds)
        give(name, home)


def _take(name: str, side: Side, seconds: float) -> None:
    for function in side.pci_functions:
        detach_pci_function(side.hypervisor, name, function, seconds=seconds)
    if side.pci_functions:
        side.withdraw()
    if side.region is not None:
        detach_region(side.hypervisor, name, side.region.name, seconds=seconds)


def give(name: str, side: Side) -> None:
    """Attach a side's devices that a domain on this side lacks."""
    if observe(side.hypervisor, name) is not DomainState.RUNNING:
        return  # it gets its devices when it starts
    await_removal(side.hypervisor, name)
    if side.region is not None:
        attach_region(side.hypervisor, name, side.region)
    if _lacking(name, side):
        side.announce()
    for function in side.pci_functions:
        attach_pci_function(side.hypervisor, name, function)


def is_whole(name: str, side: Side) -> bool:
    """Whether a domain is on a side and, if it runs, has all devices of this side."""
    state = observe(side.hypervisor, name)
    if state is not DomainState.RUNNING:
        return state is not DomainState.ABSENT  # it gets its devices when it starts
    if side.region is not None and not has_region(side.hypervisor, name, side.region.name):
        return False
    return not _lacking(name, side)


def _lacking(name: str, side: Side) -> list[PciFunction]:
    """The functions of a side that the running domain does not have."""
    return [
        each for each in side.pci_functions if not has_pci_function(side.hypervisor, name, each)
    ]


def flags_for(xml: str) -> int:
    """libvirt's flags for moving the domain with this XML.

    An emulated domain (TCG) is paused during the move, because its writes while QEMU copies its
    memory may be lost. QEMU up to 8.2 does not always notice such a write, and the authors of the
    correction in 9.0 suspected further cases. A program then finds its stack corrupted, or the
    kernel its lists.
    """
    return _FLAGS if is_emulated(xml) else _FLAGS | libvirt.VIR_MIGRATE_LIVE


def _move(name: str, here: Side, there: Side, seconds: float) -> None:
    """Do the move in a thread, because libvirt's call does not react to signals."""
    domain = ours(here.hypervisor, name)
    with explained(f"the domain {name} cannot be read"):
        live = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE | _SECURE)
        kept = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | _SECURE)
    flags = flags_for(live)
    parameters = {
        libvirt.VIR_MIGRATE_PARAM_DEST_XML: described_for(live, here, there),
        libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: described_for(kept, here, there),
    }
    if there.transport is not None:
        parameters[libvirt.VIR_MIGRATE_PARAM_URI] = there.transport
    outcome: Queue[libvirt.libvirtError | None] = Queue()

    def work() -> None:
        try:
            # The annotation declares the parameters as str.
            domain.migrate3(there.hypervisor.connection, parameters, flags)  # type: ignore[arg-type]
        except libvirt.libvirtError as error:
            outcome.put(error)
        else:
            outcome.put(None)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        error = outcome.get(timeout=seconds)
    except Empty:
        if _abort(domain, thread) and outcome.get_nowait() is None:
            return  # it completed at the last moment
        raise VicinalError(
            f"the domain {name} was not moved to {there.hypervisor.uri} within {seconds:g} s",
            "allow more time, or let its guest write less memory during the move",
        ) from None
    except BaseException:
        _abort(domain, thread)
        raise
    if error is not None:
        with explained(f"the domain {name} cannot be moved to {there.hypervisor.uri}"):
            raise error


def _abort(domain: "libvirt.virDomain", thread: Thread) -> bool:
    """Abort a move; returns whether it has ended, by completion or abort."""
    deadline = time.monotonic() + _ABORT_SECONDS
    while thread.is_alive() and time.monotonic() < deadline:
        with suppress(libvirt.libvirtError):  # the move has not begun, or has just ended
            domain.abortJob()
        thread.join(_POLL_SECONDS)
    return not thread.is_alive()


def _still_seconds(name: str, side: Side) -> float | None:
    with suppress(libvirt.libvirtError):
        domain = ours(side.hypervisor, name)
        # The annotation declares the result as str.
        found: dict[str, int] = domain.jobStats(_COMPLETED)  # type: ignore[assignment]
        if libvirt.VIR_DOMAIN_JOB_DOWNTIME in found:
            return int(found[libvirt.VIR_DOMAIN_JOB_DOWNTIME]) / 1000
    return None
