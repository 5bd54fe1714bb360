"""Owners of VFs: the names of clusters and their nodes in the helper's records."""

from vicinal.base.errors import VicinalError
from vicinal.host.vf.operations import Vfs
from vicinal.host.vf.sysfs import read_records

_NETWORK_CLASS = "0x02"


def owner_of(cluster: str, node: str | None = None) -> str:
    """Return the name of a cluster, or of one of its nodes, in the records."""
    return f"vicinal.{cluster}.{node}" if node is not None else f"vicinal.{cluster}"


def assigned_to(vfs: Vfs, owner: str) -> list[str]:
    """Return the PCI addresses of an owner's VFs, including VFs that no longer
    exist."""
    records = read_records(vfs.host)["vfs"]
    return [address for address, record in records.items() if record["owner"] == owner]


def assigned_address(vfs: Vfs, owner: str) -> str:
    """Return the PCI address of a node's VF. Raises VicinalError unless there is exactly
    one."""
    addresses = assigned_to(vfs, owner)
    if len(addresses) != 1:
        raise VicinalError(
            f"{owner} has {len(addresses)} VFs, and needs one",
            "see `vicinal vf list`, and bring the cluster up again",
        )
    return addresses[0]


def check_device(vfs: Vfs, address: str) -> None:
    """Raise VicinalError if a whole device is not a network card, has VFs, or is in use."""
    host = vfs.host
    if not host.read(host.device(address) / "class").startswith(_NETWORK_CLASS):
        devices = (host.sysfs / "bus/pci/devices").glob("*/class")
        cards = (each for each in devices if host.read(each).startswith(_NETWORK_CLASS))
        there = ", ".join(sorted(each.parent.name for each in cards)) or "none"
        raise VicinalError(
            f"{address} is no network card of this host, which has {there}", "see `lspci -D`"
        )
    if made := host.vfs(address):
        raise VicinalError(
            f"{address} cannot be assigned as a whole: it has {len(made)} virtual functions here",
            f"remove the VFs first: vicinal vf remove {address}",
        )
    if use := host.use(address):
        raise VicinalError(
            f"{address} is in use: {use}", "end what uses it, and take its interface down"
        )
