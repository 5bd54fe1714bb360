"""A guest with an SR-IOV card and an IOMMU, in which the calls of `vicinal vf` run as root.

The card is QEMU's emulation of Intel's 82576 (igb), and the IOMMU an emulated VT-d. The kernel's
handling of them is real; tests prove nothing about hardware. The guest runs scripts such as
vf_inside.py, which print each step's outcome to a second serial port.
"""

import hashlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guest_bytecode import compile_once, compiled, has_our_python
from guest_netdevsim import build_netdevsim
from guest_support import GUARD_SECONDS

import vicinal
from vicinal.base.child import dies_with_parent
from vicinal.base.files import locked
from vicinal.cluster.vm.guest.console import console_tail
from vicinal.cluster.vm.image.archive import Archive
from vicinal.cluster.vm.image.building import guests_directory
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.cluster.vm.image.layout import KERNEL_WORDS
from vicinal.cluster.vm.image.modules import load_order
from vicinal.cluster.vm.image.packages import PackageStore
from vicinal.cluster.vm.qemu.choice import qemu_for

HERE = Path(__file__).parent
PACKAGES = (
    *("bubblewrap", "busybox-static", "dash", "ethtool", "iproute2", "libpython3-stdlib"),
    *("python3-jsonschema", "python3-minimal", "python3-numpy", "python3-psutil"),
    *("python3-ruamel.yaml", "util-linux"),
    *("ibverbs-providers", "perftest"),
)
KERNEL = "linux-image-amd64"
LEFT_OUT = ("boot", "etc", "lib/modules", "usr/share", "var")
LEFT_OUT_ANYWHERE = frozenset({"gconv", "pydoc_data", "tests"})

INIT = """#!/usr/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
if [ -z "$ROOT_IS_MOUNTED" ]; then
	# Containers pivot their root, which the kernel's first one does not allow: stand on a copy.
	/usr/bin/busybox mount -o bind / /mnt
	cd /mnt
	/usr/bin/busybox mount --move . /
	ROOT_IS_MOUNTED=yes exec /usr/bin/busybox chroot . /init
fi
/usr/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/usr/bin/busybox mount -t proc proc /proc
/usr/bin/busybox mount -t sysfs sysfs /sys
/usr/bin/busybox mount -t devtmpfs devtmpfs /dev
/usr/bin/busybox --install -s /usr/bin 2>/dev/null
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir /dev/shm
mount -t tmpfs tmpfs /dev/shm
echo "vicinal-guest: user space runs"
for module in /usr/lib/vicinal-modules/*; do
	insmod "$module" || echo "vicinal-guest: error: $module could not be loaded"
done
export PYTHONPATH=/vicinal
# Where the libraries of numpy are, which a package's installation would link.
LD_LIBRARY_PATH=$(echo /usr/lib/*/blas /usr/lib/*/lapack | tr " " :)
export LD_LIBRARY_PATH
"""
RUN = """python3 /vicinal/{name} >/dev/ttyS1
echo "vicinal-guest: {name} ended with $?"
"""


@dataclass(frozen=True)
class Work:
    """What such a guest has and runs."""

    name: str
    modules: tuple[str, ...]
    scripts: tuple[str, ...]
    """Scripts that run one after the other, and import others beside them."""
    libraries: tuple[Path, ...] = ()
    """Python packages besides those of Debian."""
    devices: tuple[str, ...] = ()
    """Further arguments of QEMU."""
    processors: str = "1"
    """The value of QEMU's -smp."""
    memory: int = 640
    """In MiB."""
    number: int = 1
    """A byte of the card's hardware address, for two guests on one wire."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Further files, by their paths in the guest."""


_MODULES = ("8021q", "bridge", "igb", "igbvf", "veth", "vfio_iommu_type1", "vfio_pci")
VFS = Work("vfs", _MODULES, ("vf_inside.py",))
CLUSTERS = Work("vf-clusters", _MODULES, ("vf_cluster_inside.py",))


