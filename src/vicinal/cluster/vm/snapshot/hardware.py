"""What guests that can share a snapshot have in common, and QEMU's command line of one.

Nothing of it tells one guest from another: cards and the region are plugged in later. For that the
board is the older one of QEMU's, into which any device can be plugged as it is.

No snapshot has an SR-IOV function in it. Functions of this host's cards are plugged in by VFIO once
the guest is there. A function is on vfio-pci by then, and its group's file in /dev/vfio is this
user's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vicinal.base.child import dies_with_parent
from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.guest.identity import Card, Identity
from vicinal.cluster.vm.hardware import Processors
from vicinal.cluster.vm.image.building import content_key
from vicinal.cluster.vm.image.layout import CONTROL_PORT, IDENTITY_PORT, KERNEL_WORDS
from vicinal.cluster.vm.qemu.choice import Qemu
from vicinal.cluster.vm.qemu.command_line import escaped

_MACHINE = "pc"
_WORDS = " ".join([*KERNEL_WORDS, "vicinal.waits=1"])
_HOLE = "i440FX-pcihost.pci-hole64-size=256G"
"""Of addresses, for regions that are plugged in."""
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
class Wire:
    """What a card is joined with: an open socket, whose other end is another guest's, or a tap."""

    file: int
    is_tap: bool = False

    def words(self, name: str) -> str:
        """It as QEMU is told."""
        if self.is_tap:
            return f"tap,id={name},fd={self.file}"
        return f"stream,id={name},addr.type=fd,addr.str={self.file}"


@dataclass(frozen=True)
class Hardware:
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
                *self._board("ram"),
                _WORDS,
                _processor_text(),
                _BOOT.read_text(),
            ]
        )

    def command(
        self,
        name: str,
        console: Path,
        sockets: Sockets,
        memory: str,
        wires: Sequence[Wire],
    ) -> list[str]:
        """The command line; it ends with the thread that starts it.

        `memory` is what its memory is in, as QEMU is told, and `wires` are what its cards will be
        joined with.
        """
        command = [*dies_with_parent(), *self.qemu.command, "-name", name]
        command += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
        command += self._board(memory)
        command += ["-kernel", str(self.kernel), "-initrd", str(self.files), "-append", _WORDS]
        command += ["-chardev", f"file,id=console,path={escaped(console)}"]
        command += ["-serial", "chardev:console", "-device", "virtio-serial-pci"]
        control = f"path={escaped(sockets.control)},server=on,wait=off"
        ports = ((CONTROL_PORT, control), (IDENTITY_PORT, f"fd={sockets.identity}"))
        for number, (port, end) in enumerate(ports, 1):
            command += ["-chardev", f"socket,id=port{number},{end}"]
            command += ["-device", f"virtserialport,chardev=port{number},name={port},nr={number}"]
        command += ["-chardev", f"socket,id=monitor,fd={sockets.monitor}"]
        command += ["-mon", "chardev=monitor,mode=control"]
        for number, wire in enumerate(wires):
            command += ["-netdev", wire.words(f"wire{number}")]
        return command

    def _board(self, memory: str) -> list[str]:
        board = ["-machine", f"{_MACHINE},memory-backend=memory", "-m", f"{self.memory_mib}M"]
        backend = f"memory-backend-{memory},id=memory,size={self.memory_mib}M"
        board += ["-global", _HOLE, "-object", backend]
        return [*board, *Processors(self.accelerator, self.cpus).words]


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
        return {"driver": "vfio-pci", "host": self.address}


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
