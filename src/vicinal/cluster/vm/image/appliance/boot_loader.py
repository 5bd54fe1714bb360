"""Making a disk image bootable with GRUB, without root, loop devices, or an installed GRUB.

GRUB's parts go where firmware looks for them. For a BIOS, the boot code goes into the first sector,
and GRUB's core image into a partition of its own. For UEFI, a program goes into a FAT file system.
Both contain all needed modules, find the root file system by its identifier, and read its menu.
"""

import struct
import tempfile
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.image.appliance.disk_layout import (
    BOOT_OFFSET,
    BOOT_SIZE,
    FIRMWARE_OFFSET,
    FIRMWARE_SIZE,
    SECTOR,
    Identity,
    run_tool,
)

GRUB = Path("/usr/lib/grub")
BIOS, UEFI = "i386-pc", "x86_64-efi"

_MODULES = (
    *("part_gpt", "ext2", "search", "search_fs_uuid"),
    *("normal", "configfile", "linux", "serial", "terminal"),
    *("echo", "test", "ls", "cat", "reboot", "halt"),
)
_MODULES_OF = {BIOS: ["biosdisk", "vga_text"], UEFI: ["efi_gop", "video"]}

# From GRUB's boot.S and diskboot.S: bytes of the first sector before the partition table, ...
_CODE_SIZE = 440
# ... where the first sector has the sector number of the core image, and where it has a jump for
# BIOSes that report a wrong disk number. As grub-install does on a disk, the jump is removed ...
_CORE_SECTOR = 0x5C
_DRIVE_CHECK = 0x66
_NO_OPERATION = b"\x90\x90"
# ... and where the core image's first sector has the sector number of its remainder.
_REST_SECTOR = SECTOR - 12


def install_bios(disk: Path, identity: Identity) -> None:
    """Make the disk bootable by a BIOS."""
    core = bytearray(_core_image(BIOS, identity))
    if len(core) > BOOT_SIZE:
        raise VicinalError(
            f"GRUB's core image has {len(core)} bytes, and its partition has {BOOT_SIZE}",
            "use the GRUB of a Debian release",
        )
    first = BOOT_OFFSET // SECTOR
    struct.pack_into("<Q", core, _REST_SECTOR, first + 1)
    code = bytearray((GRUB / BIOS / "boot.img").read_bytes()[:_CODE_SIZE])
    struct.pack_into("<Q", code, _CORE_SECTOR, first)
    code[_DRIVE_CHECK : _DRIVE_CHECK + len(_NO_OPERATION)] = _NO_OPERATION
    with disk.open("r+b") as file:
        file.write(code)
        file.seek(BOOT_OFFSET)
        file.write(core)


def install_uefi(disk: Path, identity: Identity) -> None:
    """Make the disk bootable by UEFI firmware, unless it requires signed programs."""
    what = "the file system for UEFI could not be written"
    partition = f"{disk}@@{FIRMWARE_OFFSET}"
    sectors = FIRMWARE_SIZE // SECTOR
    # -c: one sector a cluster, because FAT32 needs the number of clusters that fills some 33 MB.
    run_tool(
        what, ["mformat", "-i", partition, "-F", "-c", "1", "-T", str(sectors), "-v", "VICINAL"]
    )
    with tempfile.NamedTemporaryFile() as program:
        program.write(_core_image(UEFI, identity))
        program.flush()
        run_tool(what, ["mmd", "-i", partition, "::EFI", "::EFI/BOOT"])
        run_tool(what, ["mcopy", "-i", partition, program.name, "::EFI/BOOT/BOOTX64.EFI"])


def _core_image(platform: str, identity: Identity) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        configuration, core = Path(directory, "grub.cfg"), Path(directory, "core")
        configuration.write_text(
            f"search.fs_uuid {identity.root} root\n"
            "set prefix=($root)/boot/grub\n"
            "configfile ($root)/boot/grub/grub.cfg\n"
        )
        command = ["grub-mkimage", "--format", platform, "--directory", str(GRUB / platform)]
        command += ["--prefix", "/boot/grub", "--config", str(configuration), "--output", str(core)]
        run_tool(
            "the boot loader could not be built", [*command, *_MODULES, *_MODULES_OF[platform]]
        )
        return core.read_bytes()
