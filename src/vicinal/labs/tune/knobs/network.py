"""The network interfaces of this process's network namespace, and their relations.

Netlink shows this namespace. /sys would show the namespace in which it was mounted.
"""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vicinal.base.signals import signals_wait


@dataclass(frozen=True)
class Link:
    """A network interface."""

    name: str
    index: int
    """The interface's index; the namespace never reuses it."""
    bus: str = ""
    """The bus of its device, such as `pci`; empty for a virtual interface."""
    device: str = ""
    """Its device on that bus, such as `0000:01:00.0`."""
    below: tuple[str, ...] = ()
    """Interfaces that carry its packets: ports of a bridge or bond, or a VLAN's parent."""
    carrier: bool = True
    """Whether the link is up."""
    carrier_changes: int = 0
    """How often the link changed since the interface exists."""


class Network(Protocol):
    """The network interfaces; tests have an implementation without a kernel."""

    def links(self) -> list[Link]:
        """All interfaces, by ascending index."""

    def default_routes(self) -> list[str]:
        """The interfaces of the default routes, IPv4 and IPv6."""

    def route_to(self, address: str) -> str:
        """The interface of the route to an address; empty without a route."""

    @property
    def namespace(self) -> int:
        """A number that identifies this network namespace during its lifetime."""


class KernelNetwork:
    """The interfaces of the network namespace of this process, from the kernel."""

    def links(self) -> list[Link]:
        with _routes() as routes:
            found = list(routes.get_links())
        names = {each["index"]: each.get("IFLA_IFNAME") for each in found}
        ports: dict[int, list[str]] = {}
        for each in found:
            if (master := each.get("IFLA_MASTER")) is not None:
                ports.setdefault(master, []).append(names[each["index"]])
            # The other end of a veth is no lower interface, and may be in another namespace.
            under = each.get("IFLA_LINK")
            kind = (each.get("IFLA_LINKINFO") or {}).get("IFLA_INFO_KIND")
            if under in names and under != each["index"] and kind != "veth":
                ports.setdefault(each["index"], []).append(names[under])
        return [
            Link(
                names[each["index"]],
                each["index"],
                each.get("IFLA_PARENT_DEV_BUS_NAME") or "",
                each.get("IFLA_PARENT_DEV_NAME") or "",
                tuple(ports.get(each["index"], ())),
                bool(each.get("IFLA_CARRIER", 1)),
                int(each.get("IFLA_CARRIER_CHANGES") or 0),
            )
            for each in sorted(found, key=lambda each: int(each["index"]))
        ]

    def default_routes(self) -> list[str]:
        with _routes() as routes:
            found = [*routes.get_default_routes(socket.AF_INET)]
            found += routes.get_default_routes(socket.AF_INET6)
        return _interfaces(found)

    def route_to(self, address: str) -> str:
        from pyroute2.netlink.exceptions import NetlinkError

        with _routes() as routes, suppress(NetlinkError, OSError):
            return next(iter(_interfaces(routes.route("get", dst=address))), "")
        return ""

    @property
    def namespace(self) -> int:
        return Path("/proc/self/ns/net").stat().st_ino


@contextmanager
def _routes() -> Iterator[Any]:
    # Loaded here, as in netlink.py.
    from pyroute2 import IPRoute

    # IPRoute has an event loop, which a signal in the middle would leave waiting forever.
    with signals_wait(), IPRoute() as routes:
        yield routes


def _interfaces(routes: Iterable[Any]) -> list[str]:
    numbers = []
    for route in routes:
        numbers.append(route.get("RTA_OIF"))
        # Each of several parallel routes has its own interface.
        numbers += [hop.get("oif") for hop in route.get("RTA_MULTIPATH") or ()]
    names = []
    for number in numbers:
        with suppress(OSError):
            names.append(socket.if_indextoname(number or 0))
    return list(dict.fromkeys(names))