def run_inside(directory: Path, say: Callable[[str], None], work: Work) -> list[dict[str, Any]]:
    """Boot the guest, and return the outcome of each step in it."""
    console, results = directory / f"{work.name}.log", directory / f"{work.name}.results"
    command = _command(say, work, console, ["-serial", f"file:{results}"])
    with suppress(subprocess.TimeoutExpired):  # the output until then tells more
        subprocess.run(command, check=True, timeout=GUARD_SECONDS, stdin=subprocess.DEVNULL)
    lines = results.read_text().splitlines()
    assert lines, " | ".join(console_tail(console))
    return [json.loads(line) for line in lines if line.startswith("{")]


@contextmanager
def asked_inside(
    directory: Path, say: Callable[[str], None], work: Work, wire: int | None = None
) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """Boot a guest whose script answers each line of JSON by one; yields the function that asks it.

    `wire` is the descriptor of a stream socket to which its card is joined.
    """
    console, talk_socket = directory / f"{work.name}.log", directory / f"{work.name}.talk"
    talk = [
        "-chardev",
        f"socket,id=talk,path={talk_socket},server=on,wait=on",
        "-serial",
        "chardev:talk",
    ]
    command = _command(say, work, console, talk, wire)
    handed = () if wire is None else (wire,)
    with (
        subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=handed) as guest,
        socket.socket(socket.AF_UNIX) as near,
    ):
        try:
            deadline = time.monotonic() + GUARD_SECONDS
            while not talk_socket.exists():
                assert guest.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            near.settimeout(GUARD_SECONDS)
            near.connect(str(talk_socket))
            lines = near.makefile("rw")

            def answer() -> dict[str, Any]:
                while line := lines.readline():
                    if line.startswith("{"):
                        found: dict[str, Any] = json.loads(line)
                        return found
                raise AssertionError(" | ".join(console_tail(console)))

            def ask(question: dict[str, Any]) -> dict[str, Any]:
                lines.write(json.dumps(question) + "\n")
                lines.flush()
                return answer()

            assert answer() == {"ready": True}
            yield ask
        finally:
            guest.kill()


def _command(
    say: Callable[[str], None],
    work: Work,
    console: Path,
    results: Sequence[str],
    wire: int | None = None,
) -> list[str]:
    kernel, files = _image(say, work)
    qemu = qemu_for(GuestNetwork.VERBS, say)
    command = [*dies_with_parent(), *qemu.command, "-nodefaults", "-no-user-config"]
    command += ["-no-reboot", "-display", "none", "-machine", "q35", "-m", f"{work.memory}M"]
    command += ["-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm"]
    command += ["-smp", work.processors, *work.devices]
    command += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
    command += ["-device", "pcie-root-port,id=socket,chassis=1"]
    far = "hubport,hubid=0" if wire is None else f"stream,addr.type=fd,addr.str={wire}"
    command += ["-netdev", f"{far},id=wire"]
    hardware_address = f"52:54:00:00:01:{work.number:02x}"
    command += ["-device", f"igb,bus=socket,netdev=wire,mac={hardware_address},romfile="]
    command += ["-kernel", str(kernel), "-initrd", str(files)]
    command += ["-append", " ".join([*KERNEL_WORDS, "intel_iommu=on"])]
    return [*command, "-serial", f"file:{console}", *results]


def _image(say: Callable[[str], None], work: Work) -> tuple[Path, Path]:
    directory = guests_directory() / "vfs"
    system = vfs_system(say)
    with locked(directory):
        compile_once(system)
        modules = modules_of(system)
        files = directory / f"image-{work.name}.cpio"
        _write(files, system, modules, work)
    return kernel_of(system), files


def vfs_system(say: Callable[[str], None]) -> Path:
    """The directory of the unpacked Debian packages and kernel for such guests."""
    directory = guests_directory() / "vfs"
    with locked(directory):
        return _system(directory, say)


def modules_of(system: Path) -> Path:
    """The directory of the kernel's modules."""
    return next(iter(sorted((system / "lib/modules").iterdir())))


def kernel_of(system: Path) -> Path:
    """The file of the kernel."""
    return system / f"boot/vmlinuz-{modules_of(system).name}"


