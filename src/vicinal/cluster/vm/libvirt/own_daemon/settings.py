"""What a libvirt of Vicinal's own is told, and what it finds in the place of the system's files."""

import shutil
import uuid
from pathlib import Path

from vicinal.base.files import Durability, write_atomically
from vicinal.cluster.vm.libvirt.own_daemon.mounts import MOUNTS

# Machines run as root, whose files they use. Control groups, namespaces and security labels are
# what a container may not have; pinning works without.
_QEMU = """user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
remember_owner = 0
stdio_handler = "file"
"""


def write_settings(directory: Path, cache: Path | None = None) -> None:
    """Write all that a daemon with this directory needs before it starts.

    What it wrote there itself, such as the machines that it knows, stays, but for what speaks of
    processes which are none of this host any more. `cache` is where it keeps what it found out
    about each QEMU, which takes seconds; without it that is in `directory`, too. Raises OSError.
    """
    if cache is not None:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        link = directory / "cache"
        link.unlink(missing_ok=True)
        link.symlink_to(cache)
    for name in MOUNTS:
        (directory / name).mkdir(mode=0o700, exist_ok=True)
    (directory / "claim").touch(mode=0o600)
    (directory / "settings" / "qemu.conf").write_text(_QEMU)
    (directory / "libvirtd.conf").write_text(
        f'unix_sock_dir = "{directory}"\n'
        # The directory is for root alone, and nobody else is to be asked.
        'auth_unix_rw = "none"\nauth_unix_ro = "none"\n'
        # Else two of them on one host would take each other for themselves.
        f'host_uuid = "{_identity(directory)}"\n'
    )
    _copy_names("passwd", directory, ["libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin"])
    _copy_names("group", directory, ["libvirt-qemu:x:64055:", "kvm:x:64056:"])
    _forget_processes(directory)


def _identity(directory: Path) -> str:
    """The host's, as this daemon knows it, for as long as the directory is there."""
    file = directory / "identity"
    if not file.exists():
        file.write_text(str(uuid.uuid4()))
    return file.read_text()


def _copy_names(name: str, directory: Path, wanted: list[str]) -> None:
    """Have a copy of the host's users or groups as they are now, in which these are, too.

    libvirt wants Debian's to be there, whoever its machines run as; their numbers mean nothing.
    """
    lines = (Path("/etc") / name).read_text().splitlines()
    known = {line.partition(":")[0] for line in lines}
    lines += [line for line in wanted if line.partition(":")[0] not in known]
    write_atomically(directory / name, "".join(f"{line}\n" for line in lines), Durability.NONE)


def _forget_processes(directory: Path) -> None:
    """Drop what speaks of processes, if these were of an earlier boot, or of another container.

    Their numbers are others' by now, and libvirt would end those.
    """
    file, now = directory / "processes", process_space()
    if file.exists() and file.read_text() != now:
        shutil.rmtree(directory / "run")
        (directory / "run").mkdir(mode=0o700)
    file.write_text(now)


def process_space() -> str:
    """What process numbers mean now: the boot, the namespace, and when its first process began."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    # Its name, in parentheses, may have spaces.
    first = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    return f"{boot} {namespace} {first}"
