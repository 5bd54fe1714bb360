"""Building the image that guests boot: a kernel, and an archive with their file system.

    image = build_image()
    print(image.kernel, image.files)

The image contains Debian packages, and this host's MPI libraries, programs and provider at the same
absolute paths. It is kept, and rebuilt when one of these changes. There is no disk: a guest unpacks
the archive into its memory.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vicinal.base.directories import cache_directory, check_writable, may_write
from vicinal.base.errors import VicinalError
from vicinal.base.files import locked
from vicinal.base.native import compiled_programs
from vicinal.cluster.vm.image.archive import Archive
from vicinal.cluster.vm.image.kind import GuestNetwork, ImageKind, kind_of
from vicinal.cluster.vm.image.layout import GUEST_TASK, HOME, USER, USER_ID
from vicinal.cluster.vm.image.modules import load_order, vf_modules
from vicinal.cluster.vm.image.packages import RECORD, PackageStore
from vicinal.mpi.environment import (
    DOORBELL_AGENT_FILE,
    GUEST_RESEED_FILE,
    GUEST_TASK_FILE,
    PROVIDER_FILE,
    checkout,
    mpi_prefix,
    provider_directory,
)
from vicinal.mpi.libraries import STANDARD
from vicinal.mpi.preloading import HEAP_FILE, MPI_FILE, PAIRS_FILE

_HERE = Path(__file__).parent
_SHARED = Path("/var/cache/vicinal/guests")
_LEFT_OUT = (
    "etc",
    "usr/include",
    "usr/lib/debug",
    "usr/lib/modules",
    "usr/lib/systemd/system",
    "usr/lib/udev/hwdb.d",
    "usr/lib/udev/rules.d",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/lib/x86_64-linux-gnu/security",
    "usr/share",
    "var",
)
_LINKED = {
    DOORBELL_AGENT_FILE: "usr/lib/vicinal-doorbell/agent",
    GUEST_RESEED_FILE: "usr/lib/vicinal-waits/reseed",
    GUEST_TASK_FILE: GUEST_TASK.lstrip("/"),
}
"""Programs of the provider's directory, and the paths where the guest's scripts find them."""
_MERGED = ("bin", "lib", "lib64", "sbin")
"""Top directories that are links into usr, as in current Debian releases."""

_TEXTS = {
    "etc/passwd": "root:*:0:0::/root:/bin/sh\n"
    "sshd:*:100:65534::/run/sshd:/usr/sbin/nologin\n"
    f"{USER}:*:{USER_ID}:{USER_ID}::{HOME}:/bin/sh\n",
    "etc/group": f"root:*:0:\ntty:*:5:\nnogroup:*:65534:\n{USER}:*:{USER_ID}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\n"
    "HostKey /etc/ssh/host_key\n"
    "AuthenticationMethods publickey\n"
    f"AllowUsers {USER}\n"
    "PermitRootLogin no\n"
    "UseDNS no\n"
    "UsePAM no\n"
    "MaxSessions 64\n"
    "PrintLastLog no\n"
    "PrintMotd no\n",
    # Ends a launcher's connection to a guest that has ended.
    "etc/ssh/ssh_config": "IdentityFile /etc/ssh/user_key\n"
    "GlobalKnownHostsFile /etc/ssh/known_hosts\n"
    "StrictHostKeyChecking yes\n"
    "ServerAliveInterval 5\n"
    "ServerAliveCountMax 4\n",
}


@dataclass(frozen=True)
class GuestImage:
    """A bootable image."""

    kernel: Path
    """The kernel, for QEMU's -kernel."""
    files: Path
    """The guest's file system, for QEMU's -initrd."""
    kernel_version: str
    holds: frozenset[str]
    """Absolute paths of this host's directories that the image contains at the same path."""

    def has(self, path: Path) -> bool:
        """Whether the image contains a path of this host."""
        return any(path.is_relative_to(directory) for directory in self.holds)

    def drivers(self) -> frozenset[str]:
        """The drivers of SR-IOV VFs that its kernel contains."""
        return frozenset(vf_modules(_modules(self.kernel.parent.parent)))


def guests_directory() -> Path:
    """The directory for images, consoles, and facts about this host.

    In order: build/guests in a checkout, otherwise /var/cache/vicinal/guests, if the user may write
    there; otherwise a directory in the user's cache.
    """
    if may_write(shared_directory()):
        return shared_directory()
    return cache_directory() / "guests"


def shared_directory() -> Path:
    """The directory of root's images, from which all users of this host may start guests."""
    tree = checkout()
    return _SHARED if tree is None else tree / "build" / "guests"


def build_image(
    say: Callable[[str], None] = lambda _: None, network: GuestNetwork = GuestNetwork.VIRTIO
) -> GuestImage:
    """The image for the present contents of this host, built in seconds if it does not exist.

    `say` receives each step. Raises VicinalError if something is missing.
    """
    kind = kind_of(network)
    directory = guests_directory() / kind.directory
    check_writable(directory, "set XDG_CACHE_HOME to a directory that you may write to")
    with _readable_by_all(directory), locked(directory):
        system = _system(directory, kind, say)
        parts = _host_parts()
        key = content_key(_descriptions(kind, system, parts))
        files = directory / f"image-{key}.cpio"
        if not files.is_file():
            say("writing the guest image")
            for old in directory.glob("image-*.cpio*"):
                old.unlink()
            fresh = files.with_suffix(".cpio.part")
            _write(fresh, kind, system, parts)
            fresh.replace(files)
    return _image(system, files, parts)


