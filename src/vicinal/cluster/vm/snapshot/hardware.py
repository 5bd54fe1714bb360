"""What guests that can share a snapshot have in common.

Nothing of it tells one guest from another: cards and the region are plugged in later.

No snapshot has an SR-IOV function in it. Functions of this host's cards are plugged in by VFIO once
the guest is there. A function is on vfio-pci by then, and its group's file in /dev/vfio is this
user's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import HostFunction, OpenEnd
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
"""That can be plugged into such a guest: its board has 32 slots."""


@dataclass(frozen=True)
class Sockets:
    """Where a guest's QEMU is reached: ends of pairs that it is given, and the path of one."""

    monitor: int
    identity: int
    control: Path


@dataclass(frozen=True)
class SnapshotHardware:
    """The make of a guest."""

    qemu: Qemu
    accelerator: Accelerator
    kernel: Path
    files: Path
    """The archive that is its file system."""
    memory_mib: int
    cpus: int

    @property
    def key(self) -> str:
        """What tells this make from all others, on this host until it is booted anew."""
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
        """A guest of this make; `ends` are what its cards will be joined with."""
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
    """What the guest can see of this host's processors."""
    lines = dict.fromkeys(_PROCESSOR.read_text().splitlines())
    return "\n".join(line for line in lines if line.startswith(_PROCESSOR_LINES))


@dataclass(frozen=True)
class PassedFunction:
    """A function for a guest."""

    address: str
    """On this host's PCI bus."""
    driver: str
    """What is to drive it in the guest."""
    mac: str
    """The hardware address that its card gives it."""
    interface: str
    """What the guest calls it."""
    network: str | None = None
    """The address that it bears there, with the network's length."""

    @property
    def device(self) -> dict[str, object]:
        """It as QEMU is told to plug it in."""
        return dict(HostFunction(self.address).option.properties)


Functions = tuple[PassedFunction, ...]


def with_functions(identity: Identity, functions: Functions) -> Identity:
    """A guest that has these besides. Raises VicinalError for more than it has room for."""
    if len(identity.cards) + len(functions) >= MOST_DEVICES:
        raise VicinalError(
            f"{identity.name} has no room for {len(functions)} functions beside its "
            f"{len(identity.cards)} cards: {MOST_DEVICES - 1} in all",
            "spread them over more machines",
        )
    cards = (Card(each.mac, network=each.network or "", name=each.interface) for each in functions)
    drivers = tuple(dict.fromkeys(each.driver for each in functions))
    return replace(identity, cards=(*identity.cards, *cards), drivers=drivers)
