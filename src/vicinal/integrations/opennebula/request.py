"""The request of a VM's owner, and the administrator's limits.

The owner writes the request into the VM's user template:

    VICINAL_REGION = [ JOB = "job42", SIZE = "64M", MEMBERS = "16" ]

Every user can set such an attribute, so its values are hostile until they are checked. The VM's
owner comes from OpenNebula itself.

The administrator's limits are KEY=VALUE lines of etc/vmm/vicinal/vicinal.conf. Limits are needed
because OpenNebula's scheduler does not count a region as memory of the host.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from vicinal.base.errors import VicinalError
from vicinal.base.sizes import parse_size
from vicinal.integrations.opennebula.call import parse, shown
from vicinal.region.geometry import (
    MEMBERS_MAX,
    MEMBERS_MIN,
    PAGE,
    SECTION_MAX,
    odd_pages,
    region_bytes,
    section_fault,
    sections_offset,
)

PREFIX = "VICINAL"
ATTRIBUTE = "VICINAL_REGION"
PINNING = "VICINAL_PINNING"
"""The second attribute, read by vicinal.integrations.opennebula.deploy."""
EXAMPLE = f'{ATTRIBUTE} = [ JOB = "job42", SIZE = "64M" ]'
DEFAULT_MEMBERS = 16
_KEYS = ("JOB", "SIZE", "MEMBERS")
_JOB = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_SIZE = re.compile(r"([1-9][0-9]{0,5})([MG])")
_MEMBERS = re.compile(r"[1-9][0-9]{0,3}")
_IDENTIFIER = re.compile(r"0|[1-9][0-9]{0,9}")
_UNITS = {"M": 1 << 20, "G": 1 << 30}
LIMITS_FILE = Path("etc/vmm/vicinal/vicinal.conf")
"""Path below OpenNebula's remotes."""

LIMITS_TEMPLATE = """\
# Vicinal's limits on each host; sizes with M or G.

# The longest region of one job
REGION_SIZE_MAX=1G

# All regions of one user together
USER_SIZE_MAX=4G
"""
_LIMITS = {"REGION_SIZE_MAX": "region", "USER_SIZE_MAX": "user"}


@dataclass(frozen=True)
class RegionRequest:
    """The region that a VM requests; VMs of the same owner and job on a host share one region."""

    owner: int
    """User id in OpenNebula."""
    job: str
    size_bytes: int
    """Length of the region's file and of the device in the guest: a power of two."""
    members: int

    @property
    def key(self) -> str:
        """The region's key on a host: OWNER-JOB."""
        return f"{self.owner}-{self.job}"

    @property
    def name(self) -> str:
        """The name of the region's file in /dev/shm, and of the domain's <shmem>."""
        return f"vicinal-one-{self.key}"

    @property
    def section_bytes(self) -> int:
        """Length of each member's section."""
        each = (self.size_bytes - sections_offset(self.members)) // self.members
        whole = each // PAGE * PAGE
        return odd_pages(each) if section_fault(self.members, odd_pages(each)) is None else whole


def read_request(document: bytes, vm: int) -> RegionRequest | None:
    """The region that the VM's document requests; None if it requests none.

    Raises VicinalError for another VM's document, an unknown attribute of Vicinal, and a wrong
    value.
    """
    root = parse(document, "the VM's document (vm.xml)", "VM")
    found = _number(root, "ID")
    if found != vm:
        raise VicinalError(
            f"the VM's document (vm.xml) is that of VM {found}, and VM {vm} is being started",
            "find out what wrote it into that directory",
        )
    for each in root.iterfind("USER_TEMPLATE/*"):
        if _is_ours(each) and each.tag not in (ATTRIBUTE, PINNING):
            raise _unknown(str(each.tag), (ATTRIBUTE, PINNING), "attribute")
    values = vector_of(root, ATTRIBUTE, _KEYS, EXAMPLE)
    return None if values is None else _region(values, _number(root, "UID"))


def vector_of(
    root: Element, attribute: str, keys: tuple[str, ...], example: str
) -> dict[str, str] | None:
    """The parts of a vector attribute in a VM's user template; None if the attribute is missing.

    `example` is shown in errors. Raises VicinalError if the attribute is repeated or no vector, or
    has a repeated part or a part outside `keys`.
    """
    asked = root.findall(f"USER_TEMPLATE/{attribute}")
    if not asked:
        return None
    if len(asked) > 1:
        raise VicinalError(f"{attribute} appears {len(asked)} times", "keep one of them")
    values: dict[str, str] = {}
    for each in asked[0]:
        if each.tag not in keys:
            raise _unknown(str(each.tag), keys, f"part of {attribute}")
        if each.tag in values:
            raise VicinalError(f"{attribute} has {each.tag} more than once", "keep one of them")
        values[each.tag] = each.text or ""
    text = asked[0].text or ""
    if text.strip():
        raise VicinalError(
            f"{attribute} is {shown(text)}, which is no vector", f"write it as {example}"
        )
    return values


