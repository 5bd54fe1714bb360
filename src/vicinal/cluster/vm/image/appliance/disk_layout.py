"""The layout of the appliance's disk, and its partition table.

The disk boots with BIOS firmware and with UEFI, which read different parts. The root file system is
the last partition, because clouds enlarge disks, and it then grows at the first boot.
"""

import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.errors import VicinalError

SECTOR = 512
_MIB = 1 << 20
_SECONDS = 60

BOOT_OFFSET = 1 * _MIB
"""Offset of GRUB's core image, which a BIOS loads."""
BOOT_SIZE = 1 * _MIB
FIRMWARE_OFFSET = BOOT_OFFSET + BOOT_SIZE
"""Offset of the FAT file system that UEFI reads."""
FIRMWARE_SIZE = 48 * _MIB
ROOT_OFFSET = FIRMWARE_OFFSET + FIRMWARE_SIZE
DISK_SIZE = 4 << 30
"""Size of the disk as the VM sees it. The image file contains only written parts."""
ROOT_SIZE = DISK_SIZE - ROOT_OFFSET - _MIB  # the partition table's copy is at the end

# Types of partitions from the UEFI specification and from GRUB.
_KIND_BIOS_BOOT = "21686148-6449-6E6F-744E-656564454649"
_KIND_FIRMWARE = "C12A7328-F81F-11D2-BA4B-00C04FD430C8"
_KIND_ROOT = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"


@dataclass(frozen=True)
class Identity:
    """Identifiers on the disk, derived from a key: the same contents have the same identifiers."""

    key: str

    @property
    def root(self) -> uuid.UUID:
        """Of the root file system, which the boot loader and the kernel find by it."""
        return self._derive("root file system")

    @property
    def hash_seed(self) -> uuid.UUID:
        """The seed by which the root file system hashes the names in directories."""
        return self._derive("directories")

    def partition(self, name: str) -> uuid.UUID:
        """Of a partition, or of the partition table."""
        return self._derive(f"partition {name}")

    def _derive(self, what: str) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"urn:vicinal:appliance:{self.key}:{what}")


def make_disk(disk: Path, identity: Identity) -> None:
    """Create an empty disk of DISK_SIZE bytes with its partition table."""
    with disk.open("wb") as file:
        file.truncate(DISK_SIZE)
    partitions = (
        ("boot", BOOT_OFFSET, BOOT_SIZE, _KIND_BIOS_BOOT),
        ("firmware", FIRMWARE_OFFSET, FIRMWARE_SIZE, _KIND_FIRMWARE),
        ("root", ROOT_OFFSET, ROOT_SIZE, _KIND_ROOT),
    )
    lines = ["label: gpt", f"label-id: {identity.partition('table')}", "unit: sectors"]
    for name, offset, size, kind in partitions:
        lines.append(
            f"start={offset // SECTOR}, size={size // SECTOR}, type={kind}, "
            f"uuid={identity.partition(name)}, name=vicinal-{name}"
        )
    run_tool(
        "the partition table could not be written",
        ["sfdisk", "--quiet", "--no-reread", "--no-tell-kernel", str(disk)],
        "".join(f"{line}\n" for line in lines),
    )


def run_tool(what: str, command: list[str], given: str = "", seconds: float = _SECONDS) -> None:
    """Run a program on own files. Raises VicinalError, with `what` and the cause, if it fails."""
    try:
        subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=seconds, check=True
        )
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines() or ["no message"]
        raise VicinalError(
            f"{what} ({command[0]}: {lines[-1]})", f"check whether {command[0]} works on this host"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise VicinalError(
            f"{what} ({command[0]} did not end within {seconds:.0f} s)",
            "try again when this host is less busy",
        ) from error
