"""Where a VM's threads run, closer than OpenNebula can say: its owner asks in the user template.

    VICINAL_PINNING = [ PROCESSORS = "NODE" ]      # of a VM whose memory is from one NUMA node
    VICINAL_PINNING = [ EMULATOR = "SIBLING" ]     # of a VM that has whole cores to itself

Only what the scheduler has given the VM is used: nothing that it counts becomes wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from vicinal.base.errors import VicinalError
from vicinal.host.topology import Cpu, show_cpu_list
from vicinal.integrations.opennebula.documents import parse, shown
from vicinal.integrations.opennebula.editing import find_tags, replaced
from vicinal.integrations.opennebula.request import PINNING, vector_of
from vicinal.integrations.opennebula.topology import Topology

_EXAMPLE = f'{PINNING} = [ PROCESSORS = "NODE" ]'
_DOMAIN = "domain"


@dataclass(frozen=True)
class Pinning:
    """What is asked for."""

    processors: bool
    """Virtual processors, and all else of QEMU's, run on the NUMA nodes of the VM's memory."""
    emulator: bool
    """All but the virtual processors runs beside these, on the other threads of their cores."""


def read_pinning(document: bytes) -> Pinning | None:
    """What a VM's document asks for. Raises VicinalError for what is no such thing."""
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
            f"{PINNING} has {' and '.join(values) or 'nothing in it'}",
            "write PROCESSORS for a VM that is not pinned, or EMULATOR for one that is",
        )
    return Pinning("PROCESSORS" in values, "EMULATOR" in values)


def asked_for(data: bytes) -> bool:
    """Whether a VM's owner asks for it, by what OpenNebula gives to actions on VMs that are there.

    What cannot be read says nothing: the stock script is to say what is wrong with it.
    """
    try:
        root = parse(data, "the action's data", "VMM_DRIVER_ACTION_DATA")
    except VicinalError:
        return False
    return root.find(f"VM/USER_TEMPLATE/{PINNING}") is not None


def pinned(
    document: bytes, pinning: Pinning, topology: Topology, host: Sequence[Cpu]
) -> tuple[bytes, str]:
    """The deployment file with that in it; and in words why not, if it is left as it was.

    Raises VicinalError where it cannot be for this VM, on whichever host.
    """
    domain = parse(document, "the deployment file", _DOMAIN)
    if pinning.processors:
        return _on_nodes(document, domain, topology), ""
    return _beside(document, domain, topology, host)


def _on_nodes(document: bytes, domain: Element, topology: Topology) -> bytes:
    if domain.find("cputune/vcpupin") is not None:
        raise VicinalError(
            f"{PINNING} has PROCESSORS, and OpenNebula has pinned this VM itself",
            f"leave {PINNING} out, or PIN_POLICY and NODE_AFFINITY",
        )
    if not topology.nodes or not all(node.cpus and node.processors for node in topology.nodes):
        raise VicinalError(
            f"{PINNING} has PROCESSORS, and OpenNebula has chosen no NUMA node for this VM",
            'have its memory from one: TOPOLOGY = [ HUGEPAGE_SIZE = "2" ]',
        )
    lines, number = [], 0
    for node in topology.nodes:
        for _ in range(node.processors):
            lines.append(_tag("vcpupin", vcpu=str(number), cpuset=show_cpu_list(node.cpus)))
            number += 1
    if domain.find("cputune/emulatorpin") is None:  # else the administrator's EMULATOR_CPUS
        every = {cpu for node in topology.nodes for cpu in node.cpus}
        lines.append(_tag("emulatorpin", cpuset=show_cpu_list(tuple(every))))
    text = b"".join(lines)
    tunes = find_tags(document, _DOMAIN, "cputune")
    if tunes and tunes[0].end_tag != tunes[0].start:
        return replaced(document, tunes[0].end_tag, tunes[0].end_tag, text)
    # None, or one without content, beside which libvirt reads another.
    (end,) = (tag.end_tag for tag in find_tags(document, _DOMAIN))
    return replaced(document, end, end, b"<cputune>" + text + b"</cputune>\n")


def _beside(
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
        return document, "QEMU's own threads stay where the host's EMULATOR_CPUS has them"
    beside = {other for cpu in host if cpu.number in own for other in cpu.siblings} - own
    if not beside:
        return document, "QEMU's own threads stay on the VM's processors: its cores have one thread"
    text = _tag("emulatorpin", cpuset=show_cpu_list(tuple(beside)))
    return replaced(document, tags[0].start, tags[0].end, text.rstrip()), ""


def _tag(name: str, **words: str) -> bytes:
    return ElementTree.tostring(Element(name, words)) + b"\n"
