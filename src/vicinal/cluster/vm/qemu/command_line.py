"""QEMU's command line of a guest whose QEMU Vicinal starts itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.base.child import dies_with_parent
from vicinal.cluster.vm.devices import (
    Console,
    DoorbellRegion,
    FileRegion,
    Iommu,
    NvdimmRegion,
    OpenEnd,
    OpenWire,
    Option,
    Port,
    Properties,
    SriovCard,
)
from vicinal.cluster.vm.hardware import DirectBoot, Hardware
from vicinal.cluster.vm.image.layout import CONTROL_PORT, IDENTITY_PORT
from vicinal.cluster.vm.qemu.choice import Qemu

MEMORY_MIB = 1024

_HOLE = "i440FX-pcihost.pci-hole64-size=256G"
"""Size of the address space for regions that are plugged in later."""


@dataclass(frozen=True)
class OpenMemory:
    """The memory of a guest: an open file, or QEMU's own memory."""

    file: int | None = None
    is_shared: bool = False
    """Whether the guest's writes reach the file."""

    def option(self, mib: int) -> Option:
        """The memory as an option of QEMU."""
        kind: Properties = {"qom-type": "memory-backend-ram"}
        if self.file is not None:
            kind = {"qom-type": "memory-backend-file", "mem-path": f"/proc/self/fd/{self.file}"}
            kind["share"] = self.is_shared
        return Option("object", {**kind, "id": "memory", "size": f"{mib}M"})


@dataclass(frozen=True)
class Waiting:
    """What QEMU needs for a guest that waits for its identity and then gets its own devices."""

    memory: OpenMemory
    monitor: int
    """Open socket for requests to QEMU, such as plugging in devices."""
    identity: int
    """Open socket of the port by which the guest receives its identity."""
    ends: Sequence[OpenEnd]
    """The host's ends of its future cards."""

    @property
    def files(self) -> list[int]:
        """The open files that QEMU inherits."""
        own = [self.monitor, self.identity, *(end.file for end in self.ends)]
        return own if self.memory.file is None else [*own, self.memory.file]

    def options(self) -> list[Option]:
        """All options except the memory and the port."""
        monitor: Properties = {"backend": "socket", "id": "monitor", "fd": self.monitor}
        options = [Option("chardev", monitor)]
        options.append(Option("mon", {"chardev": "monitor", "mode": "control"}))
        for number, end in enumerate(self.ends):
            options += end.options(f"wire{number}")
        return options


@dataclass(frozen=True, kw_only=True)
class QemuGuest(Hardware):
    """A guest whose QEMU Vicinal starts itself."""

    name: str
    boot: DirectBoot
    region: FileRegion | DoorbellRegion | NvdimmRegion | None = None
    interfaces: tuple[OpenWire, ...] = ()
    sriov_card: SriovCard | None = None
    waiting: Waiting | None = None
    """None: the guest has all its devices and its identity from the start."""

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
        """The open files that QEMU inherits."""
        files = [card.end.file for card in self.interfaces]
        if self.sriov_card is not None:
            files.append(self.sriov_card.end.file)
        return files if self.waiting is None else [*self.waiting.files, *files]

    def _board(self) -> list[str]:
        """The board with the guest's memory, and with room for a memory module beside it."""
        if self.waiting is not None:
            return pluggable_board(self.waiting.memory, self.memory_mib)
        machine: Properties = {"type": "q35"}
        memory = f"{self.memory_mib}M"
        if self.module_bytes:
            machine["nvdimm"] = True
            memory += f",slots=1,maxmem={self.most_memory_bytes >> 20}M"
        if self.interrupts:
            machine["kernel-irqchip"] = "split"
        return [*Option("machine", machine).words, "-m", memory]

    def _options(self) -> list[Option]:
        """The devices. QEMU assigns their addresses in this order."""
        options = []
        if self.sriov_card is not None:
            options += self.sriov_card.options("fabric")
        if self.interrupts:  # must precede the device whose interrupts it translates
            options += Iommu().options()
        for name, file in self.firmware_files:
            options.append(Option("fw_cfg", {"name": name, "file": str(file)}))
        if self.region is not None:
            options += self.region.options()
        for number, card in enumerate(self.interfaces):
            options += card.options(f"wire{number}")
        ports = []
        if self.control is not None:
            ports.append(Port(CONTROL_PORT, self.control))
        if self.waiting is not None:
            ports.append(Port(IDENTITY_PORT, self.waiting.identity))
        if ports:
            options.append(Option("device", {"driver": "virtio-serial-pci"}))
        for number, port in enumerate(ports, 1):
            options += port.options(number)
        return [*options, *(self.waiting.options() if self.waiting is not None else ())]


def pluggable_board(memory: OpenMemory, mib: int) -> list[str]:
    """QEMU's older board (pc), into which every device can be plugged without preparation."""
    board = ["-machine", "pc,memory-backend=memory", "-m", f"{mib}M", "-global", _HOLE]
    return [*board, *memory.option(mib).words]
