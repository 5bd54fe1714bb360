"""A domain's description for another host, and its place after a move whose end nobody saw.

libvirt's test driver runs no guests and has no functions of a host, so the domain that gives up a
function is a fake. Real guests move in tests/guests/libvirt/test_domain_migration.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import libvirt
import pytest
from test_domain_library import FULL, MIB

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import PciFunction, SharedRegion
from vicinal.cluster.vm.libvirt import domain_devices, migrate
from vicinal.cluster.vm.libvirt.connection import Hypervisor
from vicinal.cluster.vm.libvirt.domain_devices import (
    attach_pci_function,
    detach_pci_function,
    has_pci_function,
)
from vicinal.cluster.vm.libvirt.domain_spec import Placement
from vicinal.cluster.vm.libvirt.domain_xml import domain_xml, pci_function_device, pci_function_xml
from vicinal.cluster.vm.libvirt.lifecycle import DomainState, define, observe, start, suspend
from vicinal.cluster.vm.libvirt.migrate import flags_for, settle
from vicinal.cluster.vm.libvirt.side import Side, described_for

OTHER_FUNCTION = PciFunction("0000:41:00.2")
MOVING = replace(
    FULL, console=Path("/here/console"), control=Path("/here/port"), name="vicinal-papers-b"
)
NOWHERE = Hypervisor("test:///nowhere", None)  # type: ignore[arg-type]
HERE = Side(
    NOWHERE,
    region=SharedRegion("job-1", 16 * MIB),
    pci_functions=MOVING.pci_functions,
    names=("/here", "br0", "/tmp"),
)
THERE = Side(
    NOWHERE,
    region=SharedRegion("job-2", 16 * MIB),
    pci_functions=(OTHER_FUNCTION,),
    placement=Placement((frozenset({7}), frozenset({8})), frozenset({6})),
    names=("/there/too", "br9", "/var/tmp"),
)


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """Two of libvirt's test drivers, which know nothing of each other."""
    found = []
    for name in ("home", "away"):
        (tmp_path / name).write_text("<node/>")
        uri = f"test://{tmp_path / name}"
        found.append(Side(Hypervisor(uri, libvirt.open(uri))))
    yield found[0], found[1]
    for side in found:
        side.hypervisor.connection.close()


def elsewhere(here: Side = HERE, there: Side = THERE) -> Element:
    return ElementTree.fromstring(described_for(domain_xml(MOVING), here, there))


def test_a_definition_says_what_the_other_host_calls_things() -> None:
    domain = elsewhere()
    assert domain.findtext("name") == MOVING.name
    found = {each.get("path") for each in domain.iterfind("devices//source[@path]")}
    assert found == {"/there/too/console", "/there/too/port"}
    assert [each.get("bridge") for each in domain.iterfind(".//source[@bridge]")] == ["br9"]
    assert [each.get("name") for each in domain.iterfind("devices/shmem")] == ["job-2"]
    arguments = " ".join(each.get("value", "") for each in domain.iter())
    assert "local.path=/var/tmp/a,,b" in arguments
    assert "remote.path=/var/tmp/c" in arguments
    assert "=/tmp/" not in arguments
    # Elements that the move does not name stay.
    assert domain.findtext("os/kernel") == "/boot/kernel"


def test_it_runs_on_the_other_hosts_processors_and_has_its_function() -> None:
    domain = elsewhere()
    pins = [each.get("cpuset") for each in domain.iterfind("cputune/vcpupin")]
    assert pins == ["7", "8"]
    assert [each.get("cpuset") for each in domain.iterfind("cputune/emulatorpin")] == ["6"]
    assert domain.find("numatune") is None
    text = ElementTree.tostring(domain, encoding="unicode")
    assert pci_function_device(text, MOVING.pci_functions[0]) is None
    assert pci_function_device(text, OTHER_FUNCTION) is not None
    # Without another placement, the definition's placement applies.
    same = elsewhere(there=replace(THERE, placement=None))
    assert [each.get("cpuset") for each in same.iterfind("cputune/vcpupin")] == ["3", "1"]


def test_back_is_the_way_there_reversed() -> None:
    there = ElementTree.tostring(elsewhere(), encoding="unicode")
    back = described_for(there, THERE, replace(HERE, placement=MOVING.placement))
    assert canonical(back) == canonical(domain_xml(MOVING))


def canonical(xml: str) -> set[tuple[str, tuple[tuple[str, str], ...], str]]:
    """Every element as a set, because a placement's position in the XML may differ."""
    return {
        (each.tag, tuple(sorted(each.attrib.items())), (each.text or "").strip())
        for each in ElementTree.fromstring(xml).iter()
    }


def test_an_emulated_one_stands_still_meanwhile() -> None:
    """During a live migration with TCG, QEMU may lose the guest's writes."""
    emulated = domain_xml(replace(FULL, accelerator=Accelerator.TCG))
    real = domain_xml(replace(FULL, accelerator=Accelerator.KVM))
    assert not flags_for(emulated) & libvirt.VIR_MIGRATE_LIVE
    assert flags_for(real) == flags_for(emulated) | libvirt.VIR_MIGRATE_LIVE


def test_what_libvirts_schema_says_of_it(sides: tuple[Side, Side]) -> None:
    xml = described_for(domain_xml(MOVING), HERE, THERE)
    validate = libvirt.VIR_DOMAIN_DEFINE_VALIDATE
    sides[0].hypervisor.connection.defineXMLFlags(xml, validate)
    devices = ElementTree.fromstring(domain_xml(replace(MOVING, pci_functions=())))
    parent = devices.find("devices")
    assert parent is not None
    parent.append(ElementTree.fromstring(pci_function_xml(OTHER_FUNCTION)))
    text = ElementTree.tostring(devices, encoding="unicode").replace(MOVING.name, "vicinal-c")
    sides[1].hypervisor.connection.defineXMLFlags(text, validate)


