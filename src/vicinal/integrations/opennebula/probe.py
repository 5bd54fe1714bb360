"""The probe: facts about a host for OpenNebula's scheduler.

    python -I -m vicinal.integrations.opennebula.probe REMOTES

The probe prints attributes in the syntax of OpenNebula's templates, and OpenNebula adds these to
the host's own. Facts that cannot be found out are missing, and VICINAL_ERROR says why: OpenNebula
marks a host as failed if a probe fails. The probe changes, creates and awaits nothing.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.host.checks.vms import read_device_models
from vicinal.host.system import Host
from vicinal.host.topology import read_huge_pages
from vicinal.host.vf.privileged.system import Host as VfsHost
from vicinal.host.vf.sysfs import (
    PhysicalFunction,
    VirtualFunction,
    all_vfs,
    physical_functions,
)
from vicinal.integrations.opennebula.records import REGIONS, Records, records_directory
from vicinal.integrations.opennebula.request import LIMITS_FILE, read_limits

Value = int | str | Mapping[str, int | str]
Attribute = tuple[str, Value]

_MEGABYTE = 1 << 20
_ERROR = "VICINAL_ERROR"


def attributes(
    remotes: Path,
    *,
    host: Host | None = None,
    vfs: VfsHost | None = None,
    records: Path | None = None,
) -> Iterator[Attribute]:
    """All available attributes, in the order of output; errors become VICINAL_ERROR. Raises
    nothing.
    """
    own = host or Host()
    yield "VICINAL_VERSION", version("vicinal")
    for facts in (
        lambda: _qemu(own),
        lambda: _regions(remotes, records or records_directory()),
        lambda: _vfs(vfs or VfsHost()),
        lambda: _huge_pages(own),
    ):
        yield from _without_failing(facts)


def _without_failing(facts: Callable[[], Iterator[Attribute]]) -> Iterator[Attribute]:
    try:
        found = list(facts())
    except VicinalError as error:
        yield _ERROR, str(error)
    except OSError as error:
        prefix = f"{error.filename}: " if error.filename else ""
        yield _ERROR, f"{prefix}{describe_os_error(error)}"
    else:
        yield from found


def _qemu(host: Host) -> Iterator[Attribute]:
    models = read_device_models(host)
    if models is None:
        raise VicinalError("QEMU is missing or does not start", "see `vicinal doctor qemu`")
    yield "VICINAL_IVSHMEM", _yes("ivshmem-plain" in models)


def _regions(remotes: Path, directory: Path) -> Iterator[Attribute]:
    """Regions and their room, in megabytes as in a VM's SIZE."""
    requests = [each.request for each in Records(directory, frozenset).all()]
    status = os.statvfs(REGIONS)
    room = status.f_bavail * status.f_frsize
    yield "VICINAL_REGIONS", len(requests)
    yield "VICINAL_REGION_USED", sum(each.size_bytes for each in requests) // _MEGABYTE
    most = read_limits(remotes / LIMITS_FILE).region
    yield "VICINAL_REGION_FREE", min(room, most) // _MEGABYTE


def _vfs(host: VfsHost) -> Iterator[Attribute]:
    cards = physical_functions(host)
    there = list(all_vfs(cards))
    yield "VICINAL_VFS", len(there)
    yield "VICINAL_VFS_FREE", sum(each.free for each in there)
    for card in cards:
        yield "VICINAL_CARD", _card(card)
    for vf in there:
        yield "VICINAL_VF", _vf(vf)


def _card(card: PhysicalFunction) -> dict[str, int | str]:
    return {
        "ADDRESS": card.address,
        "KIND": card.kind,
        "NAMES": " ".join(sorted(card.names - {card.address})),
        "MOST": card.most,
        "VFS": len(card.vfs),
        "FREE": sum(each.free for each in card.vfs),
        "GUID": " ".join(port.guid for port in card.ports if port.guid),
    }


def _vf(vf: VirtualFunction) -> dict[str, int | str]:
    return {
        "ADDRESS": vf.address,
        "CARD": vf.physical,
        "NUMBER": vf.number,
        "FREE": _yes(vf.free),
        "OWNER": vf.owner,
        "GUID": _guid(vf),
    }


def _guid(vf: VirtualFunction) -> str:
    """The GUID of the VF's port: the card's setting, or the port's GUID if a driver is bound
    here.

    Empty if there is none. Before an assignment, a VF's GUID may be zero.
    """
    guids = [vf.settings.get("port_guid", ""), *(port.guid for port in vf.ports)]
    return next((guid for guid in guids if guid.strip("0:")), "")


def _huge_pages(host: Host) -> Iterator[Attribute]:
    sizes = read_huge_pages(host)
    yield "VICINAL_HUGE_PAGES_FREE", sum(each.free * each.size for each in sizes) // _MEGABYTE
    for each in sizes:
        kilobytes = each.size // 1024
        yield "VICINAL_HUGE_PAGES", {"SIZE": kilobytes, "ALL": each.reserved, "FREE": each.free}


def _yes(fact: bool) -> str:
    return "YES" if fact else "NO"


def show(attribute: Attribute) -> str:
    """The attribute as a line of a template; a vector's parts without a value are left out."""
    name, value = attribute
    if isinstance(value, Mapping):
        parts = (f"{key} = {_quoted(each)}" for key, each in value.items() if each != "")
        return f"{name} = [ {', '.join(parts)} ]"
    return f"{name}={_quoted(value)}"


def _quoted(value: int | str) -> str:
    """The value in quotation marks, with quotation marks, backslashes and control characters as
    "?".

    Within quotation marks, OpenNebula takes all other characters as they are. Names of interfaces
    and owners may contain any character.
    """
    plain = "".join(
        each if each.isprintable() and each not in '"\\' else "?" for each in str(value)
    )
    return f'"{plain}"'


def main(remotes: Path) -> None:
    """Print all attributes at once, so that an interrupted probe prints nothing."""
    sys.stdout.write("".join(f"{show(each)}\n" for each in attributes(remotes)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
