"""QEMU's command line of a guest."""

from dataclasses import dataclass
from pathlib import Path

from vicinal.base.child import dies_with_parent
from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.guest.identity import card_address
from vicinal.cluster.vm.image.building import GuestImage
from vicinal.cluster.vm.image.layout import CONTROL_PORT, IDENTITY_FILE, KERNEL_WORDS
from vicinal.cluster.vm.qemu.choice import Qemu
from vicinal.cluster.vm.qemu.doorbell import Doorbell
from vicinal.cluster.vm.region_device import RegionDevice

MEMORY_MIB = 1024


@dataclass(frozen=True)
class GuestDevices:
    """What a guest of a pair is connected to."""

    region: Path
    region_bytes: int
    region_device: RegionDevice
    doorbell: Doorbell | None
    """What the region's device connects to, if it is one that can interrupt."""
    network: int
    """File descriptor of this guest's end of the wire between the two."""
    fabric: int | None
    """The same of another wire, between SR-IOV cards; None: there are none."""
    control: Path
    """Where QEMU is to open the socket of the virtio port that the host gets in by."""
    identity: Path
    """Archive of what this guest alone has: ../guest/identity.py."""
    number: int
    """The guest's, which its cards have in their hardware addresses."""


def guest_command(
    qemu: Qemu,
    name: str,
    image: GuestImage,
    accelerator: Accelerator,
    console: Path,
    devices: GuestDevices | None,
) -> list[str]:
    """The command line of a guest. It ends with the process that starts it, even if killed.

    Without `devices` the guest powers off as soon as its user space runs.
    """
    command = [*dies_with_parent(), *qemu.command, "-name", name]
    command += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    command += [*_machine(devices), *processor(accelerator)]
    command += ["-kernel", str(image.kernel), "-initrd", str(image.files)]
    command += ["-append", " ".join([*KERNEL_WORDS, *_words(devices)])]
    command += ["-chardev", f"file,id=console,path={escaped(console)}"]
    command += ["-serial", "chardev:console"]
    if devices is None:
        return command
    if devices.fabric is not None:
        # A card makes functions only behind a port of its own.
        command += ["-device", "pcie-root-port,id=socket,chassis=1"]
        command += ["-netdev", f"stream,id=fabric,addr.type=fd,addr.str={devices.fabric}"]
        hardware_address = f"52:54:00:00:01:{devices.number + 1:02x}"
        command += ["-device", f"igb,bus=socket,netdev=fabric,mac={hardware_address},romfile="]
    if devices.doorbell is not None:
        # Before what it translates for. vfio-pci takes no device without.
        command += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
    command += ["-fw_cfg", f"name={IDENTITY_FILE},file={escaped(devices.identity)}"]
    command += _region(devices)
    command += ["-netdev", f"stream,id=wire0,addr.type=fd,addr.str={devices.network}"]
    command += [
        "-device",
        f"virtio-net-pci,netdev=wire0,mac={card_address(devices.number)},romfile=",
    ]
    command += ["-device", "virtio-serial-pci"]
    control = f"path={escaped(devices.control)},server=on,wait=off"
    command += ["-chardev", f"socket,id=port1,{control}"]
    return [*command, "-device", f"virtserialport,chardev=port1,name={CONTROL_PORT},nr=1"]


def _words(devices: GuestDevices | None) -> list[str]:
    """More of the kernel's command line."""
    if devices is None:
        return ["vicinal.probe=1"]
    words = [] if devices.fabric is None else ["vicinal.verbs=1"]
    return words if devices.doorbell is None else [*words, "vicinal.doorbell=1", "intel_iommu=on"]


def _region(devices: GuestDevices) -> list[str]:
    """The device that shows the region."""
    if devices.doorbell is not None:  # the server has the memory
        command = ["-chardev", f"socket,id=doorbell,path={escaped(devices.doorbell.socket)}"]
        device = f"{devices.region_device},chardev=doorbell,vectors={devices.doorbell.vectors}"
        return [*command, "-device", device]
    memory = f"mem-path={escaped(devices.region)},size={devices.region_bytes},share=on"
    command = ["-object", f"memory-backend-file,id=region,{memory}"]
    return [*command, "-device", f"{devices.region_device},memdev=region"]


def _machine(devices: GuestDevices | None) -> list[str]:
    """The board and its memory; a module takes a slot, and its bytes are beside the guest's own."""
    if devices is None or devices.region_device is not RegionDevice.NVDIMM:
        # KVM leaves to QEMU what an IOMMU that remaps interrupts has a part in.
        split = ",kernel-irqchip=split" if devices is not None and devices.doorbell else ""
        return ["-machine", f"q35{split}", "-m", f"{MEMORY_MIB}M"]
    most = MEMORY_MIB + (devices.region_bytes >> 20)
    return ["-machine", "q35,nvdimm=on", "-m", f"{MEMORY_MIB}M,slots=1,maxmem={most}M"]


def processor(accelerator: Accelerator, cpus: int = 1) -> list[str]:
    """What executes a guest, and its processors."""
    if accelerator is Accelerator.KVM:
        return ["-accel", "kvm", "-cpu", "host", "-smp", str(cpus)]
    # With one processor for ever, TCG makes no barriers and no atomic instructions of a
    # guest's, since nobody could tell. Here the other guest could: so say there may be two.
    # Without erms and fsrm the C library copies by vectors, not by emulated single bytes.
    features = "max,-erms,-fsrm"
    smp = f"cpus={cpus},maxcpus={max(cpus, 2)}"
    return ["-accel", "tcg,thread=multi", "-cpu", features, "-smp", smp]


def escaped(path: Path) -> str:
    """A path as QEMU's option syntax wants it."""
    return str(path).replace(",", ",,")
