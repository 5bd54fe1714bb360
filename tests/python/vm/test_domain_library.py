"""Domains without a hypervisor: their XML, and their life in libvirt's own driver for tests.

libvirt's test driver keeps domains in memory and runs none, but it checks definitions by the schema
that libvirt ships. tests/guests/libvirt/test_domains.py has real domains.
"""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import libvirt
import pytest
from checks.leftovers import new_shared_path
from launch_support import GUARD_SECONDS, package_path, unprivileged_python

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import (
    Bridge,
    Disk,
    DoorbellRegion,
    FileRegion,
    Multicast,
    NvdimmRegion,
    PciFunction,
    SharedRegion,
    Tap,
    Wire,
)
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.image.layout import KERNEL_WORDS
from vicinal.cluster.vm.libvirt.connection import Hypervisor, connect
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec, Placement
from vicinal.cluster.vm.libvirt.domain_xml import domain_xml, identity, region_device, region_xml
from vicinal.cluster.vm.libvirt.leftovers import remove_leftover
from vicinal.cluster.vm.libvirt.lifecycle import (
    Domain,
    DomainState,
    define,
    find,
    observe,
    remove,
    restore,
    save,
    start,
    stop,
    wait_until_booted,
)
from vicinal.cluster.vm.libvirt.migrate import migrate
from vicinal.cluster.vm.libvirt.side import Side
from vicinal.cluster.vm.libvirt.uri import default_uri, is_own

MIB = 1 << 20
BASE = DomainSpec(
    name="vicinal-papers-a",
    cluster="papers",
    node="a",
    boot=DirectBoot(Path("/boot/kernel"), Path("/boot/initrd"), ("vicinal.verbs=1",)),
    console=Path("/tmp/console"),
)
FULL = dataclasses.replace(
    BASE,
    accelerator=Accelerator.KVM,
    control=Path("/tmp/port"),
    firmware_files=(("opt/vicinal/keys", Path("/tmp/keys,1.tar")),),
    processors=2,
    hugepages=True,
    placement=Placement((frozenset({3}), frozenset({1})), frozenset({0, 2}), frozenset({0})),
    region=SharedRegion("job-1", 16 * MIB),
    pci_functions=(PciFunction("0000:3b:1f.7"),),
    interfaces=(
        Bridge("br0", "52:54:00:00:00:01"),
        Tap("tap0", "52:54:00:00:00:02"),
        Multicast("230.0.0.1", 5000, "52:54:00:00:00:03"),
        Wire(Path("/tmp/a,b"), Path("/tmp/c"), "52:54:00:00:00:04"),
    ),
    user=(0, 5),
)
SPECS = {
    "least": BASE,
    "full": FULL,
    "disk": dataclasses.replace(BASE, boot=Disk(Path("/tmp/disk.qcow2"))),
    "file": dataclasses.replace(BASE, region=FileRegion(Path("/dev/hugepages/r,1"), 2 * MIB)),
    "doorbell": dataclasses.replace(
        FULL, region=DoorbellRegion("job-1", Path("/tmp/doorbell/socket"), 32)
    ),
    "nvdimm": dataclasses.replace(BASE, region=NvdimmRegion(Path("/dev/shm/r"), 6 * MIB)),
}


@pytest.fixture
def hypervisor() -> Iterator[Hypervisor]:
    """libvirt's test driver. It already has a domain `test`, which is not Vicinal's."""
    connection = libvirt.open("test:///default")
    yield Hypervisor("test:///default", connection)
    for domain in connection.listAllDomains():  # the driver's domains live as long as this process
        if domain.name() != "test":
            if domain.isActive():
                domain.destroy()
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
    connection.close()


def parsed(spec: DomainSpec) -> Element:
    return ElementTree.fromstring(domain_xml(spec))


def arguments(domain: Element) -> list[str]:
    """The arguments that QEMU gets unchanged, without libvirt's own model of them."""
    space = "{http://libvirt.org/schemas/domain/qemu/1.0}"
    return [arg.get("value", "") for arg in domain.iterfind(f"{space}commandline/{space}arg")]


@pytest.mark.parametrize("name", SPECS)
def test_definitions_are_what_libvirts_schema_allows(hypervisor: Hypervisor, name: str) -> None:
    xml = domain_xml(SPECS[name])
    validate = libvirt.VIR_DOMAIN_DEFINE_VALIDATE
    hypervisor.connection.defineXMLFlags(xml, validate)
    with pytest.raises(libvirt.libvirtError, match="failed to validate against schema"):
        hypervisor.connection.defineXMLFlags(xml.replace("on_crash", "on_crush"), validate)