def fetch_packages(
    say: Callable[[str], None] = lambda _: None, network: GuestNetwork = GuestNetwork.VIRTIO
) -> Path:
    """The directory with an image's unpacked Debian packages, fetched if necessary.

    The remaining steps of build_image() need no network. Raises VicinalError as build_image() does.
    """
    kind = kind_of(network)
    directory = guests_directory() / kind.directory
    check_writable(directory, "set XDG_CACHE_HOME to a directory that you may write to")
    with _readable_by_all(directory), locked(directory):
        return _system(directory, kind, say)


@contextmanager
def _readable_by_all(directory: Path) -> Iterator[None]:
    """Let all users read what root creates there, also in a process with a stricter umask."""
    if os.geteuid() != 0:
        yield
        return
    before = os.umask(0o022)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        yield
    finally:
        os.umask(before)


def _image(system: Path, files: Path, parts: list[Path]) -> GuestImage:
    modules = _modules(system)
    return GuestImage(
        kernel=next(system.glob(f"boot/vmlinuz-{modules.name}")),
        files=files,
        kernel_version=modules.name,
        holds=frozenset(str(part) for part in parts),
    )


def find_image(say: Callable[[str], None] = lambda _: None) -> GuestImage:
    """Root's image for all users, if it matches the present contents of this host.

    Otherwise the image of build_image().
    """
    return _shared_image(kind_of(GuestNetwork.VIRTIO)) or build_image(say)


def _shared_image(kind: ImageKind) -> GuestImage | None:
    directory = shared_directory() / kind.directory
    system = system_directory(directory, kind)
    if os.geteuid() == 0 or not is_roots(system):
        return None
    parts = _host_parts()
    files = directory / f"image-{content_key(_descriptions(kind, system, parts))}.cpio"
    try:
        image = _image(system, files, parts)
        readable = all(os.access(each, os.R_OK) for each in (image.kernel, files))
    except (OSError, StopIteration):
        return None
    paths = (shared_directory(), directory, files, system / "boot", image.kernel)
    return image if readable and all(map(is_roots, paths)) else None


def is_roots(path: Path) -> bool:
    """Whether only root can write there; another writer would be root in other users' guests."""
    try:
        status = path.lstat()
    except OSError:
        return False
    kind = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
    return kind and status.st_uid == 0 and not status.st_mode & 0o022


def image_identity(network: GuestNetwork = GuestNetwork.VIRTIO) -> str:
    """A key that identifies the image for the present contents of this host; builds nothing."""
    kind = kind_of(network)
    system = system_directory(guests_directory(), kind)
    return content_key(_descriptions(kind, system, _host_parts()))


def is_fetched(network: GuestNetwork = GuestNetwork.VIRTIO) -> bool:
    """Whether an image's Debian packages are unpacked; build_image() then takes seconds at most."""
    kind = kind_of(network)
    return system_directory(guests_directory() / kind.directory, kind).is_dir()


def system_directory(directory: Path, kind: ImageKind) -> Path:
    """The directory for an image's unpacked Debian packages and their record (RECORD)."""
    return directory / f"debian-{content_key([*kind.packages, kind.kernel_package, str(RECORD)])}"


def _system(directory: Path, kind: ImageKind, say: Callable[[str], None]) -> Path:
    """The directory with the unpacked Debian packages and kernel, fetched if necessary."""
    target = system_directory(directory, kind)
    if target.is_dir():
        return target
    store, fresh = directory / "packages", directory / "debian-part"
    for left in (store, fresh):  # left by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    say(f"fetching Debian packages for the guests (some {kind.megabytes} MB)")
    packages = PackageStore(store)
    packages.unpack(kind.packages, fresh)
    if kind.kernel_from_backports:
        packages.prefer_backports()
    packages.unpack_kernel(kind.kernel_package, fresh)
    shutil.rmtree(store)
    fresh.rename(target)
    # Not earlier: if fetching fails, the present packages stay usable.
    for old in directory.glob("debian-*"):
        if old != target:
            shutil.rmtree(old)
    return target


def _host_parts() -> list[Path]:
    """Directories of this host that a guest needs: MPI libraries, programs, provider."""
    parts = [mpi_prefix(mpi) for mpi in STANDARD]
    if compiled_programs().is_dir():
        parts.append(compiled_programs())
    with suppress(VicinalError):  # a job over the region reports that it is missing
        parts.append(provider_directory())
    return parts


def _host_files(part: Path) -> Iterator[Path]:
    """The files of a directory that go into the image; of a build directory only the products."""
    if (part / PROVIDER_FILE).is_file():
        names = (PROVIDER_FILE, HEAP_FILE, MPI_FILE, PAIRS_FILE, *_LINKED)
        yield from (part / name for name in names if (part / name).is_file())
        return
    for path in sorted(part.rglob("*")):
        relative = path.relative_to(part)
        if relative.parts[0] != "include" and not any(p.startswith(".") for p in relative.parts):
            yield path


