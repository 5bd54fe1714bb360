"""Fake hosts: trees of files like those of sysfs and procfs.

The contents were written by hand, after the kernel's documentation. They prove what the checks make
of them, and prove nothing about real cards.
"""

from pathlib import Path

from vicinal.host.system import Host

XEON = """processor\t: 0
model name\t: Fake Xeon
flags\t\t: fpu vmx sse2

"""
GUEST = XEON.replace("vmx", "hypervisor")

MLX5, MLX5_VF = "0x15b3 0x101b", "0x15b3 0x101c"
MLX4, MLX4_VF = "0x15b3 0x1003", "0x15b3 0x1004"
IVSHMEM = "0x1af4 0x1110"

_INFINIBAND, _ETHERNET, _MEMORY = "0x020700", "0x020000", "0x050000"


class FakeHost:
    """A tree below a directory. Each method adds what it says about the host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "programs"
        self.programs.mkdir(parents=True)
        self.file("proc/cpuinfo", XEON)
        self.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet")
        self.file("proc/self/mounts", "proc /proc proc rw 0 0")
        self.file("proc/self/status", "Name:\tvicinal\nCapEff:\t0000000000000000\nSeccomp:\t0")

    def host(self, user: int = 1000) -> Host:
        return Host(root=self.root, search=str(self.programs), user=user)

    def file(self, name: str, text: str | int = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        return path

    def directory(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def program(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def mount(self, at: str, kind: str) -> None:
        mounts = self.root / "proc/self/mounts"
        mounts.write_text(mounts.read_text() + f"none {at} {kind} rw 0 0\n")

    def iommu(self, options: str = "intel_iommu=on iommu=pt") -> None:
        """An IOMMU, and the driver for guests. Devices bring their own groups."""
        self.file("proc/cmdline", f"BOOT_IMAGE=/vmlinuz {options}")
        self.file("sys/firmware/acpi/tables/DMAR")
        self.directory("sys/class/iommu/dmar0")
        self.directory("sys/bus/pci/drivers/vfio-pci")
        self.file("dev/vfio/vfio")

    def device(
        self,
        address: str,
        ids: str,
        *,
        kind: str = _INFINIBAND,
        driver: str | None = None,
        group: int | None = None,
        group_type: str = "identity",
        node: int = 0,
        interfaces: tuple[str, ...] = (),
    ) -> str:
        """A PCI device. Returns its directory."""
        directory = f"sys/bus/pci/devices/{address}"
        vendor, device = ids.split()
        self.file(f"{directory}/vendor", vendor)
        self.file(f"{directory}/device", device)
        self.file(f"{directory}/class", kind)
        self.file(f"{directory}/numa_node", node)
        if driver is not None:
            self.link(f"{directory}/driver", f"../../../bus/pci/drivers/{driver}")
        if group is not None:
            self.link(f"{directory}/iommu_group", f"../../../kernel/iommu_groups/{group}")
            self.file(f"sys/kernel/iommu_groups/{group}/type", group_type)
            self.link(f"sys/kernel/iommu_groups/{group}/devices/{address}", f"../../{address}")
        for name in interfaces:
            self.file(f"{directory}/net/{name}/operstate", "up")
            self.file(f"{directory}/net/{name}/carrier", 1)
            self.file(f"{directory}/net/{name}/speed", 100000)
        return directory

    def card(
        self,
        address: str,
        ids: str = MLX5,
        *,
        limit: int | None = 8,
        driver: str | None = "mlx5_core",
        kind: str = _INFINIBAND,
        group: int | None = 10,
        group_type: str = "identity",
        interfaces: tuple[str, ...] = ("ib0",),
    ) -> str:
        """A card that can have virtual functions, but has none yet."""
        directory = self.device(
            address,
            ids,
            kind=kind,
            driver=driver,
            group=group,
            group_type=group_type,
            interfaces=interfaces,
        )
        if limit is not None:
            self.file(f"{directory}/sriov_totalvfs", limit)
            self.file(f"{directory}/sriov_numvfs", 0)
        return directory

    def vf(
        self,
        card: str,
        number: int,
        address: str,
        ids: str = MLX5_VF,
        *,
        driver: str | None = None,
        group: int | None = None,
    ) -> str:
        """A virtual function of the card at an address."""
        directory = self.device(address, ids, driver=driver, group=group)
        self.link(f"{directory}/physfn", f"../{card}")
        self.link(f"sys/bus/pci/devices/{card}/virtfn{number}", f"../{address}")
        made = self.root / f"sys/bus/pci/devices/{card}/sriov_numvfs"
        made.write_text(f"{int(made.read_text()) + 1}\n")
        return directory

    def rdma(
        self,
        name: str,
        address: str | None,
        *,
        state: str = "4: ACTIVE",
        link: str = "5: LinkUp",
        guid: str = "0002:c903:00a1:b2c3",
        node_guid: str = "0002:c903:00a1:b2c0",
        lid: str = "0x7",
        subnet_manager: str = "0x1",
        layer: str = "InfiniBand",
    ) -> str:
        """An RDMA device with one port."""
        directory = f"sys/class/infiniband/{name}"
        if address is not None:
            self.link(f"{directory}/device", f"../../bus/pci/devices/{address}")
            self.directory(f"sys/bus/pci/devices/{address}/infiniband/{name}")
        self.file(f"{directory}/node_guid", node_guid)
        self.file(f"{directory}/fw_ver", "20.31.1014")
        port = f"{directory}/ports/1"
        self.file(f"{port}/state", state)
        self.file(f"{port}/phys_state", link)
        self.file(f"{port}/link_layer", layer)
        self.file(f"{port}/gids/0", f"fe80:0000:0000:0000:{guid}")
        self.file(f"{port}/lid", lid)
        self.file(f"{port}/sm_lid", subnet_manager)
        self.file(f"{port}/rate", "200 Gb/sec (4X HDR)")
        return directory

    def holds_vfio(self, process: int, name: str, group: int) -> None:
        """A process that holds a device by VFIO."""
        self.file(f"proc/{process}/comm", name)
        self.link(f"proc/{process}/fd/12", f"/dev/vfio/{group}")

    def node(
        self,
        number: int,
        cpus: str,
        distances: str,
        *,
        memory_kib: int = 64 << 20,
        reserved: int = 0,
        free: int = 0,
    ) -> None:
        """A NUMA node. Its huge pages have 2 MiB."""
        directory = f"sys/devices/system/node/node{number}"
        self.file(f"{directory}/cpulist", cpus)
        self.file(f"{directory}/distance", distances)
        self.file(
            f"{directory}/meminfo",
            f"Node {number} MemTotal:       {memory_kib} kB\n"
            f"Node {number} MemFree:        {memory_kib // 2} kB",
        )
        self.huge_pages(f"{directory}/hugepages", reserved, free)

    def huge_pages(self, directory: str, reserved: int, free: int) -> None:
        self.file(f"{directory}/hugepages-2048kB/nr_hugepages", reserved)
        self.file(f"{directory}/hugepages-2048kB/free_hugepages", free)

    def cpus(self, sockets: int, cores: int, threads: int = 1) -> None:
        """Processors with Linux's numbers: the first thread of each core, then second threads."""
        directory = "sys/devices/system/cpu"
        all_cores = sockets * cores
        self.file(f"{directory}/online", f"0-{all_cores * threads - 1}")
        for number in range(all_cores * threads):
            core = number % all_cores
            topology = f"{directory}/cpu{number}/topology"
            self.file(f"{topology}/core_id", core % cores)
            self.file(f"{topology}/physical_package_id", core // cores)
            same = ",".join(str(core + all_cores * thread) for thread in range(threads))
            self.file(f"{topology}/thread_siblings_list", same)

    def ivshmem(self, address: str, memory: bytes, *, doorbell: bool = False) -> str:
        """An ivshmem device whose memory is a file."""
        self.file("proc/cpuinfo", GUEST)
        directory = self.device(address, IVSHMEM, kind=_MEMORY)
        none = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
        interrupts = "0x00000000febd1000 0x00000000febd1fff 0x0000000000040200"
        last = 0xFE000000 + len(memory) - 1
        shared = f"0x00000000fe000000 0x{last:016x} 0x000000000014220c"
        registers = "0x00000000febd0000 0x00000000febd00ff 0x0000000000040200"
        lines = [registers, interrupts if doorbell else none, shared, none]
        self.file(f"{directory}/resource", "\n".join(lines))
        (self.root / directory / "resource2").write_bytes(memory)
        return directory


def xeon_with_mlx5(root: Path) -> FakeHost:
    """An Intel host with two sockets, an IOMMU, and a ConnectX card with four virtual functions."""
    fake = FakeHost(root)
    fake.iommu()
    fake.cpus(sockets=2, cores=8, threads=2)
    fake.node(0, "0-7,16-23", "10 21", reserved=1024, free=512)
    fake.node(1, "8-15,24-31", "21 10", reserved=1024, free=1024)
    fake.huge_pages("sys/kernel/mm/hugepages", 2048, 1536)
    fake.mount("/dev/hugepages", "hugetlbfs")
    card = "0000:3b:00.0"
    fake.card(card)
    fake.rdma("mlx5_0", card)
    for number, driver in enumerate(("vfio-pci", "vfio-pci", "mlx5_core", None)):
        fake.vf(card, number, f"0000:3b:00.{number + 1}", driver=driver, group=20 + number)
    fake.holds_vfio(4711, "qemu-system-x86", 20)
    fake.rdma("mlx5_3", "0000:3b:00.3", guid="0011:2233:4455:6677")
    return fake
