"""Reading the networks of a cluster file.

The addresses of a group are those of its first node; the other nodes get the next addresses.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

from vicinal.base.errors import VicinalError
from vicinal.base.faults import Faults
from vicinal.base.yaml import line_of
from vicinal.cluster.file.model import BackEnd, Cluster
from vicinal.cluster.file.network import (
    BridgeNetwork,
    DeviceNetwork,
    Network,
    NoNetwork,
    TapNetwork,
    VfNetwork,
    address_of,
)
from vicinal.host.vf.settings import Settings, parse_guid, parse_mac

_PLAIN = ("vlan", "qos", "spoof_check", "trust", "min_rate", "max_rate", "link_state", "port")
"""Keys of `vf` that have the names and values of settings."""

_CARDS_OF_OURS = ("bridge", "tap")
"""Kinds of networks for which Vicinal creates the node's card and chooses its hardware address."""
_KINDS = ("vf", "device", *_CARDS_OF_OURS)
_ANY_KIND = "one vf, device, bridge or tap"


def read_networks(
    path: Path, index: int, group: Mapping[str, Any], backend: BackEnd, count: int
) -> list[Network | None]:
    """Return the network of each of `count` nodes of a group; None for the default network.

    Raises VicinalError for mistakes that the schema cannot express, and for networks that the
    nodes' back end cannot provide.
    """
    given = group.get("network", "default")
    if given == "default":
        return [None] * count
    position = f"{line_of(path, group, 'network')}: nodes[{index}].network"
    _check_back_end(position, given, backend)
    if given == "none":
        return [NoNetwork()] * count
    kinds = [kind for kind in _KINDS if kind in given]
    if len(kinds) != 1:
        raise VicinalError(
            f"{position} names {' and '.join(kinds) or 'no kind of network'}", f"name {_ANY_KIND}"
        )
    kind = kinds[0]
    if "mac" in given and kind not in _CARDS_OF_OURS:
        raise VicinalError(
            f"{position}.mac is only for a bridge or a tap", "remove it, or set it under vf"
        )
    faults = Faults()
    addresses = faults.attempt(_addresses, position, given.get("address"), count)
    if kind == "vf":
        settings = faults.attempt(_settings, position, given["vf"], count)
        faults.check()
        card = str(given["vf"]["card"])
        return [VfNetwork(card, settings[n], addresses[n]) for n in range(count)]
    if kind == "device":
        devices = faults.attempt(_one_each, position, given, "device", count)
        faults.check()
        return [DeviceNetwork(devices[n], addresses[n]) for n in range(count)]
    macs = faults.attempt(_macs, position, given, count)
    if kind == "tap":
        taps = faults.attempt(_one_each, position, given, "tap", count)
        faults.check()
        return [TapNetwork(taps[n], macs[n], addresses[n]) for n in range(count)]
    faults.check()
    return [BridgeNetwork(given["bridge"], macs[n], addresses[n]) for n in range(count)]


def check_networks(positions: Mapping[str, str], cluster: Cluster) -> Iterator[VicinalError]:
    """Yield errors for devices, taps and addresses that two nodes have."""
    for host in dict.fromkeys(node.host for node in cluster.nodes):
        # Devices and taps of different hosts may have the same name.
        here = [(node.name, node.network) for node in cluster.nodes if node.host == host]
        devices = [(n, w.device) for n, w in here if isinstance(w, DeviceNetwork)]
        taps = [(n, w.tap) for n, w in here if isinstance(w, TapNetwork)]
        yield from _check_once(positions, "device", devices)
        yield from _check_once(positions, "tap", taps)
    networks = [(node.name, node.network) for node in cluster.nodes]
    addresses = [(name, address_of(network)) for name, network in networks]
    for what, named in (
        ("hardware address", [*_set_of(networks, "mac"), *_macs_of(networks)]),
        ("GUID", _set_of(networks, "port_guid")),
        ("address", [(n, str(address.ip)) for n, address in addresses if address is not None]),
    ):
        yield from _check_once(positions, what, named)


def _check_once(
    positions: Mapping[str, str], what: str, named: Sequence[tuple[str, str]]
) -> Iterator[VicinalError]:
    owners: dict[str, str] = {}
    for node, value in named:
        if value in owners:
            yield VicinalError(
                f"{positions[node]}: {owners[value]} and {node} would both have the {what} {value}",
                f"give each node a {what} of its own",
            )
        owners[value] = node


