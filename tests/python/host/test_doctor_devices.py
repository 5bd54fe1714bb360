"""What `vicinal doctor` says about devices of fake hosts: the tests have no such cards."""

import errno
import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from fake_host import MLX4, MLX4_VF, FakeHost, xeon_with_mlx5

import vicinal.region
from vicinal.host import shared_device
from vicinal.host.checks import vms
from vicinal.host.checks.cards import check_infiniband, check_iommu, check_sriov
from vicinal.host.checks.vms import check_ivshmem, check_lockdown
from vicinal.host.finding import Finding, Status
from vicinal.host.pci import read_devices
from vicinal.host.sriov_facts import Use, read_physical_functions
from vicinal.host.system import Host

CARD = "0000:3b:00.0"
ETHERNET = "0x020000"


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "fake")


def one(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def first(findings: Iterable[Finding]) -> Finding:
    return next(iter(findings))


def statuses(findings: Iterable[Finding]) -> list[str]:
    return [finding.status.value for finding in findings]


# IOMMU


def test_an_iommu_with_passthrough_passes(tmp_path: Path) -> None:
    findings = list(check_iommu(xeon_with_mlx5(tmp_path / "fake").host()))
    assert statuses(findings) == ["pass", "pass"]
    assert "5 groups by dmar0" in findings[0].text
    assert "intel_iommu=on iommu=pt" in findings[0].text
    assert findings[0].facts["groups"] == 5


def test_an_iommu_that_translates_for_a_card_of_the_host_is_slower(fake: FakeHost) -> None:
    fake.iommu("intel_iommu=on")
    fake.card(CARD, group_type="DMA-FQ")
    finding = first(check_iommu(fake.host()))
    assert finding.status is Status.WARN
    assert CARD in finding.text
    assert "iommu=pt" in finding.remedy


@pytest.mark.parametrize(
    ("options", "table", "remedy"),
    [
        ("quiet", "DMAR", "intel_iommu=on"),
        ("amd_iommu=off", "IVRS", "remove amd_iommu=off from"),
        ("intel_iommu=off", "DMAR", "remove intel_iommu=off from"),
        ("quiet", "IVRS", "dmesg"),
        ("quiet", None, "firmware's set-up"),
    ],
)
def test_an_iommu_that_is_off_fails_where_there_is_a_card(
    fake: FakeHost, options: str, table: str | None, remedy: str
) -> None:
    fake.file("proc/cmdline", f"ro {options}")
    if table:
        fake.file(f"sys/firmware/acpi/tables/{table}")
    fake.card(CARD, group=None)
    finding = one(check_iommu(fake.host()))
    assert finding.status is Status.FAIL
    assert remedy in finding.remedy


def test_without_a_card_an_iommu_that_is_off_is_a_warning(fake: FakeHost) -> None:
    assert one(check_iommu(fake.host())).status is Status.SKIP
    fake.file("sys/firmware/acpi/tables/DMAR")
    assert one(check_iommu(fake.host())).status is Status.WARN


def test_without_vfio_devices_cannot_be_handed_over(fake: FakeHost) -> None:
    fake.iommu()
    (fake.root / "sys/bus/pci/drivers/vfio-pci").rmdir()
    fake.card(CARD)
    assert list(check_iommu(fake.host()))[1].remedy.startswith("run `modprobe vfio-pci`")


# SR-IOV


def test_vfs_and_who_uses_them(tmp_path: Path) -> None:
    host = xeon_with_mlx5(tmp_path / "fake").host()
    (card,) = read_physical_functions(host)
    assert (card.limit, card.created, card.by_sysfs) == (8, 4, True)
    assert [each.use for each in card.vfs] == [Use.GUEST, Use.RESERVED, Use.HOST, Use.FREE]
    assert card.vfs[0].holders == ("qemu-system-x86 (4711)",)
    assert card.vfs[2].device.rdma_devices == ("mlx5_3",)

    findings = list(check_sriov(host))
    assert statuses(findings) == ["pass", "pass"]
    assert "4 of 8 VFs created: 1 in guests (qemu-system-x86 (4711))" in findings[0].text
    assert [each["use"] for each in findings[0].facts["vfs"]] == [
        "guest",
        "reserved",
        "host",
        "free",
    ]
    assert "ib0: the link is up, 100000 Mb/s" in findings[1].text


def test_the_newer_files_of_vfio_name_holders_too(fake: FakeHost) -> None:
    fake.iommu()
    fake.card(CARD)
    device_directory = fake.vf(CARD, 0, "0000:3b:00.1", driver="vfio-pci", group=20)
    fake.directory(f"{device_directory}/vfio-dev/vfio3")
    fake.file("proc/99/comm", "qemu")
    fake.link("proc/99/fd/7", "/dev/vfio/devices/vfio3")
    (card,) = read_physical_functions(fake.host())
    assert card.vfs[0].holders == ("qemu (99)",)


def test_that_a_guest_has_a_vf_shows_without_the_process(fake: FakeHost) -> None:
    fake.card(CARD)
    device_directory = fake.vf(CARD, 0, "0000:3b:00.1", driver="vfio-pci", group=20)
    fake.file(f"{device_directory}/enable", 1)
    (card,) = read_physical_functions(fake.host())
    assert (card.vfs[0].use, card.vfs[0].holders) == (Use.GUEST, ())
    assert first(check_sriov(fake.host())).text.endswith("created: 1 in guests")


def test_a_card_without_vfs_passes_with_what_it_could_have(fake: FakeHost) -> None:
    fake.card(CARD)
    finding = first(check_sriov(fake.host()))
    assert finding.status is Status.PASS
    assert "up to 8 can be created" in finding.text


@pytest.mark.parametrize("limit", [0, None])
def test_firmware_without_vfs_fails_with_the_tool_that_changes_it(
    fake: FakeHost, limit: int | None
) -> None:
    fake.card(CARD, limit=limit, interfaces=())
    finding = one(check_sriov(fake.host()))
    assert finding.status is Status.FAIL
    assert f"mstconfig -d {CARD} set SRIOV_EN=1" in finding.remedy


def test_a_card_of_another_maker_gets_no_tool_of_mellanox(fake: FakeHost) -> None:
    fake.card(CARD, "0x8086 0x159b", kind=ETHERNET, driver="ice", limit=0, interfaces=())
    finding = one(check_sriov(fake.host()))
    assert finding.status is Status.FAIL
    assert "mstconfig" not in finding.remedy


def test_a_vf_in_a_guest_is_not_taken_for_a_card_that_is_off(fake: FakeHost) -> None:
    fake.file("proc/cpuinfo", "flags\t\t: fpu hypervisor")
    fake.device("0000:05:00.0", "0x15b3 0x101c", driver="mlx5_core")
    assert one(check_sriov(fake.host())).status is Status.SKIP


def test_fewer_vfs_than_were_asked_for_fails(fake: FakeHost) -> None:
    device_directory = fake.card(CARD)
    fake.vf(CARD, 0, "0000:3b:00.1", group=20)
    fake.file(f"{device_directory}/sriov_numvfs", 4)
    finding = first(check_sriov(fake.host()))
    assert finding.status is Status.FAIL
    assert "4 VFs are enabled, but 1 exist" in finding.text


def test_connectx3_makes_vfs_by_a_parameter(fake: FakeHost) -> None:
    fake.card(CARD, MLX4, driver="mlx4_core", limit=16, interfaces=())
    finding = one(check_sriov(fake.host()))
    assert finding.status is Status.WARN
    assert "options mlx4_core num_vfs=" in finding.remedy


def test_a_shared_group_cannot_be_given_away(fake: FakeHost) -> None:
    fake.card(CARD)
    fake.vf(CARD, 0, "0000:3b:00.1", group=20)
    fake.device("0000:3b:00.7", "0x8086 0x1234", group=20)
    finding = list(check_sriov(fake.host()))[-1]
    assert finding.status is Status.FAIL
    assert "0000:3b:00.1 with 0000:3b:00.7" in finding.text
    assert "ACS" in finding.remedy


def test_links_that_are_down(fake: FakeHost) -> None:
    device_directory = fake.card(CARD, interfaces=("ens1f0", "ens1f1"), kind=ETHERNET)
    fake.file(f"{device_directory}/net/ens1f0/operstate", "down")
    fake.file(f"{device_directory}/net/ens1f0/carrier", 0)
    fake.file(f"{device_directory}/net/ens1f1/operstate", "down")
    (fake.root / device_directory / "net/ens1f1/carrier").unlink()
    _, unplugged, turned_off = check_sriov(fake.host())
    assert unplugged.status is turned_off.status is Status.WARN
    assert "the other end does not answer" in unplugged.text
    assert turned_off.remedy == "run `ip link set ens1f1 up`"


# InfiniBand


def test_an_active_port_passes_with_its_subnet_manager(fake: FakeHost) -> None:
    fake.rdma("mlx5_0", fake.card(CARD).rpartition("/")[2])
    finding = one(check_infiniband(fake.host()))
    assert finding.status is Status.PASS
    assert "subnet manager at LID 1" in finding.text
    assert finding.facts["guid"] == "0002:c903:00a1:b2c3"


def test_a_zero_guid_fails_with_the_commands_that_set_it(fake: FakeHost) -> None:
    fake.card(CARD)
    fake.vf(CARD, 2, "0000:3b:00.3", driver="mlx5_core", group=20)
    zero = "0000:0000:0000:0000"
    fake.rdma(
        "mlx5_3", "0000:3b:00.3", guid=zero, node_guid=zero, state="1: DOWN", link="3: Disabled"
    )
    finding = one(check_infiniband(fake.host()))
    assert finding.status is Status.FAIL
    assert "port and node GUID are zero, and the port is DOWN" in finding.text
    assert "vicinal vf assign 0000:3b:00.3" in finding.remedy
    assert "--node-guid GUID --port-guid GUID" in finding.remedy


def test_a_zero_guid_of_connectx3_has_no_node_to_set(fake: FakeHost) -> None:
    fake.card(CARD, MLX4, driver="mlx4_core")
    fake.rdma("mlx4_0", CARD)
    fake.vf(CARD, 1, "0000:3b:00.2", MLX4_VF, driver="mlx4_core", group=20)
    fake.rdma("mlx4_2", "0000:3b:00.2", guid="0000:0000:0000:0000", state="1: DOWN")
    _, finding = check_infiniband(fake.host())
    assert finding.status is Status.FAIL
    assert "vicinal vf assign 0000:3b:00.2" in finding.remedy
    assert "--node-guid" not in finding.remedy


def test_in_a_guest_a_zero_guid_is_for_its_host_to_set(fake: FakeHost) -> None:
    fake.device("0000:05:00.0", "0x15b3 0x101c", driver="mlx5_core")
    fake.rdma("mlx5_0", "0000:05:00.0", guid="0000:0000:0000:0000", state="1: DOWN")
    assert one(check_infiniband(fake.host())).remedy.startswith("on the host that assigned")


def test_a_guid_that_the_subnet_manager_assigns_is_none_that_is_missing(fake: FakeHost) -> None:
    fake.card(CARD, MLX4, driver="mlx4_core")
    device_directory = fake.rdma("mlx4_0", CARD)
    for number in (1, 2):
        fake.vf(CARD, number - 1, f"0000:3b:00.{number}", MLX4_VF, group=20 + number)
    fake.file(f"{device_directory}/iov/ports/1/admin_guids/1", "0x0")
    fake.file(f"{device_directory}/iov/ports/1/admin_guids/2", "0x0014050000000002")
    assert statuses(check_infiniband(fake.host())) == ["pass"]
    fake.file(f"{device_directory}/iov/ports/1/admin_guids/2", "0xffffffffffffffff")
    _, deleted = check_infiniband(fake.host())
    assert deleted.facts["vfs"] == [2]


def test_vfs_whose_guids_the_card_says_are_unset(fake: FakeHost) -> None:
    device_directory = fake.card(CARD)
    fake.rdma("mlx5_0", CARD)
    for number, guid in enumerate(("00:11:22:33:44:55:66:77", "00:00:00:00:00:00:00:00")):
        for kind in ("node", "port"):
            fake.file(f"{device_directory}/sriov/{number}/{kind}", guid)
    _, unset = check_infiniband(fake.host())
    assert unset.status is Status.WARN
    assert unset.facts["vfs"] == [1]


@pytest.mark.parametrize(
    ("state", "link", "manager", "status", "remedy"),
    [
        ("2: INIT", "5: LinkUp", "0x0", Status.FAIL, "start a subnet manager"),
        ("2: INIT", "5: LinkUp", "0x1", Status.FAIL, "read the log of the subnet manager, LID 1"),
        ("3: ARMED", "5: LinkUp", "0x1", Status.FAIL, "read the log of the subnet manager"),
        ("1: DOWN", "2: Polling", "0x0", Status.WARN, "check cable"),
        ("1: DOWN", "3: Disabled", "0x0", Status.FAIL, "ibportstate -C mlx5_0 -P 1 enable"),
        ("4: ACTIVE", "5: LinkUp", "0x0", Status.WARN, "sminfo"),
    ],
)
def test_ports_that_are_not_ready(
    fake: FakeHost, state: str, link: str, manager: str, status: Status, remedy: str
) -> None:
    fake.card(CARD)
    fake.rdma("mlx5_0", CARD, state=state, link=link, subnet_manager=manager)
    finding = one(check_infiniband(fake.host()))
    assert finding.status is status
    assert remedy in finding.remedy


def test_rdma_over_ethernet_needs_no_subnet_manager(fake: FakeHost) -> None:
    fake.rdma("rxe0", None, layer="Ethernet", subnet_manager="0x0", lid="0x0")
    assert one(check_infiniband(fake.host())).status is Status.PASS


# Lockdown and ivshmem


@pytest.mark.parametrize("mode", ["integrity", "confidentiality"])
def test_lockdown_fails_in_a_guest_with_a_region_alone(fake: FakeHost, mode: str) -> None:
    modes = "none integrity confidentiality".replace(mode, f"[{mode}]")
    fake.file("sys/kernel/security/lockdown", modes)
    assert one(check_lockdown(fake.host())).status is Status.PASS
    fake.ivshmem("0000:00:04.0", bytes(4096))
    finding = one(check_lockdown(fake.host()))
    assert finding.status is Status.FAIL
    assert finding.facts["mode"] == mode


def test_without_lockdown(fake: FakeHost) -> None:
    assert one(check_lockdown(fake.host())).status is Status.SKIP
    fake.file("sys/kernel/security/lockdown", "[none] integrity confidentiality")
    assert one(check_lockdown(fake.host())).status is Status.PASS


@pytest.fixture
def region(region_path: Path) -> bytes:
    vicinal.region.create(region_path, members=4, for_guests=True)
    return region_path.read_bytes()


@pytest.mark.parametrize("doorbell", [False, True])
def test_a_region_is_found_in_an_ivshmem_device(
    fake: FakeHost, region: bytes, doorbell: bool
) -> None:
    device_directory = fake.ivshmem("0000:00:04.0", region, doorbell=doorbell)
    fake.file(
        "sys/kernel/debug/x86/pat_memtype_list",
        "PAT memtype list:\nmemtype: [mem 0x00000000fe000000-0x00000000ff000000] uncached-minus",
    )
    finding = one(check_ivshmem(fake.host()))
    assert finding.status is Status.PASS, finding
    assert ("ivshmem-doorbell" if doorbell else "ivshmem-plain") in finding.text
    assert "a region for 4 members" in finding.text
    assert "uncached-minus" in finding.text
    assert finding.facts["times_slower"] < shared_device.SLOW
    assert (
        fake.root / device_directory / "resource2"
    ).read_bytes() == region  # the check wrote nothing


def test_the_older_list_of_page_attributes_is_understood(fake: FakeHost, region: bytes) -> None:
    fake.ivshmem("0000:00:04.0", region)
    fake.file("sys/kernel/debug/x86/pat_memtype_list", "write-combining @ 0xfe000000-0xff000000")
    assert one(check_ivshmem(fake.host())).facts["attribute"] == "write-combining"


def test_a_device_without_a_region_is_a_warning(fake: FakeHost) -> None:
    fake.ivshmem("0000:00:04.0", bytes(1 << 20))
    finding = one(check_ivshmem(fake.host()))
    assert finding.status is Status.WARN
    assert "vicinal region create --existing" in finding.remedy


def test_a_region_of_another_version_fails(fake: FakeHost, region: bytes) -> None:
    fake.ivshmem("0000:00:04.0", region[:8] + (99).to_bytes(4, "little") + region[12:])
    assert "format 99" in one(check_ivshmem(fake.host())).text


def test_memory_that_is_shorter_than_the_device_says_fails(fake: FakeHost, region: bytes) -> None:
    device_directory = fake.ivshmem("0000:00:04.0", region)
    (fake.root / device_directory / "resource2").write_bytes(region[:4096])
    assert one(check_ivshmem(fake.host())).status is Status.FAIL


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EACCES, "udev rule"), (errno.EPERM, "without Secure Boot")]
)
def test_a_device_that_cannot_be_mapped(
    fake: FakeHost, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """Root can do everything with a fake host's files, so the kernel's refusal is a fake too."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(vms, "map_memory", refuse)
    fake.ivshmem("0000:00:04.0", bytes(4096))
    finding = one(check_ivshmem(fake.host()))
    assert finding.status is Status.FAIL
    assert remedy in finding.remedy


def test_slow_memory_fails(fake: FakeHost, region: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_device, "_copy_seconds", lambda memory, _: len(memory) * 1e-9)
    fake.ivshmem("0000:00:04.0", region)  # far longer than the reference
    finding = one(check_ivshmem(fake.host()))
    assert finding.status is Status.FAIL
    assert "nvdimm" in finding.remedy


def dax(fake: FakeHost, memory: bytes) -> Path:
    """A /dev/dax whose memory is a file."""
    fake.file("sys/bus/dax/devices/dax0.0/size", len(memory))
    fake.file("sys/bus/dax/devices/dax0.0/resource", "0x140200000")
    device = fake.file("dev/dax0.0")
    device.write_bytes(memory)
    return device


def test_a_region_is_found_in_a_memory_module(fake: FakeHost, region: bytes) -> None:
    """The module's range starts before the region, with the kernel's info block."""
    device = dax(fake, region)
    fake.file(
        "sys/kernel/debug/x86/pat_memtype_list",
        "PAT memtype list:\n"
        "PAT: [mem 0x00000000fe000000-0x00000000ff000000] uncached-minus\n"
        "PAT: [mem 0x0000000140000000-0x0000000141200000] write-back",
    )
    finding = one(check_ivshmem(fake.host()))
    assert finding.status is Status.PASS, finding
    assert "/dev/dax0.0" in finding.text
    assert "a region for 4 members" in finding.text
    assert "write-back" in finding.text
    assert 0 < finding.facts["times_slower"] < shared_device.SLOW
    assert device.read_bytes() == region  # the check wrote nothing


def test_memory_modules_for_other_uses_are_looked_at_and_left_alone(fake: FakeHost) -> None:
    memory = random.Random(7).randbytes(1 << 20)
    device = dax(fake, memory)
    finding = one(check_ivshmem(fake.host()))
    assert finding.status is Status.WARN
    assert "unless the module has another purpose" in finding.remedy
    assert device.read_bytes() == memory


def test_a_memory_module_of_somebody_elses(fake: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(vms, "map_memory", refuse)
    dax(fake, bytes(4096))
    finding = one(check_ivshmem(fake.host()))
    assert finding.status is Status.WARN
    assert "udev rule" in finding.remedy


def test_a_memory_module_without_memory_fails(fake: FakeHost) -> None:
    fake.file("sys/bus/dax/devices/dax0.0/size", 0)
    assert one(check_ivshmem(fake.host())).status is Status.FAIL


def test_this_hosts_own_devices_are_read() -> None:
    """The test reads the real sysfs of the machine that runs the tests, whatever devices it has."""
    host = Host()
    device_directory = Path("/sys/bus/pci/devices")
    there = (
        sorted(path.name for path in device_directory.iterdir())
        if device_directory.is_dir()
        else []
    )
    assert sorted(device.address for device in read_devices(host)) == there
    for device in read_devices(host):
        assert int((device_directory / device.address / "vendor").read_text(), 16) == device.vendor
