"""A virtual machine's hardware, independent of who runs its QEMU: Vicinal itself or libvirt.

Hardware has what both need: processors, memory, what the VM boots, and its devices, which
devices.py describes. qemu/command_line.py turns Hardware into QEMU's command line, and
libvirt/domain_xml.py into a domain's XML.
"""

from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import Disk, Interface, OpenWire, Region, add_text
from vicinal.cluster.vm.image.layout import KERNEL_WORDS

_SLOW_FEATURES = ("erms", "fsrm")
"""Without these features the C library copies by vectors instead of emulated single bytes."""


@dataclass(frozen=True)
class DirectBoot:
    """A kernel and its file system, which the hypervisor loads."""

    kernel: Path
    initrd: Path
    words: tuple[str, ...] = ()
    """Further words of the kernel's command line, which names the console already."""


@dataclass(frozen=True)
class Processors:
    """A VM's processors, and what executes them."""

    accelerator: Accelerator
    count: int

    @property
    def most(self) -> int:
        """The maximum number of processors.

        If there can be only one, TCG omits a guest's barriers and atomic instructions, because
        nobody inside could notice. But other guests share the memory, so the maximum is at least 2.
        """
        return self.count if self.accelerator is Accelerator.KVM else max(2, self.count)

    @property
    def words(self) -> list[str]:
        """The processors on QEMU's command line."""
        if self.accelerator is Accelerator.KVM:
            return ["-accel", "kvm", "-cpu", "host", "-smp", str(self.count)]
        model = ",".join(["max", *(f"-{feature}" for feature in _SLOW_FEATURES)])
        count = f"cpus={self.count},maxcpus={self.most}"
        return ["-accel", "tcg,thread=multi", "-cpu", model, "-smp", count]

    def add_count(self, domain: Element) -> None:
        """Add the number of processors to a domain."""
        count = add_text(domain, "vcpu", self.most, placement="static")
        if self.most != self.count:
            count.set("current", str(self.count))

    def add_model(self, domain: Element) -> Element:
        """Add the processor model to a domain."""
        if self.accelerator is Accelerator.KVM:
            return SubElement(domain, "cpu", mode="host-passthrough")
        model = SubElement(domain, "cpu", mode="maximum")
        for feature in _SLOW_FEATURES:
            SubElement(model, "feature", policy="disable", name=feature)
        return model


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A VM's hardware."""

    boot: DirectBoot | Disk
    console: Path
    """File for the output of the VM's console."""
    control: Path | None = None
    """Unix socket of the virtio port by which the host connects."""
    firmware_files: tuple[tuple[str, Path], ...] = ()
    """Files that the guest reads from QEMU's firmware configuration, by their names in opt/."""
    accelerator: Accelerator = Accelerator.TCG
    processors: int = 1
    memory_mib: int = 1024
    region: Region | None = None
    interfaces: tuple[Interface | OpenWire, ...] = ()

    @property
    def cpu(self) -> Processors:
        """The processors with their accelerator."""
        return Processors(self.accelerator, self.processors)

    @property
    def kernel_line(self) -> str:
        """The command line of a kernel that the hypervisor loads."""
        of_region = self.region.kernel_words if self.region is not None else ()
        of_boot = self.boot.words if isinstance(self.boot, DirectBoot) else ()
        return " ".join([*KERNEL_WORDS, *of_region, *of_boot])

    @property
    def module_bytes(self) -> int:
        """Size of the memory module, which needs a slot of the board; 0: there is none."""
        return self.region.module_bytes if self.region is not None else 0

    @property
    def most_memory_bytes(self) -> int:
        """Size of the memory together with the memory module."""
        return (self.memory_mib << 20) + self.module_bytes

    @property
    def interrupts(self) -> bool:
        """Whether the region's device sends interrupts.

        With KVM, QEMU then emulates the part of the interrupt controllers in which an IOMMU with
        interrupt remapping is involved (kernel-irqchip=split).
        """
        return self.region is not None and self.region.interrupts