def _set_of(networks: Sequence[tuple[str, Network | None]], name: str) -> list[tuple[str, str]]:
    found = []
    for node, network in networks:
        if isinstance(network, VfNetwork):
            value = getattr(network.settings, name)
            if value is not None:
                found.append((node, str(value)))
    return found


def _macs_of(networks: Sequence[tuple[str, Network | None]]) -> list[tuple[str, str]]:
    return [
        (name, network.mac)
        for name, network in networks
        if isinstance(network, BridgeNetwork | TapNetwork) and network.mac is not None
    ]


def _check_back_end(position: str, given: Any, backend: BackEnd) -> None:
    if backend is BackEnd.HOST:
        raise VicinalError(
            f"{position} is for containers and virtual machines, and a host node has its host's "
            "network",
            "remove it",
        )
    if backend is BackEnd.CONTAINER and "tap" in given:
        raise VicinalError(
            f"{position}.tap is only for virtual machines, and the nodes are containers",
            "name a bridge, or choose the backend vm",
        )
    if backend is BackEnd.VM and {"address", "device"} <= {*given}:
        raise set_up_in_guests(f"{position}.address")


def set_up_in_guests(position: str) -> VicinalError:
    """Return the error for an address of a device that a guest sets up itself.

    For virtual functions, whether the guest does depends on what starts the VMs.
    """
    return VicinalError(
        f"{position} is not for virtual machines: their guests set up the device themselves",
        "remove the address, and set it in the guest",
    )


def _one_each(position: str, given: Mapping[str, Any], kind: str, count: int) -> list[str]:
    """Return the devices or taps that a group names, one for each of its `count` nodes."""
    named = given[kind]
    found = [named] if isinstance(named, str) else list(named)
    if len(found) != count:
        raise VicinalError(
            f"{position}.{kind} has {len(found)} names, and the group has {count} nodes",
            f"name one {kind} for each node",
        )
    return found


def _macs(position: str, given: Mapping[str, Any], count: int) -> list[str | None]:
    try:
        return _following(given.get("mac"), parse_mac, count, 6)
    except VicinalError as error:
        raise VicinalError(f"{position}.mac: {error.message}", error.remedy) from error


def _settings(position: str, given: Mapping[str, Any], count: int) -> list[Settings]:
    """Return the settings of each node's virtual function."""
    plain = {name: given[name] for name in _PLAIN if name in given}
    pkey = given.get("pkey")
    common = Settings(**plain, pkey=None if pkey is None else int(str(pkey), 0))
    if common.pkey is not None and not 0 < common.pkey & 0x7FFF <= common.pkey <= 0xFFFF:
        raise VicinalError(
            f"{position}.vf.pkey cannot be {pkey}", "write a key from 0x0001 to 0xffff"
        )
    try:
        macs = _following(given.get("mac"), parse_mac, count, 6)
        guids = _following(given.get("guid"), parse_guid, count, 8)
    except VicinalError as error:
        raise VicinalError(f"{position}.vf: {error.message}", error.remedy) from error
    return [
        replace(common, mac=macs[number], node_guid=guids[number], port_guid=guids[number])
        for number in range(count)
    ]


def _following(
    first: str | None, parse: Callable[[str], str], count: int, size: int
) -> list[str | None]:
    """Return `count` consecutive addresses of `size` bytes, checked by `parse`; None without a
    first address.
    """
    if first is None:
        return [None] * count
    number = int(parse(first).replace(":", ""), 16)
    found: list[str | None] = []
    for following in range(number, number + count):
        text = f"{following:0{2 * size}x}"
        found.append(parse(":".join(text[at : at + 2] for at in range(0, len(text), 2))))
    return found


def _addresses(position: str, first: str | None, count: int) -> list[IPv4Interface | None]:
    if first is None:
        return [None] * count
    try:
        if "/" not in first:
            raise ValueError("the prefix length is missing")
        interface = IPv4Interface(first)
    except ValueError as error:
        raise VicinalError(
            f"{position}.address cannot be {first!r} ({error})",
            "write an address such as 10.1.0.1/24",
        ) from error
    network = interface.network
    found = [IPv4Interface(f"{interface.ip + n}/{network.prefixlen}") for n in range(count)]
    for each in found:
        if not network.network_address < each.ip < network.broadcast_address:
            raise VicinalError(
                f"{position}.address: {each.ip} cannot be a node's address in {network}",
                "begin with a lower address, or use a larger network",
            )
    return list(found)