def test_a_domain_that_did_not_move_is_at_home(sides: tuple[Side, Side]) -> None:
    home, away = sides
    assert settle(FULL.name, home, away) is None
    run(home)
    assert settle(FULL.name, home, away) is home
    suspend(home.hypervisor, FULL.name)  # as at the end of a move
    assert settle(FULL.name, home, away) is home
    assert observe(home.hypervisor, FULL.name) is DomainState.RUNNING


def test_a_domain_that_moved_is_there_alone(sides: tuple[Side, Side]) -> None:
    home, away = sides
    run(away)
    assert settle(FULL.name, home, away) is away
    run(home)  # nobody told it that the move is complete
    suspend(home.hypervisor, FULL.name)
    assert settle(FULL.name, home, away) is away
    assert observe(home.hypervisor, FULL.name) is DomainState.ABSENT
    assert observe(away.hypervisor, FULL.name) is DomainState.RUNNING


def test_what_never_arrived_is_taken_away(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "_LEFTOVER_SECONDS", 0.5)
    home, away = sides
    for side in sides:
        run(side)
    suspend(away.hypervisor, FULL.name)
    assert settle(FULL.name, home, away) is home
    assert observe(away.hypervisor, FULL.name) is DomainState.ABSENT
    assert observe(home.hypervisor, FULL.name) is DomainState.RUNNING


def run(side: Side) -> None:
    define(side.hypervisor, FULL)
    start(side.hypervisor, FULL.name)


@dataclass
class FakeDomain:
    """A domain whose guest has a function, and reacts to a release request as configured."""

    on_asked: Callable[["FakeDomain"], None]
    devices: list[str]
    calls: list[str] = field(default_factory=list)
    listeners: dict[int, Callable[[], None]] = field(default_factory=dict)
    said: str | None = None

    def name(self) -> str:
        return FULL.name

    def XMLDesc(self, _: int = 0) -> str:  # noqa: N802 (libvirt's)
        return f"<domain><devices>{''.join(self.devices)}</devices></domain>"

    def metadata(self, *_: object) -> str:
        if self.said is None:
            error = libvirt.libvirtError("nothing")
            error.err = (libvirt.VIR_ERR_NO_DOMAIN_METADATA, 0, "", 0, "", None, None, 0, 0)
            raise error
        return self.said

    def setMetadata(self, _: int, text: str | None, *__: object) -> None:  # noqa: N802
        self.said = text

    def detachDeviceAlias(self, alias: str, _: int) -> None:  # noqa: N802
        self.calls.append(alias)
        self.on_asked(self)

    def attachDeviceFlags(self, xml: str, _: int) -> None:  # noqa: N802
        self.devices.append(xml)

    def domainEventRegisterAny(  # noqa: N802
        self, _: object, event: int, call: Callable[..., None], removed: bool
    ) -> int:
        def happen() -> None:
            call(None, self, self.calls[-1], removed)

        self.listeners[event] = happen
        return event

    def domainEventDeregisterAny(self, number: int) -> None:  # noqa: N802
        del self.listeners[number]

    def let_go(self) -> None:
        self.devices.clear()
        self.listeners[libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED]()

    def refuse(self) -> None:
        self.listeners[libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED]()

    def do_nothing(self) -> None:
        pass


def fake(
    monkeypatch: pytest.MonkeyPatch, on_asked: Callable[[FakeDomain], None]
) -> tuple[FakeDomain, Hypervisor]:
    domain = FakeDomain(on_asked, [pci_function_xml(FULL.pci_functions[0])])
    monkeypatch.setattr(domain_devices, "ours", lambda *_: domain)
    return domain, Hypervisor("fake", domain)  # type: ignore[arg-type]


def test_a_guest_gives_a_function_up_and_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    domain, hypervisor = fake(monkeypatch, FakeDomain.let_go)
    (function,) = FULL.pci_functions
    assert has_pci_function(hypervisor, FULL.name, function)
    detach_pci_function(hypervisor, FULL.name, function, seconds=5)
    detach_pci_function(hypervisor, FULL.name, function, seconds=5)  # again: nothing to do
    assert not has_pci_function(hypervisor, FULL.name, function)
    assert len(domain.calls) == 1
    assert domain.calls[0].startswith("ua-function-")
    assert (domain.said, domain.listeners) == (None, {})
    attach_pci_function(hypervisor, FULL.name, OTHER_FUNCTION)
    attach_pci_function(hypervisor, FULL.name, OTHER_FUNCTION)
    assert has_pci_function(hypervisor, FULL.name, OTHER_FUNCTION)
    assert len(domain.devices) == 1


@pytest.mark.parametrize(
    ("on_asked", "said"),
    [
        (FakeDomain.refuse, "refuses to release the function 0000:3b:1f.7"),
        (FakeDomain.do_nothing, "did not release the function 0000:3b:1f.7 within 0.1 s"),
    ],
)
def test_a_guest_that_keeps_a_function(
    monkeypatch: pytest.MonkeyPatch, on_asked: Callable[[FakeDomain], None], said: str
) -> None:
    domain, hypervisor = fake(monkeypatch, on_asked)
    with pytest.raises(VicinalError, match=said):
        detach_pci_function(hypervisor, FULL.name, FULL.pci_functions[0], seconds=0.1)
    assert has_pci_function(hypervisor, FULL.name, FULL.pci_functions[0])
    # If the guest only did not answer yet, it gets no second request.
    with pytest.raises(VicinalError):
        detach_pci_function(hypervisor, FULL.name, FULL.pci_functions[0], seconds=0.1)
    assert len(domain.calls) == (2 if on_asked is FakeDomain.refuse else 1)
