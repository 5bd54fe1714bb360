"""deploy: the VM gets the resources that its owner requests, and the stock script starts the VM.

For a VM without a request, the stock script runs unchanged. For others, deploy() changes only two
things in the domain that OpenNebula wrote. All other bytes stay as they are, because the stock
script changes paths of disks by their text, including the quotes.

    VICINAL_REGION     add_region: an ivshmem device, in a <devices> element of its own before the
                       domain's end; OpenNebula also writes several <devices>
    VICINAL_PINNING    pinned: the processors of the VM's threads, closer than OpenNebula can set

    VICINAL_PINNING = [ PROCESSORS = "NODE" ]      # for a VM with memory from one NUMA node
    VICINAL_PINNING = [ EMULATOR = "SIBLING" ]     # for a VM that has whole cores to itself

Pinning uses only processors and NUMA nodes that OpenNebula's scheduler chose for a VM with a
TOPOLOGY. The scheduler counts these as taken, and writes them into the VM's document and domain:

    TOPOLOGY = [ PIN_POLICY = "CORE", SOCKETS = "1", CORES = "2", THREADS = "1" ]
    NUMA_NODE = [ TOTAL_CPUS = "2", CPUS = "2,3", NODE_ID = "0", MEMORY_NODE_ID = "0", ... ]
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement
from xml.parsers import expat

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.host.system import Host
from vicinal.host.topology import Cpu, read_cpus, show_cpu_list
from vicinal.integrations.opennebula.call import (
    Call,
    become_stock,
    domain_name,
    log,
    parse,
    run_stock,
    shown,
)
from vicinal.integrations.opennebula.records import Records
from vicinal.integrations.opennebula.request import (
    LIMITS_FILE,
    PINNING,
    RegionRequest,
    read_limits,
    read_request,
    vector_of,
)

MODEL = "ivshmem-plain"
"""QEMU's device for a region."""
_NUMBER = re.compile(r"0|[1-9][0-9]{0,4}")
_NUMBERS = re.compile(r"[0-9]{1,5}(?:,[0-9]{1,5})*")
_MOST = 1 << 12
"""Limit of virtual processors; QEMU's own limit is lower."""
_REMEDY = "check that OpenNebula's scheduler wrote it"
_EXAMPLE = f'{PINNING} = [ PROCESSORS = "NODE" ]'
_DOMAIN = "domain"


def deploy(call: Call, records: Records) -> int:
    """Create a region if the VM requests one, and start the VM; returns the exit status.

    Raises VicinalError if a request is wrong or not possible on this host; then no VM starts.
    """
    vm_document = _vm_document(call)
    request, pinning = read_request(vm_document, call.vm), read_pinning(vm_document)
    if request is None and pinning is None:
        become_stock(call)
    topology, document = read_topology(vm_document), sys.stdin.buffer.read()
    if pinning is not None:
        cpus = read_cpus(Host()) if pinning.emulator else ()
        document, left = pinned(document, pinning, topology, cpus)
        if left:
            log(call.action, left)
    if request is None:
        become_stock(call, document)
    document = add_region(document, call.vm, request)
    if not records.all():  # otherwise VMs with regions run here, so QEMU has the device
        require_region_device(document, Host())
    limits = read_limits(call.remotes / LIMITS_FILE)
    status = None
    try:
        with records.held(call.vm, request, limits, topology.memory_nodes) as hold:
            status = run_stock(call, hold, document)
    except VicinalError as error:
        if status is None:
            raise
        log(call.action, f"the VM's region stays until the next action: {error}")
    return status


def _vm_document(call: Call) -> bytes:
    file = Path(call.arguments[0] if call.arguments else "").parent / "vm.xml"
    try:
        return file.read_bytes()
    except OSError as error:
        raise VicinalError(
            f"{file} cannot be read ({describe_os_error(error)})",
            "use a version of OpenNebula that writes this file before it deploys a VM",
        ) from error


