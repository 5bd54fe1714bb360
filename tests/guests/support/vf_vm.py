"""A VM that boots in the guest of vf_guest.py: its files, and its snapshot.

It is like VMs of Slurm's jobs: it has the same command line of QEMU, has the same first
process, and starts from a snapshot. But QEMU emulates it within an emulated guest, so it does
little. Its file system has only busybox and the drivers, without MPI and sshd. Its snapshot is made
outside, where the kernel boots in seconds.
"""

import subprocess
from pathlib import Path

from vf_guest import kernel_of, modules_of, vfs_system

from vicinal.cluster.vm.accelerator import Accelerator
from vicinal.cluster.vm.guest.identity import Keys
from vicinal.cluster.vm.image import building as image
from vicinal.cluster.vm.image.archive import Archive
from vicinal.cluster.vm.image.building import write_vf_modules
from vicinal.cluster.vm.image.modules import load_order
from vicinal.cluster.vm.qemu.choice import find_qemu
from vicinal.cluster.vm.snapshot.hardware import SnapshotHardware
from vicinal.cluster.vm.snapshot.waiting import WaitingGuest
from vicinal.mpi.environment import GUEST_RESEED_FILE, provider_directory

MEMORY_MIB = 128
_MODULES = ("virtio_pci", "virtio_console", "qemu_fw_cfg")
_NOTHING = ("usr/lib/systemd/systemd-udevd", "usr/bin/udevadm", "usr/sbin/sshd")
"""Programs that such a VM does not need."""
_DATA = ("bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin")
_DATA_FOLDERS = (Path("/usr/share/qemu"), Path("/usr/share/seabios"))
_QEMU_MODULES = Path("/usr/lib/x86_64-linux-gnu/qemu")
_ACCELERATOR = "accel-tcg-x86_64.so"


def vm_files(directory: Path) -> dict[str, Path]:
    """QEMU, the VM and its snapshot, by their paths in the guest in which it boots."""
    system = vfs_system(print)
    archive = directory / "vm.cpio"
    _write(archive, system)
    memory, state = directory / "memory", directory / "state"
    _save(
        SnapshotHardware(find_qemu(), Accelerator.TCG, kernel_of(system), archive, MEMORY_MIB, 1),
        memory,
        state,
    )
    program = Path(find_qemu().command[0])
    files = {"vm/qemu": program.resolve(), "vm/kernel": kernel_of(system)}
    files |= {"vm/files": archive, "vm/memory": memory, "vm/state": state}
    files |= {f"vm/lib/{each.name}": each.resolve() for each in _libraries(program)}
    files[f"vm/modules/{_ACCELERATOR}"] = _QEMU_MODULES / _ACCELERATOR
    for name in _DATA:
        data = next(each / name for each in _DATA_FOLDERS if (each / name).exists())
        files[f"vm/data/{name}"] = data.resolve()
    return files


def _libraries(program: Path) -> list[Path]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in said.splitlines()]
    return [Path(each[2] if "=>" in each else each[0]) for each in words if "vdso" not in each[0]]


def _write(target: Path, system: Path) -> None:
    scripts = Path(image.__file__).parent
    reseed = provider_directory() / GUEST_RESEED_FILE
    with Archive(target) as archive:
        for name in ("bin", "lib", "lib64", "sbin"):
            archive.link(name, f"usr/{name}")
        archive.device("dev/console", 5, 1)
        archive.directory("tmp", 0o1777)
        archive.file("init", (scripts / "guest_init.sh").read_bytes(), 0o755)
        waits = (scripts / "guest_waits.sh").read_bytes()
        archive.file("usr/lib/vicinal-waits/guest_waits.sh", waits)
        archive.copy(reseed, "usr/lib/vicinal-waits/reseed")
        for library in _libraries(reseed):
            archive.copy(library.resolve(), f"usr/{str(library).removeprefix('/usr').lstrip('/')}")
        archive.copy(system / "bin/busybox", "usr/bin/busybox")
        archive.link("usr/bin/sh", "busybox")
        for name in _NOTHING:
            archive.file(name, b"#!/bin/sh\n", 0o755)
        for number, (name, content) in enumerate(load_order(modules_of(system), _MODULES)):
            archive.file(f"usr/lib/vicinal-modules/{number:02}-{name}.ko", content)
        write_vf_modules(archive, modules_of(system))


def _save(hardware: SnapshotHardware, memory: Path, state: Path) -> None:
    directory = memory.parent
    template = WaitingGuest("template", directory, Keys(directory), hardware)
    with memory.open("wb+") as memory_file, state.open("wb+") as state_file:
        memory_file.truncate(MEMORY_MIB << 20)
        try:
            template.boot(memory=memory_file.fileno())
            template.wait_booted()
            template.save(state_file.fileno())
        finally:
            template.stop()
