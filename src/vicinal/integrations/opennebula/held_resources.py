"""The resources that a VM has of its host, as the VM's domain describes them.

A VM gives up its region and its VFs of cards (HeldResources) to be saved or moved. Before the
first resource is detached, the driver writes all of them into the domain's metadata:

    <metadata> <vicinal:away xmlns:vicinal="urn:vicinal:away"> ...

So the file of a saved VM contains the metadata, and a moved VM takes the metadata along. If the
driver is killed halfway, the next action on the host finds the metadata.

Processors and NUMA nodes (Placement) are numbers of the host that the domain was created for, and
libvirt keeps these numbers in the domain on every host. So the driver checks that the next host has
the numbers, before it restores or moves the VM. The region lies on the nodes of the VM's memory.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vicinal.base.errors import VicinalError
from vicinal.host.system import Host
from vicinal.host.topology import NumaNode, parse_cpu_list, read_cpus, read_nodes, show_cpu_list
from vicinal.integrations.opennebula.call import log, parse
from vicinal.integrations.opennebula.request import RegionRequest, checked_request

if TYPE_CHECKING:
    import libvirt

_SPACE = "urn:vicinal:away"
_PREFIX = "vicinal-away"
_ROOT = "away"
_PINS = ("cputune/vcpupin", "cputune/emulatorpin")
_MEMORY = ("numatune/memory", "numatune/memnode")


@dataclass(frozen=True)
class HeldVf:
    """A VF of the host's card, as the VM has it."""

    device: str
    """The domain's <hostdev> element, as XML."""
    identity: str
    """Hardware address or GUID, which the VM keeps on every host; empty if the card has none."""

    @property
    def key(self) -> str:
        """What makes two VFs the same: the identity, or else the device."""
        return self.identity or self.device