def _system(directory: Path, say: Callable[[str], None]) -> Path:
    about = (PACKAGES, KERNEL, "netdevsim")
    name = hashlib.sha256(repr(about).encode()).hexdigest()[:16]
    target = directory / f"debian-{name}"
    if not target.is_dir():
        store, fresh = directory / "packages", directory / "part"
        for old in (store, fresh, *directory.glob("debian-*")):
            shutil.rmtree(old, ignore_errors=True)
        say("fetching Debian packages, a kernel and its source for the guest (some 290 MB)")
        packages = PackageStore(store)
        packages.unpack(PACKAGES, fresh)
        packages.prefer_backports()
        packages.unpack_kernel(KERNEL, fresh)
        build_netdevsim(packages, next((fresh / "lib/modules").iterdir()), directory / "netdevsim")
        shutil.rmtree(store)
        fresh.rename(target)
    return target


def _write(target: Path, system: Path, modules: Path, work: Work) -> None:
    """Two archives, one after the other; the common part of all guests is written only once."""
    base, own = _base(target.parent, system), target.with_suffix(".part")
    _write_own(own, system, modules, work)
    with target.open("wb") as whole:
        for part in (base, own):
            with part.open("rb") as content:
                shutil.copyfileobj(content, whole, 1 << 20)
    own.unlink()


def _base(directory: Path, system: Path) -> Path:
    """The archive of the packages."""
    digest = hashlib.sha256(repr((system.name, LEFT_OUT, LEFT_OUT_ANYWHERE)).encode()).hexdigest()
    target = directory / f"base-{digest[:16]}.cpio"
    if target.exists():
        return target
    for old in directory.glob("base-*"):
        old.unlink()
    part = target.with_suffix(".part")
    with Archive(part) as archive:
        for name in ("bin", "lib", "lib64", "sbin"):
            archive.link(name, f"usr/{name}")
        archive.directory("mnt", 0o755)
        archive.directory("tmp", 0o1777)
        archive.directory("root", 0o700)
        archive.device("dev/console", 5, 1)
        for path in sorted(system.rglob("*")):
            name = str(path.relative_to(system))
            if _left_out(name):
                continue
            top = name.partition("/")[0]
            archive.copy(path, f"usr/{name}" if top in ("bin", "lib", "lib64", "sbin") else name)
        # Not busybox, whose shell prefers its own `ip` to iproute2's.
        archive.link("usr/bin/sh", "dash")
    part.rename(target)
    return target


def _left_out(name: str) -> bool:
    below = any(name == out or name.startswith(f"{out}/") for out in LEFT_OUT)
    return below or not LEFT_OUT_ANYWHERE.isdisjoint(name.split("/"))


def _write_own(target: Path, system: Path, modules: Path, work: Work) -> None:
    """The files of one such guest."""
    package = Path(vicinal.__file__).parent
    with Archive(target) as archive:
        init = INIT + "".join(RUN.format(name=name) for name in work.scripts) + "poweroff -f\n"
        archive.file("init", init.encode(), 0o755)
        archive.file("etc/hosts", b"127.0.0.1 localhost\n")
        archive.file("etc/passwd", b"root:*:0:0::/root:/bin/sh\nuser:*:1000:1000::/tmp:/bin/sh\n")
        for number, (name, content) in enumerate(load_order(modules, work.modules)):
            archive.file(f"usr/lib/vicinal-modules/{number:02}-{name}.ko", content)
        # Without the command line, whose libraries take a minute to load with TCG.
        code = [(source, f"vicinal/{source.name}") for source in HERE.glob("*_inside.py")]
        for library in (package, *work.libraries):
            for source in library.rglob("*.py"):
                code.append((source, f"vicinal/{source.relative_to(library.parent)}"))
        for kind in ("schema.json", "script.sh"):
            for source in package.rglob(kind):
                archive.copy(source, f"vicinal/vicinal/{source.relative_to(package)}")
        for source, guest_path in code:
            archive.copy(source, guest_path)
        for guest_path, source in work.files.items():
            archive.copy(source, guest_path)
        if has_our_python(system):
            for source, guest_path in compiled(code):
                archive.copy(source, guest_path)
