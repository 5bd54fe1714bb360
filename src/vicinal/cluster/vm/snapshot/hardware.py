"""The hardware that all guests of one snapshot share.

It does not distinguish guests: cards and the region are plugged in later.

No snapshot contains an SR-IOV VF. VFIO plugs in VFs of this host's cards when the guest
runs. By then vfio-pci drives the VF, and this user owns its group's file in /dev/vfio.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import OpenEnd, PciFunction
from vicinal.cluster.vm.guest.identity import Card, Identity
from vicinal.cluster.vm.hardware import DirectBoot, Processors
from vicinal.cluster.vm.image.building import content_key
from vicinal.cluster.vm.image.layout import KERNEL_WORDS
from vicinal.cluster.vm.qemu.choice import Qemu
from vicinal.cluster.vm.qemu.command_line import OpenMemory, QemuGuest, Waiting, pluggable_board

_WORDS = ("vicinal.waits=1",)
_PROCESSOR = Path("/proc/cpuinfo")
_PROCESSOR_LINES = ("vendor_id", "model name", "stepping", "microcode", "flags")
_BOOT = Path("/proc/sys/kernel/random/boot_id")

MOST_DEVICES = 24
"""Number of devices that can be plugged into such a guest: its board has 32 slots."""


@dataclass(frozen=True)
class Sockets:
    """The host's connections to a guest's QEMU: two open socket ends, and the path of a socket."""

    monitor: int
    identity: int
    control: Path


@dataclass(frozen=True)
class SnapshotHardware:
    """The hardware of a guest without its own devices."""

    qemu: Qemu
    accelerator: Accelerator
    kernel: Path
    files: Path
    """The archive with its file system."""
    memory_mib: int
    cpus: int

    @property
    def key(self) -> str:
        """A key that identifies this hardware on this host, until the host reboots."""
        inputs = (f"{each} {_stamp(each)}" for each in (self.kernel, self.files))
        return content_key(
            [
                self.qemu.version,
                *self.qemu.command,
                self.accelerator,
                *inputs,
                *pluggable_board(OpenMemory(), self.memory_mib),
                *Processors(self.accelerator, self.cpus).words,
                " ".join([*KERNEL_WORDS, *_WORDS]),
                _processor_text(),
                _BOOT.read_text(),
            ]
        )

    def guest(
        self,
        name: str,
        console: Path,
        sockets: Sockets,
        memory: OpenMemory,
        ends: Sequence[OpenEnd],
    ) -> QemuGuest:
        """A guest with this hardware; its cards will be joined to `ends`."""
        return QemuGuest(
            name=name,
            boot=DirectBoot(self.kernel, self.files, _WORDS),
            console=console,
            control=sockets.control,
            accelerator=self.accelerator,
            processors=self.cpus,
            memory_mib=self.memory_mib,
            waiting=Waiting(memory, sockets.monitor, sockets.identity, ends),
        )


def _stamp(file: Path) -> str:
    status = file.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _processor_text() -> str:
    """What a guest can see of this host's processors."""
    lines = dict.fromkeys(_PROCESSOR.read_text().splitlines())
    return "\n".join(line for line in lines if line.startswith(_PROCESSOR_LINES))


@dataclass(frozen=True)
class PassedVf:
    """An SR-IOV VF for a guest."""

    address: str
    """PCI address on this host."""
    driver: str
    """Its driver in the guest."""
    mac: str
    """The hardware address that the card gives it."""
    interface: str
    """The interface's name in the guest."""
    network: str | None = None
    """Its address in its network, with the prefix length; None: none."""

    @property
    def device(self) -> dict[str, object]:
        """The VF as the arguments of QEMU's device_add."""
        return dict(PciFunction(self.address).option.properties)


PassedVfs = tuple[PassedVf, ...]


def with_vfs(identity: Identity, vfs: PassedVfs) -> Identity:
    """An identity with these VFs added. Raises VicinalError if there are too many devices."""
    if len(identity.cards) + len(vfs) >= MOST_DEVICES:
        raise VicinalError(
            f"{identity.name} has no room for {len(vfs)} VFs and "
            f"{len(identity.cards)} cards: it has room for {MOST_DEVICES - 1} of both together",
            "spread the VFs over more VMs",
        )
    cards = (Card(each.mac, network=each.network or "", name=each.interface) for each in vfs)
    drivers = tuple(dict.fromkeys(each.driver for each in vfs))
    return replace(identity, cards=(*identity.cards, *cards), drivers=drivers)
