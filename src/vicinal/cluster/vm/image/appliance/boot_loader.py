"""Making a disk image bootable with GRUB, without root, loop devices or anything installed in it.

GRUB's parts are put where firmware looks for them: for a BIOS its first sector into the disk's,
and its core image into a partition of its own; for UEFI a program in a FAT file system. Both hold
all modules that they need, find the root file system by its identifier, and read the menu there.
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

# From GRUB's boot.S and diskboot.S: bytes of the first sector up to the partition table's, ...
_CODE_SIZE = 440
# ... where in it the sector of the core image is, and the jump that spares a BIOS which gives a
# wrong number for the disk; as grub-install does, it is taken out, since this is no floppy ...
_CORE_SECTOR = 0x5C
_DRIVE_CHECK = 0x66
_NO_OPERATION = b"\x90\x90"
# ... and where the core image's own first sector says on which sector the rest begins.
_REST_SECTOR = SECTOR - 12


def install_bios(disk: Path, identity: Identity) -> None:
    """Make the disk bootable for a BIOS."""
    core = bytearray(_core_image(BIOS, identity))
    if len(core) > BOOT_SIZE:
        raise VicinalError(
            f"GRUB's core image has {len(core)} bytes, and its partition only {BOOT_SIZE}",
            "use the GRUB of a released Debian",
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
    """Make the disk bootable for UEFI firmware, unless that admits signed programs only."""
    what = "the file system for UEFI could not be written"
    place = f"{disk}@@{FIRMWARE_OFFSET}"
    sectors = FIRMWARE_SIZE // SECTOR
    # -c: one sector a cluster, of which FAT32 needs as many as are in some 33 MB.
    run_tool(what, ["mformat", "-i", place, "-F", "-c", "1", "-T", str(sectors), "-v", "VICINAL"])
    with tempfile.NamedTemporaryFile() as program:
        program.write(_core_image(UEFI, identity))
        program.flush()
        run_tool(what, ["mmd", "-i", place, "::EFI", "::EFI/BOOT"])
        run_tool(what, ["mcopy", "-i", place, program.name, "::EFI/BOOT/BOOTX64.EFI"])


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
        run_tool("the boot loader could not be made", [*command, *_MODULES, *_MODULES_OF[platform]])
        return core.read_bytes()