def add_region(document: bytes, vm: int, request: RegionRequest) -> bytes:
    """The deployment file with the region as an ivshmem device; unchanged if it has the device
    already.

    Raises VicinalError if the file is another VM's, or has a different device of the same name.
    """
    domain = parse(document, "the deployment file", "domain")
    name = domain.findtext("name") or ""
    if name != domain_name(vm):
        raise VicinalError(
            f"the deployment file is that of {shown(name)} instead of {domain_name(vm)}",
            "call the driver as OpenNebula calls its KVM driver",
        )
    wanted = _device(request)
    there = [each for each in domain.iterfind("devices/shmem") if each.get("name") == request.name]
    if there:
        if len(there) == 1 and _same(there[0], wanted):
            return document
        raise VicinalError(
            f"the deployment file has another device with the name {request.name!r}",
            "remove this device from the VM's RAW section",
        )
    more = Element("devices")
    more.append(wanted)
    (end,) = (tag.end_tag for tag in find_tags(document, "domain"))
    return replaced(document, end, end, ElementTree.tostring(more) + b"\n")


def _device(request: RegionRequest) -> Element:
    # The role of a peer: libvirt and QEMU then refuse to save, snapshot or move the VM with the
    # region attached, because other VMs share the region's memory.
    device = Element("shmem", name=request.name, role="peer")
    SubElement(device, "model", type=MODEL)
    SubElement(device, "size", unit="M").text = str(request.size_bytes >> 20)
    return device


def _same(device: Element, wanted: Element) -> bool:
    def words(element: Element) -> tuple[object, ...]:
        model, size = element.find("model"), element.find("size")
        return (
            element.get("role"),
            None if model is None else model.get("type"),
            None if size is None else (size.get("unit"), size.text),
            sorted(str(each.tag) for each in element),
        )

    return words(device) == words(wanted)


def require_region_device(document: bytes, host: Host) -> None:
    """Raise VicinalError if the QEMU that the deployment file names has no device for regions.

    The file's emulator may be a user's word, and only libvirt may run it. So this function asks the
    host's own QEMU. For any other emulator, libvirt itself reports a missing device.
    """
    # Loaded here: most deployments find regions of other VMs, and do not need these modules.
    from vicinal.host.checks.vms import qemu_program, read_device_models

    program = qemu_program(host)
    named = parse(document, "the deployment file", "domain").findtext("devices/emulator")
    if program is None or not _same_file(program, named):
        return
    models = read_device_models(host)
    if models and MODEL not in models:
        raise VicinalError(
            f"{program} of this host has no {MODEL}, so no VM here can have a region",
            'request a host that has it: SCHED_REQUIREMENTS = "VICINAL_IVSHMEM = \\"YES\\""',
        )


def _same_file(program: Path, named: str | None) -> bool:
    try:
        return bool(named) and program.samefile(str(named))
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class VirtualNode:
    """A NUMA node as the guest sees it."""

    processors: int
    """Number of virtual processors."""
    cpus: tuple[int, ...]
    """Numbers of the host's processors for the virtual ones; empty if OpenNebula chose none."""
    memory_node: int | None
    """The host's NUMA node of all memory of this node; None if OpenNebula chose none."""


@dataclass(frozen=True)
class Topology:
    """The NUMA topology of one VM."""

    policy: str
    """PIN_POLICY: NONE, THREAD, SHARED or CORE."""
    nodes: tuple[VirtualNode, ...]

    @property
    def memory_nodes(self) -> tuple[int, ...]:
        """The host's NUMA nodes of the VM's memory; empty: any."""
        return tuple(sorted({n.memory_node for n in self.nodes if n.memory_node is not None}))


def read_topology(document: bytes) -> Topology:
    """The topology in a VM's document. Raises VicinalError for values that OpenNebula does not
    write.
    """
    root = parse(document, "the VM's document (vm.xml)", "VM")
    policy = (root.findtext("TEMPLATE/TOPOLOGY/PIN_POLICY") or "NONE").upper()
    nodes = tuple(_node(each) for each in root.iterfind("TEMPLATE/NUMA_NODE"))
    if sum(node.processors for node in nodes) > _MOST:
        raise VicinalError(
            f"the VM's NUMA_NODE elements name more than {_MOST} processors", _REMEDY
        )
    return Topology(policy, nodes)