@dataclass(frozen=True)
class HeldResources:
    """The resources of one VM."""

    region: RegionRequest | None = None
    region_device: str = ""
    """The domain's <shmem> element, as XML."""
    vfs: tuple[HeldVf, ...] = ()

    def __bool__(self) -> bool:
        return self.region is not None or bool(self.vfs)

    def with_more(self, vfs: Iterable[HeldVf]) -> "HeldResources":
        """A copy with the VFs added that are not yet in it."""
        has = {each.key for each in self.vfs}
        more = tuple(each for each in vfs if each.key not in has)
        return replace(self, vfs=self.vfs + more)

    def to_json(self) -> dict[str, Any]:
        """JSON values for from_json(), on this host or another."""
        return {
            "region": None if self.region is None else asdict(self.region),
            "region_device": self.region_device,
            "vfs": [asdict(each) for each in self.vfs],
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "HeldResources":
        """Raises VicinalError for what to_json() does not write."""
        try:
            vfs = tuple(_checked_vf(each) for each in values["vfs"])
            if values["region"] is None:
                return cls(vfs=vfs)
            device = _checked_device(values["region_device"], "shmem")
            return cls(checked_request(values["region"]), device, vfs)
        except (KeyError, TypeError, AttributeError) as error:
            raise VicinalError(
                f"the list of the VM's resources cannot be read ({error!r})",
                "install the same version of Vicinal on both hosts",
            ) from error


def read_mark(domain: "libvirt.virDomain") -> HeldResources | None:
    """The resources that a domain gave up and has not got again; None if it lacks none.

    Raises VicinalError if libvirt fails, or the metadata is not Vicinal's.
    """
    # A domain is there, and so is libvirt. The rest of this module works without its binding.
    from vicinal.cluster.vm.libvirt.binding import explained, libvirt

    kind, live = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_LIVE
    with explained(f"the domain {domain.name()} cannot be read"):
        try:
            text = domain.metadata(kind, _SPACE, live)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                raise
            return None
    return _from_element(parse(text.encode(), "a domain's metadata", _ROOT, f"{{{_SPACE}}}{_ROOT}"))


def write_mark(domain: "libvirt.virDomain", what: HeldResources | None) -> None:
    """Write the resources that a domain gives up into its metadata; None removes the metadata."""
    from vicinal.cluster.vm.libvirt.binding import explained, libvirt

    kind, live = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_LIVE
    text = None if what is None else _text(what)
    with explained(f"the metadata of the domain {domain.name()} cannot be written"):
        # None removes the element; the annotation of `metadata` does not allow None.
        domain.setMetadata(kind, text, _PREFIX, _SPACE, live)  # type: ignore[arg-type]


def saved_mark(domain_xml: str) -> HeldResources | None:
    """As read_mark(), from the description in a saved domain's file. Raises VicinalError."""
    root = parse(domain_xml.encode(), "the checkpoint's domain", "domain")
    found = root.find(f"metadata/{{{_SPACE}}}{_ROOT}")
    return None if found is None else _from_element(found)


def _text(what: HeldResources) -> str:
    root = Element(_ROOT)
    SubElement(root, "values").text = json.dumps(what.to_json())
    return ElementTree.tostring(root, encoding="unicode")


def _from_element(root: Element) -> HeldResources:
    # libvirt puts the root into Vicinal's namespace; some versions also put the children there.
    text = next((each.text for each in root if str(each.tag).endswith("values")), None)
    try:
        values = json.loads(text or "")
    except ValueError as error:
        raise VicinalError(
            f"the domain's metadata of resources is not Vicinal's ({error})",
            "find out what wrote it (virsh metadata)",
        ) from error
    return HeldResources.from_json(values)


def _checked_vf(values: dict[str, Any]) -> HeldVf:
    return HeldVf(_checked_device(values["device"], "hostdev"), str(values["identity"]))


def _checked_device(text: str, tag: str) -> str:
    parse(text.encode(), "a device of the VM", tag)
    return text


@dataclass(frozen=True)
class Placement:
    """The processors and NUMA nodes of one VM, by the numbers of its host."""

    cpus: tuple[int, ...] = ()
    """Processors on which the VM's threads may run; empty: all."""
    nodes: tuple[int, ...] = ()
    """NUMA nodes of the VM's memory; empty: any."""

    def to_json(self) -> dict[str, Any]:
        """JSON values for from_json(), on this host or another."""
        return {"cpus": list(self.cpus), "nodes": list(self.nodes)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Placement":
        """Raises VicinalError for what to_json() does not write."""
        return cls(_numbers(values.get("cpus")), _numbers(values.get("nodes")))

    def require(self, action: str, name: str, host: Host) -> None:
        """Call check(), and log its text. Raises VicinalError as check()."""
        if apart := self.check(name, host):
            log(action, apart)

    def check(self, name: str, host: Host) -> str:
        """A text if the host numbers its processors or nodes differently; empty if nothing differs.

        Raises VicinalError if the host lacks one of the named processors or NUMA nodes.
        """
        there, nodes = tuple(cpu.number for cpu in read_cpus(host)), read_nodes(host)
        known = tuple(node.number for node in nodes)
        for what, wanted, has in (
            ("runs on the processors", self.cpus, there),
            ("has its memory from the NUMA nodes", self.nodes, known),
        ):
            if has and (missing := set(wanted) - set(has)):
                raise VicinalError(
                    f"{name} {what} {show_cpu_list(wanted)}, and this host has no "
                    f"{show_cpu_list(tuple(missing))}",
                    "choose a host that has them, or end the VM and start it again on this host",
                )
        return self._apart(name, nodes)

    def _apart(self, name: str, nodes: Sequence[NumaNode]) -> str:
        near = {cpu for node in nodes if node.number in self.nodes for cpu in node.cpus}
        far = set(self.cpus) - near
        if not self.nodes or not far or not near:
            return ""
        return (
            f"{name} may run on the processors {show_cpu_list(tuple(far))}, which on this host "
            f"are not on the NUMA node of the VM's memory, {show_cpu_list(self.nodes)}: the "
            "VM's first host numbers them differently"
        )


def read_placement(domain_xml: str) -> Placement:
    """The processors and NUMA nodes that a domain's XML names. Raises VicinalError if it is no
    domain.
    """
    root = parse(domain_xml.encode(), "the domain", "domain")
    cpus, nodes = (
        {
            number
            for path in paths
            for each in root.iterfind(path)
            for number in parse_cpu_list(each.get(attribute) or "")
        }
        for paths, attribute in ((_PINS, "cpuset"), (_MEMORY, "nodeset"))
    )
    return Placement(tuple(sorted(cpus)), tuple(sorted(nodes)))


def _numbers(values: object) -> tuple[int, ...]:
    if isinstance(values, list) and all(type(each) is int and each >= 0 for each in values):
        return tuple(values)
    raise VicinalError(
        "the VM's processors and NUMA nodes cannot be read",
        "install the same version of Vicinal on both hosts",
    )