def test_an_emulated_guest_with_one_processor_may_get_a_second() -> None:
    """With one processor TCG emits no memory barriers, which the region needs."""
    count = parsed(BASE).find("vcpu")
    assert count is not None
    assert (count.text, count.get("current")) == ("2", "1")
    for more in (dataclasses.replace(BASE, processors=2), FULL):
        count = parsed(more).find("vcpu")
        assert count is not None
        assert (count.text, count.get("current")) == ("2", None)
    alone = dataclasses.replace(BASE, accelerator=Accelerator.KVM)
    assert parsed(alone).findtext("vcpu") == "1"


def test_the_accelerator_decides_on_the_processor() -> None:
    emulated, real = parsed(BASE), parsed(FULL)
    assert (emulated.get("type"), real.get("type")) == ("qemu", "kvm")
    modes = [domain.find("cpu") for domain in (emulated, real)]
    assert [each is not None and each.get("mode") for each in modes] == [
        *("maximum", "host-passthrough")
    ]


def test_places_memory_and_devices_are_as_they_were_asked_for() -> None:
    domain = parsed(FULL)
    pins = {pin.get("vcpu"): pin.get("cpuset") for pin in domain.iterfind("cputune/vcpupin")}
    assert pins == {"0": "3", "1": "1"}
    emulator, memory = domain.find("cputune/emulatorpin"), domain.find("numatune/memory")
    assert emulator is not None
    assert emulator.get("cpuset") == "0,2"
    assert memory is not None
    assert memory.attrib == {"mode": "strict", "nodeset": "0"}
    assert domain.find("memoryBacking/hugepages") is not None
    balloon = domain.find("devices/memballoon")
    assert balloon is not None
    assert balloon.get("model") == "none"
    address = domain.find("devices/hostdev/source/address")
    assert address is not None
    assert address.attrib == {"domain": "0x0000", "bus": "0x3b", "slot": "0x1f", "function": "0x7"}
    assert domain.findtext("os/cmdline", "").endswith(f" {KERNEL_WORDS[-1]} vicinal.verbs=1")
    assert domain.find("devices/shmem/[@name='job-1']") is not None
    assert domain.findtext("devices/shmem/size") == "16"
    assert domain.findtext("seclabel/[@model='dac']/label") == "+0:+5"
    assert parsed(BASE).find("seclabel") is None


def test_a_region_that_interrupts_has_a_server_and_an_iommu() -> None:
    domain = parsed(SPECS["doorbell"])
    device = domain.find("devices/shmem")
    assert device is not None
    facts = {each.tag: each.attrib for each in device if each.tag != "address"}
    assert facts == {
        "model": {"type": "ivshmem-doorbell"},
        "server": {"path": "/tmp/doorbell/socket"},
        "msi": {"vectors": "32", "ioeventfd": "on"},
    }
    driver, controller = domain.find("devices/iommu/driver"), domain.find("features/ioapic")
    assert driver is not None
    assert driver.attrib == {"intremap": "on", "caching_mode": "on"}
    assert controller is not None
    assert controller.get("driver") == "qemu"
    words = domain.findtext("os/cmdline", "").split()
    assert {"intel_iommu=on", "vicinal.doorbell=1", "vicinal.verbs=1"} <= set(words)
    assert parsed(FULL).find("devices/iommu") is None


def test_what_libvirt_has_no_words_for_goes_to_qemu() -> None:
    wire = arguments(parsed(FULL))
    assert wire[1].endswith("local.path=/tmp/a,,b,remote.type=unix,remote.path=/tmp/c")
    file = arguments(parsed(SPECS["file"]))
    assert "mem-path=/dev/hugepages/r,,1,size=2097152,share=on" in file[1]
    slots = [each.rpartition("addr=")[2] for each in (wire[3], file[3])]
    assert slots == ["0x1e.0", "0x1e.0"]  # high slots, which libvirt leaves free
    assert arguments(parsed(BASE)) == []


def test_names_cannot_break_out_of_the_xml(hypervisor: Hypervisor) -> None:
    odd = Path("/tmp/<a>&\"'")
    spec = dataclasses.replace(BASE, console=odd)
    assert [each.get("path") for each in parsed(spec).iterfind("devices/serial/source")] == [
        str(odd)
    ]
    define(hypervisor, spec)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a/b"}, "the domain cannot have the name 'a/b': use letters"),
        ({"cluster": ""}, "the cluster cannot have the name ''"),
        ({"processors": 0}, "0 processors.*give it at least one"),
        ({"processors": 3, "placement": FULL.placement}, "3 processors, and a placement for 2"),
        ({"interfaces": (Bridge("br0", "52:54"),)}, "'52:54' is not a hardware address"),
    ],
)
def test_vms_that_cannot_be_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(VicinalError, match=message):
        dataclasses.replace(BASE, **change)  # type: ignore[arg-type]