def checked_request(values: Mapping[str, Any]) -> RegionRequest:
    """A recorded request, from its fields by name. Raises VicinalError or TypeError for wrong
    values.
    """
    request = RegionRequest(**values)
    for number in (request.owner, request.size_bytes, request.members):
        if type(number) is not int or number < 0:
            raise TypeError(f"{number!r} is not a number")
    _job(request.job)
    _size(f"{request.size_bytes >> 20}M")
    _members(str(request.members))
    _check_geometry(request)
    return request


def _is_ours(element: Element) -> bool:
    return isinstance(element.tag, str) and element.tag.upper().startswith(PREFIX)


def _number(root: Element, name: str) -> int:
    text = root.findtext(name) or ""
    if not _IDENTIFIER.fullmatch(text):
        raise VicinalError(
            f"the VM's document (vm.xml) has no {name}", "check that OpenNebula wrote that file"
        )
    return int(text)


def _region(values: Mapping[str, str], owner: int) -> RegionRequest:
    for name in ("JOB", "SIZE"):
        if name not in values:
            raise VicinalError(f"{ATTRIBUTE} has no {name}", f"write it as {EXAMPLE}")
    request = RegionRequest(
        owner, _job(values["JOB"]), _size(values["SIZE"]), _members(values.get("MEMBERS"))
    )
    _check_geometry(request)
    return request


def _job(text: str) -> str:
    if not _JOB.fullmatch(text):
        raise VicinalError(
            f"{ATTRIBUTE} has the JOB {shown(text)}",
            "use up to 32 lowercase letters, digits and hyphens, with a letter or digit at both"
            " ends",
        )
    return text


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if not found:
        raise VicinalError(
            f"{ATTRIBUTE} has the SIZE {shown(text)}", "write a number with M or G, such as 64M"
        )
    size = int(found[1]) * _UNITS[found[2]]
    if size & (size - 1):
        raise VicinalError(
            f"{ATTRIBUTE} has the SIZE {shown(text)}, and the length of a device's memory is a "
            "power of two",
            f"write {(1 << size.bit_length()) >> 20}M",
        )
    return size


def _members(text: str | None) -> int:
    if text is None:
        return DEFAULT_MEMBERS
    if not _MEMBERS.fullmatch(text) or not MEMBERS_MIN <= int(text) <= MEMBERS_MAX:
        raise VicinalError(
            f"{ATTRIBUTE} has the MEMBERS {shown(text)}",
            f"write a number from {MEMBERS_MIN} to {MEMBERS_MAX}: the ranks of all its VMs",
        )
    return int(text)


def _check_geometry(request: RegionRequest) -> None:
    """Raise VicinalError if the members do not fit into the size, or cannot use all of the size."""
    size = f"{request.size_bytes >> 20}M"
    if fault := section_fault(request.members, request.section_bytes):
        few = request.section_bytes > SECTION_MAX
        raise VicinalError(
            f"a region of {size} cannot have {fault}",
            "raise MEMBERS or lower SIZE" if few else "raise SIZE or lower MEMBERS",
        )
    used = region_bytes(request.members, request.section_bytes)
    assert request.size_bytes // 2 < used <= request.size_bytes


def _unknown(tag: str, known: tuple[str, ...], what: str) -> VicinalError:
    from difflib import get_close_matches  # loaded here, because only errors need it

    near = get_close_matches(tag.upper(), known, 1, 0.5)
    hint = f"write {near[0]}" if near else f"write one of {', '.join(known)}"
    return VicinalError(f"{shown(tag)} is no {what} that Vicinal knows", hint)


@dataclass(frozen=True)
class Limits:
    """The limits of one host, in bytes."""

    region: int = 1 << 30
    user: int = 4 << 30
    """All regions of one user of OpenNebula together, on the host."""


def read_limits(file: Path) -> Limits:
    """The limits in a file; the defaults if the file is missing. Raises VicinalError for a wrong
    line.
    """
    try:
        text = file.read_text("utf-8", errors="replace")  # comments may be in any encoding
    except FileNotFoundError:
        return Limits()
    values: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        key, equals, value = line.partition("=")
        if not equals or key.strip() not in _LIMITS:
            raise VicinalError(
                f"{file}, line {number}: {line!r} is no setting",
                f"write KEY=VALUE with {' or '.join(_LIMITS)}",
            )
        try:
            values[_LIMITS[key.strip()]] = parse_size(value)
        except VicinalError as error:
            raise VicinalError(f"{file}, line {number}: {error.message}", error.remedy) from error
    return Limits(**values)