def _descriptions(kind: ImageKind, system: Path, parts: list[Path]) -> Iterator[str]:
    """The image's inputs as text. Any change of them makes a new image."""
    yield system.name
    yield repr(_TEXTS)
    yield _variables()
    yield repr((_LEFT_OUT, kind))
    for own in sorted(_HERE.glob("*.py")):
        yield own.read_text()
    for script in sorted(_HERE.rglob("guest_*.sh")):
        yield script.read_text()
    yield (_HERE / "70-vicinal.rules").read_text()
    for part in parts:
        for path in _host_files(part):
            status = path.lstat()
            yield f"{path} {status.st_size} {status.st_mtime_ns} {status.st_mode}"


def _variables() -> str:
    """sshd's setting of environment variables in a guest; users set only FI_PROVIDER themselves.

    While FI_PROVIDER excludes Vicinal, the MPI libraries behave as their makers intended.
    """
    variables = {
        "FI_PROVIDER": "^vicinal",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "OMPI_MCA_mtl_ofi_provider_include": "vicinal",
        "OMPI_MCA_btl_ofi_provider_include": "vicinal",
    }
    with suppress(VicinalError):  # the image then has no provider
        variables["FI_PROVIDER_PATH"] = str(provider_directory())
    return f"SetEnv {' '.join(f'{name}={value}' for name, value in variables.items())}\n"


def _write(target: Path, kind: ImageKind, system: Path, parts: list[Path]) -> None:
    with Archive(target) as archive:
        for name in _MERGED:
            archive.link(name, f"usr/{name}")
        archive.directory("tmp", 0o1777)
        # Others may pass, because a checkout below /root has the same paths in the guest.
        archive.directory("root", 0o711)
        archive.directory(HOME.lstrip("/"), 0o755, owner=USER_ID)
        # The kernel opens it before /dev is mounted.
        archive.device("dev/console", 5, 1)
        archive.file("init", (_HERE / "guest_init.sh").read_bytes(), 0o755)
        archive.file("etc/ssh/sshd_config.d/libfabric.conf", _variables().encode())
        verbs = (_HERE / "guest_verbs.sh").read_bytes()
        archive.file("usr/lib/vicinal-verbs/guest_verbs.sh", verbs)
        doorbell = (_HERE / "guest_doorbell.sh").read_bytes()
        archive.file("usr/lib/vicinal-doorbell/guest_doorbell.sh", doorbell)
        waits = (_HERE / "guest_waits.sh").read_bytes()
        archive.file("usr/lib/vicinal-waits/guest_waits.sh", waits)
        archive.file("etc/udev/udev.conf", b"")
        rule = _HERE / "70-vicinal.rules"
        archive.file(f"etc/udev/rules.d/{rule.name}", rule.read_bytes())
        for name, text in {**_TEXTS, **kind.texts}.items():
            archive.file(name, text.encode())
        _write_modules(archive, kind, _modules(system))
        if kind.vfs:
            write_vf_modules(archive, _modules(system))
        for path in sorted(system.rglob("*")):
            name = merged_name(path.relative_to(system))
            if not _left_out(name):
                archive.copy(path, name)
        archive.link("usr/bin/sh", "busybox")
        for part in parts:
            for path in _host_files(part):
                archive.copy(path, str(path).lstrip("/"))
                if path.name in _LINKED:
                    archive.link(_LINKED[path.name], str(path))


def _write_modules(archive: Archive, kind: ImageKind, modules: Path) -> None:
    """Write each module with its dependencies, unless an earlier step loads them."""
    written: set[str] = set()
    for directory, wanted in kind.modules.items():
        for number, (name, content) in enumerate(load_order(modules, wanted)):
            if name not in written:
                archive.file(f"{directory}/{number:02}-{name}.ko", content)
                written.add(name)


def write_vf_modules(archive: Archive, modules: Path) -> None:
    """Write a directory for each driver of SR-IOV VFs; guest_waits.sh loads from it."""
    for driver, module in vf_modules(modules).items():
        for number, (name, content) in enumerate(load_order(modules, [module])):
            archive.file(f"usr/lib/vicinal-vfs/{driver}/{number:02}-{name}.ko", content)


def merged_name(path: Path) -> str:
    """The path of a package's file in an image, whose top directories are links into usr."""
    return str(Path("usr") / path if path.parts[0] in _MERGED else path)


def _left_out(name: str) -> bool:
    return name.startswith("boot") or any(
        name == directory or name.startswith(f"{directory}/") for directory in _LEFT_OUT
    )


def _modules(system: Path) -> Path:
    return next(path for path in sorted((system / "lib" / "modules").iterdir()) if path.is_dir())


def content_key(descriptions: Iterable[str]) -> str:
    """A key of the descriptions: other descriptions have another key."""
    digest = hashlib.sha256()
    for description in descriptions:
        digest.update(description.encode() + b"\0")
    return digest.hexdigest()[:16]
