"""One virtual machine of a cluster: plain values, from which it can be made and found again.

write_commands() writes the commands of the cluster's file that the guest runs as root when it
boots. The guest knows of no earlier boot, because its file system is in its memory. So the file
with these commands changes when the first boot has succeeded.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.file.model import Commands, ImageAdditions
from vicinal.cluster.nodes.vm.layout import Files, Made
from vicinal.cluster.nodes.vm.network import FarMachine, Link, cards, interfaces
from vicinal.cluster.vm.devices import DoorbellRegion, HostFunction, NvdimmRegion, SharedRegion
from vicinal.cluster.vm.guest.identity import Identity
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.image.layout import COMMANDS_FILE, IDENTITY_FILE, guest_address
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec, Placement
from vicinal.cluster.vm.qemu.doorbell import VECTORS
from vicinal.cluster.vm.region_device import RegionDevice


@dataclass(frozen=True)
class Machine:
    """What a machine is to be."""

    owner: str
    """UID-CLUSTER: whose it is, and of what."""
    name: str
    """The node's."""
    number: int
    """Among the cluster's machines, from 0."""
    peers: tuple[int, ...]
    """Numbers of the others that it has a network with."""
    uri: str
    """Of the libvirt that makes it."""
    directory: str
    cpus: int
    memory_mib: int
    hugepages: bool = False
    processors: tuple[int, ...] = ()
    """Processors of the host, one for each of its own; empty: any."""
    emulator: tuple[int, ...] = ()
    """Those for all else that its QEMU does."""
    memory_nodes: tuple[int, ...] = ()
    """NUMA nodes that its memory must come from."""
    region: str | None = None
    """Name of the region in /dev/shm that it shares."""
    region_device: str = RegionDevice.IVSHMEM.value
    """What it has the region as."""
    doorbell: str | None = None
    """Socket of the server by which the region's device can interrupt; None: it cannot."""
    bridge: str | None = None
    """Bridge of the cluster's that it is joined with its peers by; None: by a wire to each."""
    bridge_is_ours: bool = True
    """Whether the cluster makes that bridge; else it is the host's, and was there."""
    link: Link | None = None
    """Its card in a network of the host's."""
    commands: Commands = field(default_factory=Commands)
    """What its guest runs when it boots."""
    additions: ImageAdditions = field(default_factory=ImageAdditions)
    """What it has beside the image of all."""
    additions_key: str = ""
    """What tells that, as it was when it was asked for, from all else."""
    device: str | None = None
    """PCI address of a whole device of the host's that it has."""
    function: str | None = None
    """By what name the records of `vicinal functions` have its virtual function."""
    far: tuple[FarMachine, ...] = ()
    """Machines of other hosts, each of which it is joined with by a wire of UDP."""

    @property
    def domain(self) -> str:
        """The name that libvirt knows it by."""
        return f"vicinal-{self.owner}-{self.name}"

    @property
    def address(self) -> str:
        """Its IPv4 address among the machines."""
        return guest_address(self.number)

    @property
    def identity(self) -> Identity:
        """Who its guest is, as that is told."""
        own = cards(self.number, self.peers, self.bridge, self.link)
        return Identity(self.number, self.name, self.address, own)

    @property
    def placement(self) -> Placement:
        """Where on the host it runs."""
        return Placement(
            tuple(frozenset({each}) for each in self.processors),
            frozenset(self.emulator),
            frozenset(self.memory_nodes),
        )

    @property
    def files(self) -> Files:
        """Where its things are."""
        return Files(Path(self.directory))

    @property
    def console(self) -> Path:
        """What it writes on its console."""
        return self.files.console(self.name)

    @property
    def saved(self) -> Path:
        """A file that is there from when it is saved until it begins anew."""
        return self.files.saved(self.name)

    def spec(self, functions: tuple[HostFunction, ...] = ()) -> DomainSpec:
        """Its domain, with these of the host's devices.

        The region, and what belongs to all machines, must be there.
        """
        files, made = self.files, Made.read(self.files)
        return DomainSpec(
            name=self.domain,
            cluster=self.owner,
            node=self.name,
            boot=DirectBoot(files.kernel, files.system_with(self.additions_key)),
            console=self.console,
            control=files.control(self.number),
            firmware_files=tuple(self._firmware_files()),
            accelerator=made.accelerator,
            processors=self.cpus,
            memory_mib=self.memory_mib,
            hugepages=self.hugepages,
            placement=self.placement,
            region=self._region(),
            functions=functions,
            interfaces=interfaces(files, self.number, self.peers, self.bridge, self.link, self.far),
        )

    def _firmware_files(self) -> Iterator[tuple[str, Path]]:
        yield IDENTITY_FILE, self.files.keys.archive(self.name)
        if self.commands:
            yield COMMANDS_FILE, self.files.commands(self.name)

    def _region(self) -> SharedRegion | DoorbellRegion | NvdimmRegion | None:
        if self.region is None:
            return None
        if self.doorbell is not None:  # its server has the memory
            return DoorbellRegion(self.region, Path(self.doorbell), VECTORS)
        place = Path("/dev/shm") / self.region
        try:
            size = place.stat().st_size
        except OSError as error:
            raise VicinalError(
                f"the region {place} cannot be used ({describe_os_error(error)})",
                "call `vicinal up`",
            ) from error
        if self.region_device == RegionDevice.NVDIMM:
            return NvdimmRegion(place, size)
        return SharedRegion(self.region, size)


def write_commands(machine: Machine, *, first: bool) -> None:
    """Write what a machine runs at its next boot, which is its first or a later one."""
    if not machine.commands:
        return
    file = machine.files.commands(machine.name)
    fresh = file.with_suffix(".part")
    fresh.touch(mode=0o600)
    fresh.write_text(commands_text(machine.commands, first=first))
    fresh.replace(file)


def commands_text(commands: Commands, *, first: bool) -> str:
    """What a guest runs at a boot, as its first process reads it."""
    lines = [("first_boot", line) for line in commands.first_boot if first]
    lines += [("each_boot", line) for line in commands.each_boot]
    # `run` is a function of guest_init.sh, which reads this.
    script = "".join(f"run {key} {shlex.quote(line)}\n" for key, line in lines)
    return f"# commands of the cluster's file\n{script}"
