"""One virtual machine of a cluster as plain values, from which commands create and find it.

write_commands() writes the commands of the cluster file that the guest runs as root at boot. The
guest does not know of earlier boots, because its file system is in its memory. So the host
rewrites the file with these commands after the first successful boot.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.base.errors import VicinalError, describe_os_error
from vicinal.cluster.file.model import Commands, ImageAdditions
from vicinal.cluster.nodes.vm.layout import Files, Made
from vicinal.cluster.nodes.vm.network import FarVm, Link, cards, interfaces
from vicinal.cluster.vm.devices import DoorbellRegion, NvdimmRegion, PciFunction, SharedRegion
from vicinal.cluster.vm.guest.identity import Identity
from vicinal.cluster.vm.hardware import DirectBoot
from vicinal.cluster.vm.image.layout import COMMANDS_FILE, IDENTITY_FILE, guest_address
from vicinal.cluster.vm.libvirt.domain_spec import DomainSpec, Placement
from vicinal.cluster.vm.qemu.doorbell import VECTORS
from vicinal.cluster.vm.region_device import RegionDevice


@dataclass(frozen=True)
class Vm:
    """A virtual machine as the cluster file requests it."""

    owner: str
    """UID-CLUSTER: the user and the cluster that own the VM."""
    name: str
    """The node's name."""
    number: int
    """The VM's index among the cluster's VMs, from 0."""
    peers: tuple[int, ...]
    """Numbers of the other VMs in its network."""
    uri: str
    """URI of the libvirt that creates it."""
    directory: str
    cpus: int
    memory_mib: int
    hugepages: bool = False
    processors: tuple[int, ...] = ()
    """Processors of the host, one for each virtual processor; empty: any."""
    emulator: tuple[int, ...] = ()
    """Processors of the host for all other threads of QEMU."""
    memory_nodes: tuple[int, ...] = ()
    """NUMA nodes that its memory must come from; empty: any."""
    region: str | None = None
    """Name of the shared region in /dev/shm."""
    region_device: str = RegionDevice.IVSHMEM.value
    """The kind of device that gives the guest the region: a value of RegionDevice."""
    doorbell: str | None = None
    """Socket of the server that delivers interrupts of the region's device; None: no interrupts."""
    bridge: str | None = None
    """Bridge that joins it to its peers; None: one wire to each peer."""
    bridge_is_ours: bool = True
    """Whether the cluster creates that bridge; otherwise the bridge belongs to the host."""
    link: Link | None = None
    """Its card in a network of the host."""
    commands: Commands = field(default_factory=Commands)
    """Commands that the guest runs at boot."""
    additions: ImageAdditions = field(default_factory=ImageAdditions)
    """Additions to the common image."""
    additions_key: str = ""
    """Key of the additions' contents at the time of the request; see additions_key()."""
    device: str | None = None
    """PCI address of a whole device of the host that the VM gets."""
    vf: str | None = None
    """Owner name of its virtual function in the records of `vicinal vf`."""
    far: tuple[FarVm, ...] = ()
    """VMs on other hosts, each joined to it by a UDP wire."""

    @property
    def domain(self) -> str:
        """The name of its libvirt domain."""
        return f"vicinal-{self.owner}-{self.name}"

    @property
    def address(self) -> str:
        """Its IPv4 address in the VMs' own network."""
        return guest_address(self.number)

    @property
    def identity(self) -> Identity:
        """The identity that the guest receives."""
        own = cards(self.number, self.peers, self.bridge, self.link)
        return Identity(self.number, self.name, self.address, own)

    @property
    def placement(self) -> Placement:
        """The host's processors and NUMA nodes that it uses."""
        return Placement(
            tuple(frozenset({each}) for each in self.processors),
            frozenset(self.emulator),
            frozenset(self.memory_nodes),
        )

    @property
    def files(self) -> Files:
        """The paths of its files."""
        return Files(Path(self.directory))

    @property
    def console(self) -> Path:
        """The output of its console."""
        return self.files.console(self.name)

    @property
    def saved(self) -> Path:
        """A file that exists from the saving of the VM until its next boot."""
        return self.files.saved(self.name)

    def spec(self, pci_functions: tuple[PciFunction, ...] = ()) -> DomainSpec:
        """The specification of its domain, with these PCI functions of the host.

        Raises VicinalError if the region or the VMs' common files are missing.
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
            pci_functions=pci_functions,
            interfaces=interfaces(files, self.number, self.peers, self.bridge, self.link, self.far),
        )

    def _firmware_files(self) -> Iterator[tuple[str, Path]]:
        yield IDENTITY_FILE, self.files.keys.archive(self.name)
        if self.commands:
            yield COMMANDS_FILE, self.files.commands(self.name)

    def _region(self) -> SharedRegion | DoorbellRegion | NvdimmRegion | None:
        if self.region is None:
            return None
        if self.doorbell is not None:  # the doorbell server passes the memory to QEMU
            return DoorbellRegion(self.region, Path(self.doorbell), VECTORS)
        file = Path("/dev/shm") / self.region
        try:
            size = file.stat().st_size
        except OSError as error:
            raise VicinalError(
                f"the region {file} cannot be read ({describe_os_error(error)})",
                "call `vicinal up`",
            ) from error
        if self.region_device == RegionDevice.NVDIMM:
            return NvdimmRegion(file, size)
        return SharedRegion(self.region, size)


def write_commands(vm: Vm, *, first: bool) -> None:
    """Write the commands of a VM's next boot; `first` says that it is the first boot."""
    if not vm.commands:
        return
    file = vm.files.commands(vm.name)
    fresh = file.with_suffix(".part")
    fresh.touch(mode=0o600)
    fresh.write_text(commands_text(vm.commands, first=first))
    fresh.replace(file)


def commands_text(commands: Commands, *, first: bool) -> str:
    """The commands of a boot as a shell script, which the guest's first process reads."""
    lines = [("first_boot", line) for line in commands.first_boot if first]
    lines += [("each_boot", line) for line in commands.each_boot]
    # `run` is a function of guest_init.sh, which sources this script.
    script = "".join(f"run {key} {shlex.quote(line)}\n" for key, line in lines)
    return f"# commands of the cluster file\n{script}"
