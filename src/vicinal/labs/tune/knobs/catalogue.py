"""All knobs of a host, and one knob by its name.

Knobs are in the order in which a setting is applied: a new number of queues resets the affinity of
their interrupts, and may reset their moderation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.base.errors import VicinalError
from vicinal.labs.tune.knobs import channels, coalescing, interrupts, rdma
from vicinal.labs.tune.knobs.channels import ChannelsKnob
from vicinal.labs.tune.knobs.coalescing import CoalescingKnob
from vicinal.labs.tune.knobs.host import HostKnob, TunedHost
from vicinal.labs.tune.knobs.interrupts import AffinityKnob, interrupts_of
from vicinal.labs.tune.knobs.netlink import RefusedError
from vicinal.labs.tune.knobs.network import Link
from vicinal.labs.tune.knobs.rdma import RdmaModerationKnob, rdma_devices


@dataclass(frozen=True)
class Device:
    """A network interface or an RDMA device, with its knobs."""

    name: str
    knobs: tuple[HostKnob, ...]
    lacks: tuple[str, ...]
    """Kinds of knobs that the device lacks, as phrases."""
    missing: tuple[str, ...] = ()
    """Parts of interrupt moderation that its driver lacks."""


def devices(host: TunedHost, names: Sequence[str] = ()) -> list[Device]:
    """The devices of this network namespace, or those of these names, with their knobs.

    Raises VicinalError for a name that no device has.
    """
    links = {link.name: link for link in host.network.links()}
    cards = rdma_devices(host)
    for name in names:
        if name not in links and name not in cards:
            there = ", ".join([*links, *cards])
            raise VicinalError(f"there is no interface {name!r}", f"name one of {there}")
    chosen = names or (*links, *cards)
    found = [_interface(host, link) for name, link in links.items() if name in chosen]
    return found + [_card(host, name) for name in cards if name in chosen]


def knob_named(host: TunedHost, name: str) -> HostKnob:
    """The knob of this name; its device may lack the part.

    Raises VicinalError for an unknown knob or device.
    """
    device, _, part = name.partition("/")
    if part == rdma.PART:
        if device not in rdma_devices(host):
            raise VicinalError(f"there is no RDMA device {device!r}", "see the list of `rdma dev`")
        return RdmaModerationKnob(host, device)
    known = (*channels.PARTS, interrupts.PART, *coalescing.PARTS, rdma.PART)
    if part not in known:
        raise VicinalError(
            f"there is no knob {name!r}",
            "see the list of `vicinal tune show`; names are such as eth0/rx-usecs",
        )
    link = next((each for each in host.network.links() if each.name == device), None)
    if link is None:
        raise VicinalError(f"there is no interface {device!r}", "see the list of `ip link`")
    if part == interrupts.PART:
        return AffinityKnob(host, link)
    if part in channels.PARTS:
        return ChannelsKnob(host, device, part)
    return CoalescingKnob(host, device, part)


def order_of(name: str) -> int:
    """The position of a host's knob in the order in which a setting is applied."""
    part = name.partition("/")[2]
    return 0 if part in channels.PARTS else 1 if part == interrupts.PART else 2


def _interface(host: TunedHost, link: Link) -> Device:
    knobs: list[HostKnob] = []
    lacks = []
    missing: tuple[str, ...] = ()
    try:
        queues = host.ethtool.channels(link.name)
    except RefusedError as error:
        lacks.append(_why("no number of queues that can be set", error))
    else:
        kinds = {part: part.removeprefix("channels-") for part in channels.PARTS}
        knobs += [
            ChannelsKnob(host, link.name, part)
            for part, kind in kinds.items()
            if queues.get(f"{kind}-max", 0) > 0
        ]
    if interrupts_of(host, link):
        knobs.append(AffinityKnob(host, link))
    else:
        lacks.append("no interrupts of its own")
    try:
        has = host.ethtool.coalescing(link.name)
    except RefusedError as error:
        lacks.append(_why("no interrupt moderation", error))
    else:
        knobs += [CoalescingKnob(host, link.name, part) for part in coalescing.PARTS if part in has]
        missing = tuple(part for part in coalescing.PARTS if part not in has)
    return Device(link.name, tuple(knobs), tuple(lacks), missing)


def _card(host: TunedHost, name: str) -> Device:
    knob = RdmaModerationKnob(host, name)
    try:
        knob.read()
    except VicinalError as error:
        return Device(name, (), (str(error),))
    return Device(name, (knob,), ())


def _why(what: str, error: RefusedError) -> str:
    return what if error.absent else f"{what} ({error.message})"