def _node(element: Element) -> VirtualNode:
    text = element.findtext("CPUS") or ""
    if text and not _NUMBERS.fullmatch(text):
        raise VicinalError(f"a NUMA_NODE of the VM has the CPUS {shown(text)}", _REMEDY)
    return VirtualNode(
        _number(element, "TOTAL_CPUS") or 0,
        tuple(int(each) for each in text.split(",")) if text else (),
        _number(element, "MEMORY_NODE_ID"),
    )


def _number(element: Element, name: str) -> int | None:
    text = element.findtext(name)
    if not text or text == "-1":
        return None
    if not _NUMBER.fullmatch(text):
        raise VicinalError(f"a NUMA_NODE of the VM has the {name} {shown(text)}", _REMEDY)
    return int(text)


@dataclass(frozen=True)
class Pinning:
    """A VM's VICINAL_PINNING; exactly one of the two fields is set."""

    processors: bool
    """All threads of QEMU run on the NUMA nodes of the VM's memory."""
    emulator: bool
    """QEMU's own threads run on the sibling threads of the virtual processors' cores."""


def read_pinning(document: bytes) -> Pinning | None:
    """The pinning that a VM's document requests; None if it requests none.

    Raises VicinalError for unknown parts and values.
    """
    root = parse(document, "the VM's document (vm.xml)", "VM")
    values = vector_of(root, PINNING, ("PROCESSORS", "EMULATOR"), _EXAMPLE)
    if values is None:
        return None
    for name, known in (("PROCESSORS", "NODE"), ("EMULATOR", "SIBLING")):
        if values.get(name, known) != known:
            raise VicinalError(
                f"{PINNING} has the {name} {shown(values[name])}", f'write {name} = "{known}"'
            )
    if len(values) != 1:
        raise VicinalError(
            f"{PINNING} has {' and '.join(values) or 'no parts'}",
            "write PROCESSORS for an unpinned VM, or EMULATOR for a pinned VM",
        )
    return Pinning("PROCESSORS" in values, "EMULATOR" in values)


def pinning_is_asked_for(data: bytes) -> bool:
    """Whether the data that OpenNebula passes to actions on running VMs has VICINAL_PINNING.

    False for data that cannot be parsed: the stock script reports the error.
    """
    try:
        root = parse(data, "the action's data", "VMM_DRIVER_ACTION_DATA")
    except VicinalError:
        return False
    return root.find(f"VM/USER_TEMPLATE/{PINNING}") is not None


def pinned(
    document: bytes, pinning: Pinning, topology: Topology, host: Sequence[Cpu]
) -> tuple[bytes, str]:
    """The deployment file with the pinning, and a text that says why the file is unchanged, if it
    is.

    Raises VicinalError if the pinning is not possible for this VM on any host.
    """
    domain = parse(document, "the deployment file", _DOMAIN)
    if pinning.processors:
        return _on_nodes(document, domain, topology), ""
    return _on_siblings(document, domain, topology, host)


