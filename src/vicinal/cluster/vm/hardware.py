"""A virtual machine's hardware, whoever runs its QEMU."""

from dataclasses import dataclass
from pathlib import Path

from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.devices import Disk, Interface, Region


@dataclass(frozen=True)
class DirectBoot:
    """A kernel and its file system, loaded by the hypervisor itself."""

    kernel: Path
    initrd: Path
    words: tuple[str, ...] = ()
    """More of the kernel's command line; the console is on it already."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """A machine's hardware."""

    boot: DirectBoot | Disk
    console: Path
    """File that the machine's console is written to."""
    control: Path | None = None
    """Unix socket of the virtio port that the host gets in by."""
    firmware_files: tuple[tuple[str, Path], ...] = ()
    """Files that the guest can read from QEMU's firmware configuration, by names in opt/."""
    accelerator: Accelerator = Accelerator.TCG
    processors: int = 1
    memory_mib: int = 1024
    region: Region | None = None
    interfaces: tuple[Interface, ...] = ()
