"""Moving a domain from one libvirt to another while its guest runs."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from vicinal.cluster.domains.binding import explained, libvirt
from vicinal.cluster.domains.connection import Hypervisor
from vicinal.cluster.domains.domain_devices import attach_region, detach_region, has_region
from vicinal.cluster.domains.domain_spec import SharedRegion
from vicinal.cluster.domains.lifecycle import lookup, ours
from vicinal.errors import VicinalError

_FLAGS = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
)
_SECURE = libvirt.VIR_DOMAIN_XML_SECURE


@dataclass(frozen=True)
class Move:
    """How a domain gets to another libvirt."""

    transport: str | None = None
    """Where the target's QEMU listens: tcp://HOST, or unix:///PATH on the same host; None: libvirt
    chooses, by the target's host name."""
    paths: Mapping[Path, Path] = field(default_factory=dict)
    """Files of the definition that are elsewhere there: the console, sockets."""


def migrate(
    source: Hypervisor,
    target: Hypervisor,
    name: str,
    move: Move,
    *,
    region: SharedRegion | None = None,
    seconds: float = 300.0,
) -> None:
    """Move a running domain, with its definition, from `source` to `target`.

    A region is not memory of this guest alone: it is detached before and attached afterwards, the
    target's file of that name, which must be there; the guest's ranks must have left it for the
    network. Close connections by the virtio port too. Raises VicinalError where it does not work,
    or where letting go of the region or the move takes longer than `seconds`; the domain then runs
    on at `source` and gets its region back, unless its guest had not let go of it in time.
    """
    domain = ours(source, name)
    if lookup(target, name) is not None:
        raise VicinalError(
            f"there is a domain {name} at {target.uri} already", "remove it, or choose another host"
        )
    had = region is not None and has_region(source, name, region.name)
    try:
        if region is not None:
            detach_region(source, name, region.name, seconds=seconds)
        _move(domain, target, name, move, seconds)
    except BaseException:
        if region is not None and had:
            with suppress(VicinalError):  # what went wrong first is what is to be said
                attach_region(source, name, region)
        raise
    if region is not None and had:
        attach_region(target, name, region)


def _move(
    domain: "libvirt.virDomain", target: Hypervisor, name: str, move: Move, seconds: float
) -> None:
    over = threading.Event()

    def abort() -> None:
        over.set()
        with suppress(libvirt.libvirtError):
            domain.abortJob()

    timer = threading.Timer(seconds, abort)
    timer.start()
    try:
        with explained(f"the domain {name} cannot be moved to {target.uri}"):
            live = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE | _SECURE)
            kept = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | _SECURE)
            parameters = {
                libvirt.VIR_MIGRATE_PARAM_DEST_XML: _elsewhere(live, move.paths),
                libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: _elsewhere(kept, move.paths),
            }
            if move.transport is not None:
                parameters[libvirt.VIR_MIGRATE_PARAM_URI] = move.transport
            try:
                # The annotation takes the parameters for text.
                domain.migrate3(target.connection, parameters, _FLAGS)  # type: ignore[arg-type]
            except libvirt.libvirtError as error:
                if not over.is_set():
                    raise
                raise VicinalError(
                    f"the domain {name} was not moved to {target.uri} within {seconds:g} s",
                    "allow it more time, or let its guest write less memory meanwhile",
                ) from error
    finally:
        timer.cancel()


def _elsewhere(xml: str, paths: Mapping[Path, Path]) -> str:
    """A definition with paths exchanged, in attributes, texts and QEMU's arguments."""
    domain = ElementTree.fromstring(xml)
    # Longer ones first: one may be the beginning of another.
    pairs = sorted(((str(a), str(b)) for a, b in paths.items()), key=lambda pair: -len(pair[0]))
    for element in domain.iter():
        for old, new in pairs:
            if element.text == old:
                element.text = new
            for key, value in element.attrib.items():
                if value == old or (key == "value" and f"={old}" in value):
                    element.set(key, value.replace(old, new))
    return ElementTree.tostring(domain, encoding="unicode")