def _on_nodes(document: bytes, domain: Element, topology: Topology) -> bytes:
    if domain.find("cputune/vcpupin") is not None:
        raise VicinalError(
            f"{PINNING} has PROCESSORS, and OpenNebula has pinned this VM itself",
            f"remove {PINNING}, or remove PIN_POLICY and NODE_AFFINITY",
        )
    if not topology.nodes or not all(node.cpus and node.processors for node in topology.nodes):
        raise VicinalError(
            f"{PINNING} has PROCESSORS, and OpenNebula has chosen no NUMA node for this VM",
            'request memory from one node: TOPOLOGY = [ HUGEPAGE_SIZE = "2" ]',
        )
    lines, number = [], 0
    for node in topology.nodes:
        for _ in range(node.processors):
            lines.append(_tag("vcpupin", vcpu=str(number), cpuset=show_cpu_list(node.cpus)))
            number += 1
    if domain.find("cputune/emulatorpin") is None:  # otherwise the administrator set EMULATOR_CPUS
        every = {cpu for node in topology.nodes for cpu in node.cpus}
        lines.append(_tag("emulatorpin", cpuset=show_cpu_list(tuple(every))))
    text = b"".join(lines)
    tunes = find_tags(document, _DOMAIN, "cputune")
    if tunes and tunes[0].end_tag != tunes[0].start:
        return replaced(document, tunes[0].end_tag, tunes[0].end_tag, text)
    # There is no <cputune>, or an empty one; libvirt reads a second one as well.
    (end,) = (tag.end_tag for tag in find_tags(document, _DOMAIN))
    return replaced(document, end, end, b"<cputune>" + text + b"</cputune>\n")


def _on_siblings(
    document: bytes, domain: Element, topology: Topology, host: Sequence[Cpu]
) -> tuple[bytes, str]:
    pins = [each.get("cpuset") or "" for each in domain.iterfind("cputune/vcpupin")]
    if topology.policy != "CORE" or not pins or not all(map(str.isdecimal, pins)):
        raise VicinalError(
            f"{PINNING} has EMULATOR, and this VM has no cores to itself",
            'write TOPOLOGY = [ PIN_POLICY = "CORE" ]',
        )
    own = {int(each) for each in pins}
    tags = find_tags(document, _DOMAIN, "cputune", "emulatorpin")
    now = [each.get("cpuset") or "" for each in domain.iterfind("cputune/emulatorpin")]
    if len(now) != 1 or {each.strip() for each in now[0].split(",")} != set(pins):
        return document, "QEMU's own threads stay on the processors of the host's EMULATOR_CPUS"
    siblings = {other for cpu in host if cpu.number in own for other in cpu.siblings} - own
    if not siblings:
        return document, "QEMU's own threads stay on the VM's processors: its cores have one thread"
    text = _tag("emulatorpin", cpuset=show_cpu_list(tuple(siblings)))
    return replaced(document, tags[0].start, tags[0].end, text.rstrip()), ""


def _tag(name: str, **words: str) -> bytes:
    return ElementTree.tostring(Element(name, words)) + b"\n"


@dataclass(frozen=True)
class Tag:
    """The position of an element, in bytes from the document's beginning."""

    start: int
    end_tag: int
    """Start of the end tag; equals `start` for an element without an end tag."""
    end: int
    """First byte after the element."""


def find_tags(document: bytes, *path: str) -> list[Tag]:
    """The elements at a path from the root, such as "domain", "cputune", of a well-formed document.

    Raises VicinalError unless the document is in an encoding whose tags are ASCII.
    """
    found: list[Tag] = []
    names: list[str] = []
    starts: list[int] = []
    closing = re.compile(rf"</{re.escape(path[-1])}\s*>".encode())
    parser = expat.ParserCreate()

    def begin(name: str, _: object) -> None:
        names.append(name)
        starts.append(parser.CurrentByteIndex)

    def end(_: str) -> None:
        start, here = starts.pop(), parser.CurrentByteIndex
        # A long file may have very many tags: each tag costs constant time here.
        if len(names) == len(path) and tuple(names) == path:
            # For an element without content, expat reports the element's end.
            closed = closing.match(document, here) is not None
            behind = document.find(b">", here) + 1 if closed else here
            found.append(Tag(start, here if closed else start, behind))
        names.pop()

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.Parse(document, True)
    for tag in found:
        if not document.startswith(f"<{path[-1]}".encode(), tag.start):
            raise VicinalError(
                "the deployment file is not in UTF-8, and OpenNebula writes UTF-8",
                "find out what wrote the file",
            )
    return found


def replaced(document: bytes, start: int, end: int, text: bytes) -> bytes:
    """The document with the bytes from `start` to `end` (exclusive) replaced by `text`."""
    return document[:start] + text + document[end:]
