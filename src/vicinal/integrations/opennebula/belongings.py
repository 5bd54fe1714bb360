"""What a VM has of its host, and gives up to be saved or moved: its region, and functions of cards.

It is written into the domain itself, as metadata, before the first of it is given up:

    <metadata> <vicinal:away xmlns:vicinal="urn:vicinal:away"> ...

So it is in the file that the VM is saved to, goes where the VM goes, and is there for whoever finds
a VM whose driver was killed halfway.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.libvirt.binding import explained, libvirt
from vicinal.integrations.opennebula.documents import parse
from vicinal.integrations.opennebula.request import RegionRequest, checked_request

_SPACE = "urn:vicinal:away"
_PREFIX = "vicinal-away"
_ROOT = "away"


@dataclass(frozen=True)
class HeldFunction:
    """A function of a host's card, as the VM has it."""

    device: str
    """The domain's <hostdev>."""
    identity: str
    """Hardware address or GUID, which the VM keeps wherever it is; empty: its card has none."""

    @property
    def key(self) -> str:
        """By which it is the same one."""
        return self.identity or self.device


@dataclass(frozen=True)
class Belongings:
    """Of one VM."""

    region: RegionRequest | None = None
    region_device: str = ""
    """The domain's <shmem>."""
    functions: tuple[HeldFunction, ...] = ()

    def __bool__(self) -> bool:
        return self.region is not None or bool(self.functions)

    def with_more(self, functions: Iterable[HeldFunction]) -> "Belongings":
        """With those functions that it does not have yet."""
        has = {each.key for each in self.functions}
        more = tuple(each for each in functions if each.key not in has)
        return replace(self, functions=self.functions + more)

    def to_json(self) -> dict[str, Any]:
        """For another host."""
        return {
            "region": None if self.region is None else asdict(self.region),
            "region_device": self.region_device,
            "functions": [asdict(each) for each in self.functions],
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Belongings":
        """Raises VicinalError for what to_json() does not write."""
        try:
            functions = tuple(_checked_function(each) for each in values["functions"])
            if values["region"] is None:
                return cls(functions=functions)
            device = _checked_device(values["region_device"], "shmem")
            return cls(checked_request(values["region"]), device, functions)
        except (KeyError, TypeError, AttributeError) as error:
            raise VicinalError(
                f"what the VM is to get again cannot be read ({error!r})",
                "see that both hosts have the same version of Vicinal",
            ) from error


def read_mark(domain: "libvirt.virDomain") -> Belongings | None:
    """What a domain has given up and not got again; None: it has all. Raises VicinalError."""
    kind, live = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_LIVE
    with explained(f"the domain {domain.name()} cannot be looked at"):
        try:
            text = domain.metadata(kind, _SPACE, live)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                raise
            return None
    return _from_element(parse(text.encode(), "a domain's metadata", _ROOT, f"{{{_SPACE}}}{_ROOT}"))


def write_mark(domain: "libvirt.virDomain", what: Belongings | None) -> None:
    """Have a domain say what it gives up; None: that it has all."""
    kind, live = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_LIVE
    text = None if what is None else _text(what)
    with explained(f"the domain {domain.name()} does not take a note"):
        # None takes it away; the annotation knows nothing of that.
        domain.setMetadata(kind, text, _PREFIX, _SPACE, live)  # type: ignore[arg-type]


def saved_mark(domain_xml: str) -> Belongings | None:
    """The same, of the description that is in the file of a saved domain. Raises VicinalError."""
    root = parse(domain_xml.encode(), "the checkpoint's domain", "domain")
    found = root.find(f"metadata/{{{_SPACE}}}{_ROOT}")
    return None if found is None else _from_element(found)


def _text(what: Belongings) -> str:
    root = Element(_ROOT)
    SubElement(root, "values").text = json.dumps(what.to_json())
    return ElementTree.tostring(root, encoding="unicode")


def _from_element(root: Element) -> Belongings:
    # libvirt puts the root into our namespace, and in some versions what is in it as well.
    text = next((each.text for each in root if str(each.tag).endswith("values")), None)
    try:
        values = json.loads(text or "")
    except ValueError as error:
        raise VicinalError(
            f"the domain's note of what it gave up is none of ours ({error})",
            "see what wrote it there (virsh metadata)",
        ) from error
    return Belongings.from_json(values)


def _checked_function(values: dict[str, Any]) -> HeldFunction:
    return HeldFunction(_checked_device(values["device"], "hostdev"), str(values["identity"]))


def _checked_device(text: str, tag: str) -> str:
    parse(text.encode(), "a device that the VM is to get again", tag)
    return text
