"""QEMU's command line of a guest whose QEMU Vicinal starts itself."""

from dataclasses import dataclass
from pathlib import Path

from vicinal.base.child import dies_with_parent
from vicinal.cluster.vm.devices import (
    Console,
    DoorbellRegion,
    FileRegion,
    Iommu,
    NvdimmRegion,
    OpenWire,
    Option,
    Port,
    Properties,
    SriovCard,
)
from vicinal.cluster.vm.hardware import DirectBoot, Hardware
from vicinal.cluster.vm.image.layout import CONTROL_PORT
from vicinal.cluster.vm.qemu.choice import Qemu

MEMORY_MIB = 1024


@dataclass(frozen=True, kw_only=True)
class QemuGuest(Hardware):
    """A guest whose QEMU Vicinal starts itself."""

    name: str
    boot: DirectBoot
    region: FileRegion | DoorbellRegion | NvdimmRegion | None = None
    interfaces: tuple[OpenWire, ...] = ()
    sriov_card: SriovCard | None = None

    def command(self, qemu: Qemu) -> list[str]:
        """The command line. QEMU ends with the thread that starts it, even if that is killed."""
        command = [*dies_with_parent(), *qemu.command, "-name", self.name]
        command += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
        command += [*self._board(), *self.cpu.words]
        command += ["-kernel", str(self.boot.kernel), "-initrd", str(self.boot.initrd)]
        command += ["-append", self.kernel_line, *Console(self.console).words]
        return [*command, *(word for option in self._options() for word in option.words)]

    @property
    def files(self) -> list[int]:
        """The open files that QEMU is to inherit."""
        files = [card.end.file for card in self.interfaces]
        if self.sriov_card is not None:
            files.append(self.sriov_card.end.file)
        return files

    def _board(self) -> list[str]:
        """The board and its memory; the bytes of a memory module are beside the guest's own."""
        machine: Properties = {"type": "q35"}
        memory = f"{self.memory_mib}M"
        if self.module_bytes:
            machine["nvdimm"] = True
            memory += f",slots=1,maxmem={self.most_memory_bytes >> 20}M"
        if self.interrupts:
            machine["kernel-irqchip"] = "split"
        return [*Option("machine", machine).words, "-m", memory]

    def _options(self) -> list[Option]:
        """The devices; QEMU gives them addresses in this order."""
        options = []
        if self.sriov_card is not None:
            options += self.sriov_card.options("fabric")
        if self.interrupts:  # before what it translates for
            options += Iommu().options()
        for name, file in self.firmware_files:
            options.append(Option("fw_cfg", {"name": name, "file": str(file)}))
        if self.region is not None:
            options += self.region.options()
        for number, card in enumerate(self.interfaces):
            options += card.options(f"wire{number}")
        if self.control is not None:
            options.append(Option("device", {"driver": "virtio-serial-pci"}))
            options += Port(CONTROL_PORT, self.control).options(1)
        return options


def escaped(path: Path) -> str:
    """A path as QEMU's option syntax wants it."""
    return str(path).replace(",", ",,")
