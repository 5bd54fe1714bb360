"""The settings of Vicinal's own libvirt, and its replacements of the system's files."""

import shutil
import uuid
from pathlib import Path

from vicinal.base.files import Durability, write_atomically
from vicinal.cluster.vm.libvirt.own_daemon.mounts import MOUNTS

# VMs run as root and use root's files. A container may lack control groups, namespaces and
# security labels. Pinning works without them.
_QEMU = """user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
remember_owner = 0
stdio_handler = "file"
"""


def write_settings(directory: Path, cache: Path | None = None) -> None:
    """Write all files that a daemon with this directory needs before it starts.

    What the daemon wrote there itself stays, such as its list of VMs, except records of
    processes that no longer exist on this host. `cache` is the directory for the capabilities of
    each QEMU, which take seconds to find out; without it they are in `directory`. Raises OSError.
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
        # Only root can enter the directory, so no further authentication is needed.
        'auth_unix_rw = "none"\nauth_unix_ro = "none"\n'
        # Otherwise two daemons on one host would have the same identity.
        f'host_uuid = "{_identity(directory)}"\n'
    )
    _copy_names("passwd", directory, ["libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin"])
    _copy_names("group", directory, ["libvirt-qemu:x:64055:", "kvm:x:64056:"])
    _forget_processes(directory)


def _identity(directory: Path) -> str:
    """The host's UUID for this daemon, constant while the directory exists."""
    file = directory / "identity"
    if not file.exists():
        file.write_text(str(uuid.uuid4()))
    return file.read_text()


def _copy_names(name: str, directory: Path, wanted: list[str]) -> None:
    """Copy the host's present users or groups, and add `wanted`.

    libvirt requires Debian's users to exist, even if no VM runs as them. Their numbers do not
    matter.
    """
    lines = (Path("/etc") / name).read_text().splitlines()
    known = {line.partition(":")[0] for line in lines}
    lines += [line for line in wanted if line.partition(":")[0] not in known]
    write_atomically(directory / name, "".join(f"{line}\n" for line in lines), Durability.NONE)


def _forget_processes(directory: Path) -> None:
    """Remove records of processes of an earlier boot or of another container.

    Their numbers belong to other processes now, and libvirt would end those.
    """
    file, now = directory / "processes", process_space()
    if file.exists() and file.read_text() != now:
        shutil.rmtree(directory / "run")
        (directory / "run").mkdir(mode=0o700)
    file.write_text(now)


def process_space() -> str:
    """A string that changes with the meaning of process numbers: boot, PID namespace, its start."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    # The process's name, in parentheses, may contain spaces.
    first = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    return f"{boot} {namespace} {first}"