def test_devices_that_cannot_be_are_refused() -> None:
    with pytest.raises(VicinalError, match=r"has 3145728 bytes.*create it with --for-guests"):
        SharedRegion("a", 3 * MIB)
    with pytest.raises(VicinalError, match="power of two"):
        FileRegion(Path("/a"), MIB // 2)
    with pytest.raises(VicinalError, match=r"cannot have the name '\.\./a'"):
        SharedRegion("../a", MIB)
    with pytest.raises(VicinalError, match="choose a multiple of 2 MiB"):
        NvdimmRegion(Path("/a"), MIB)
    with pytest.raises(VicinalError, match=r"'3b:00\.1' is not a PCI address: write it as"):
        PciFunction("3b:00.1")


@pytest.mark.parametrize(
    ("kind", "why"), [("nvdimm", "is a memory module"), ("doorbell", "has a doorbell")]
)
def test_a_vm_whose_region_cannot_leave_it_is_not_saved(
    hypervisor: Hypervisor, kind: str, why: str
) -> None:
    """QEMU would save it: a module would return to its old content while other VMs use it."""
    define(hypervisor, dataclasses.replace(FULL, region=SPECS[kind].region))
    start(hypervisor, FULL.name)
    with pytest.raises(VicinalError, match=f"cannot be saved: its region {why}"):
        save(hypervisor, FULL.name, with_region=True)
    assert observe(hypervisor, FULL.name) is DomainState.RUNNING
    with pytest.raises(VicinalError, match=f"cannot be moved: its region {why}"):
        migrate(FULL.name, Side(hypervisor), Side(hypervisor))
    assert observe(hypervisor, FULL.name) is DomainState.RUNNING
    remove(hypervisor, FULL.name)


def test_a_life_in_libvirts_test_driver(hypervisor: Hypervisor) -> None:
    name = FULL.name
    assert observe(hypervisor, name) is DomainState.ABSENT
    define(hypervisor, FULL)
    define(hypervisor, FULL)  # the same again: no change
    assert observe(hypervisor, name) is DomainState.OFF
    start(hypervisor, name)
    start(hypervisor, name)
    assert find(hypervisor) == [Domain(name, "papers", "a", DomainState.RUNNING)]
    assert find(hypervisor, "papers") == find(hypervisor)
    assert find(hypervisor, "other") == []
    save(hypervisor, name, with_region=True)
    assert observe(hypervisor, name) is DomainState.SAVED
    with pytest.raises(VicinalError, match="is saved: restore it, or remove it first"):
        start(hypervisor, name)
    restore(hypervisor, name)
    restore(hypervisor, name)
    assert observe(hypervisor, name) is DomainState.RUNNING
    assert stop(hypervisor, name, patience=20)
    assert stop(hypervisor, name)  # it is already off
    assert observe(hypervisor, name) is DomainState.OFF
    with pytest.raises(VicinalError, match="has no saved memory"):
        restore(hypervisor, name)
    start(hypervisor, name)
    remove(hypervisor, name)
    remove(hypervisor, name)
    assert find(hypervisor) == []


def test_a_definition_changes_and_stays_the_same_domain(hypervisor: Hypervisor) -> None:
    define(hypervisor, BASE)
    before = hypervisor.connection.lookupByName(BASE.name).UUIDString()
    define(hypervisor, dataclasses.replace(BASE, memory_mib=512))
    domain = hypervisor.connection.lookupByName(BASE.name)
    assert (domain.UUIDString(), domain.maxMemory()) == (before, 512 * 1024)


def test_domains_of_others_are_left_alone(hypervisor: Hypervisor) -> None:
    assert find(hypervisor) == []  # although `test` exists
    theirs = dataclasses.replace(BASE, name="test")
    for attempt in (
        lambda: define(hypervisor, theirs),
        lambda: stop(hypervisor, "test"),
        lambda: remove(hypervisor, "test"),
    ):
        with pytest.raises(VicinalError, match="the domain test is not Vicinal's: choose"):
            attempt()
    assert hypervisor.connection.lookupByName("test").isActive()
    define(hypervisor, BASE)
    with pytest.raises(VicinalError, match="is the node a of the cluster papers"):
        define(hypervisor, dataclasses.replace(BASE, cluster="other"))


def test_what_is_not_there_is_said(hypervisor: Hypervisor) -> None:
    with pytest.raises(VicinalError, match="there is no domain none at test:///default"):
        start(hypervisor, "none")


def test_a_guest_that_does_not_boot_is_not_waited_for_for_ever(
    hypervisor: Hypervisor, tmp_path: Path
) -> None:
    console = tmp_path / "console"
    console.write_text("something\nKernel panic - not syncing\n")
    define(hypervisor, BASE)
    with pytest.raises(VicinalError, match=r"did not boot and is off; .*something . Kernel panic"):
        wait_until_booted(hypervisor, BASE.name, console, 60)
    start(hypervisor, BASE.name)
    with pytest.raises(VicinalError, match=r"did not boot within 0\.2 s; its console ends"):
        wait_until_booted(hypervisor, BASE.name, console, 0.2)
    console.write_text("vicinal-guest: ready\n")
    wait_until_booted(hypervisor, BASE.name, console, 0)


def test_a_region_is_found_again_in_what_libvirt_shows(hypervisor: Hypervisor) -> None:
    define(hypervisor, FULL)
    start(hypervisor, FULL.name)
    xml = hypervisor.connection.lookupByName(FULL.name).XMLDesc()
    assert identity(xml) == ("papers", "a")
    assert region_device(xml, "job-1") is not None
    assert region_device(xml, "job-2") is None
    first, second = (ElementTree.fromstring(region_xml(SharedRegion("r", MIB))) for _ in range(2))
    aliases = [each.find("alias") for each in (first, second)]
    names = {alias.get("name", "") for alias in aliases if alias is not None}
    assert len(names) == 2  # a new name each time: QEMU may still hold the last region's memory
    assert all(name.startswith("ua-") for name in names)  # libvirt uses the other names


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("xen:///system", "is not a connection to QEMU: use qemu:///system"),
        ("qemu+unix:///system?socket=/nowhere", "cannot be reached .*: install and start libvirt"),
        ("qemu+unix:///session?socket=/nowhere", "cannot be reached .*: install libvirt-daemon"),
        ("qemu+ssh://nobody@256.256.256.256/system", "cannot be reached .*: check that ssh con"),
    ],
)
def test_what_cannot_be_reached_is_said_with_a_remedy(uri: str, message: str) -> None:
    with pytest.raises(VicinalError, match=message), connect(uri):
        pass


