"""Owners of functions: the names of clusters and their nodes in the helper's records."""

from vicinal.base.errors import VicinalError
from vicinal.host.functions.operations import Functions
from vicinal.host.functions.sysfs import read_records

_NETWORK_CLASS = "0x02"


def owner_of(cluster: str, node: str | None = None) -> str:
    """Return the name of a cluster, or of one of its nodes, in the records."""
    return f"vicinal.{cluster}.{node}" if node is not None else f"vicinal.{cluster}"


def assigned_to(functions: Functions, owner: str) -> list[str]:
    """Return the PCI addresses of an owner's functions, including functions that no longer
    exist."""
    records = read_records(functions.host)["functions"]
    return [address for address, record in records.items() if record["owner"] == owner]


def assigned_address(functions: Functions, owner: str) -> str:
    """Return the PCI address of a node's function. Raises VicinalError unless there is exactly
    one."""
    addresses = assigned_to(functions, owner)
    if len(addresses) != 1:
        raise VicinalError(
            f"{owner} has {len(addresses)} functions, and needs one",
            "see `vicinal functions list`, and bring the cluster up again",
        )
    return addresses[0]


def check_device(functions: Functions, address: str) -> None:
    """Raise VicinalError if a whole device is not a network card, has functions, or is in use."""
    host = functions.host
    if not host.read(host.device(address) / "class").startswith(_NETWORK_CLASS):
        devices = (host.sysfs / "bus/pci/devices").glob("*/class")
        cards = (each for each in devices if host.read(each).startswith(_NETWORK_CLASS))
        there = ", ".join(sorted(each.parent.name for each in cards)) or "none"
        raise VicinalError(
            f"{address} is no network card of this host, which has {there}", "see `lspci -D`"
        )
    if made := host.functions(address):
        raise VicinalError(
            f"{address} cannot be assigned as a whole: it has {len(made)} virtual functions here",
            f"remove the functions first: vicinal functions remove {address}",
        )
    if use := host.use(address):
        raise VicinalError(
            f"{address} is in use: {use}", "end what uses it, and take its interface down"
        )