def test_a_daemon_that_does_not_let_us_in(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    program = (
        "from vicinal.cluster.vm.libvirt.connection import connect\n"
        "from vicinal.base.errors import VicinalError\n"
        "try:\n"
        f" with connect('qemu+unix:///system?socket={closed}/socket'): pass\n"
        "except VicinalError as error: print(error)\n"
    )
    done = subprocess.run(
        [*unprivileged_python(), "-c", program],
        env=os.environ | {"PYTHONPATH": package_path()},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        timeout=GUARD_SECONDS,
    )
    assert "(Failed to connect socket" in done.stdout
    assert done.stdout.endswith("join the group libvirt and log in again, or use qemu:///session\n")


def test_root_uses_the_system_and_others_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBVIRT_DEFAULT_URI", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("vicinal.cluster.vm.libvirt.uri.system_answers", lambda _: True)
    assert default_uri() == "qemu:///system"
    monkeypatch.setattr("vicinal.cluster.vm.libvirt.uri.system_answers", lambda _: False)
    assert is_own(default_uri())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_uri() == "qemu:///session"
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "qemu+ssh://host/system")
    assert default_uri() == "qemu+ssh://host/system"


def test_without_the_binding_there_is_one_clear_error() -> None:
    program = (
        "import sys; sys.modules['libvirt'] = None\n"
        "from vicinal.cluster.vm.libvirt.domain_xml import domain_xml\n"  # works
        "from vicinal.base.errors import VicinalError\n"
        "try:\n import vicinal.cluster.vm.libvirt.lifecycle\n"
        "except VicinalError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("libvirt cannot be used from Python (")
    assert "install libvirt-dev" in done.stdout


def test_only_a_clusters_own_file_is_removed_from_dev_shm() -> None:
    region = SharedRegion(new_shared_path().name, MIB)
    assert not remove_leftover(region)
    try:
        region.path.write_bytes(b"something else")
        with pytest.raises(VicinalError, match=r"has 14 bytes instead of 1048576.*by hand"):
            remove_leftover(region)
        os.truncate(region.path, MIB)
        if os.geteuid() == 0:
            os.chown(region.path, 12345, -1)
            with pytest.raises(VicinalError, match="belongs to the user 12345"):
                remove_leftover(region)
            assert remove_leftover(region, frozenset({12345}))
            region.path.touch()
            os.truncate(region.path, MIB)
        assert remove_leftover(region)
        region.path.symlink_to("/etc/passwd")
        with pytest.raises(VicinalError, match="is not a regular file"):
            remove_leftover(region)
    finally:
        region.path.unlink(missing_ok=True)
