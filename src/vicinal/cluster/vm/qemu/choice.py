"""The choice of QEMU: this host's if it is sufficient, otherwise one from Debian's backports.

A fetched QEMU is unpacked beside the guests' images and runs with the libraries of its own release.
Nothing is installed on this host.
"""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from vicinal.base.directories import check_writable
from vicinal.base.errors import VicinalError
from vicinal.base.files import locked
from vicinal.cluster.vm.image.building import guests_directory
from vicinal.cluster.vm.image.kind import GuestNetwork
from vicinal.cluster.vm.image.packages import PackageStore

QEMU = "qemu-system-x86_64"

_PACKAGE = "qemu-system-x86"
_CARD = "igb"
_MODULES = "usr/lib/x86_64-linux-gnu/qemu"
_DATA = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")

_HELP_SECONDS = 60


@dataclass(frozen=True)
class Qemu:
    """A QEMU that has the devices which guests need."""

    command: tuple[str, ...]
    """The first words of its command lines."""

    @property
    def version(self) -> str:
        """The version that QEMU reports."""
        first = _ask(self.command, "--version").splitlines()[0]
        return first.removeprefix("QEMU emulator version ")


@cache
def find_qemu() -> Qemu:
    """This host's QEMU. Raises VicinalError if it is missing or lacks a device of guests."""
    qemu = shutil.which(QEMU)
    if qemu is None:
        raise VicinalError(f"{QEMU} was not found", "install qemu-system-x86")
    if '"ivshmem-plain"' not in _ask((qemu,), "-device", "help"):
        raise VicinalError(
            f"{qemu} has no device ivshmem-plain, by which guests share memory",
            "use a QEMU with this device, such as Debian's",
        )
    if "stream" not in _ask((qemu,), "-netdev", "help").split():
        raise VicinalError(
            f"{qemu} has no network back end 'stream', by which guests reach each other",
            "use QEMU 7.2 or newer",
        )
    return Qemu((qemu,))


def qemu_for(network: GuestNetwork, say: Callable[[str], None] = lambda _: None) -> Qemu:
    """A QEMU for guests of a network: this host's if it is sufficient, otherwise a fetched QEMU.

    `say` receives each step. Raises VicinalError if no QEMU can be obtained.
    """
    qemu = find_qemu()
    if network is GuestNetwork.VIRTIO or _has_card(qemu):
        return qemu
    return _fetched(say)


def _fetched(say: Callable[[str], None]) -> Qemu:
    """QEMU from Debian's backports, because this host's QEMU has no SR-IOV card."""
    directory = guests_directory() / "qemu"
    check_writable(directory, "set XDG_CACHE_HOME to a directory that you may write to")
    with locked(directory):
        target = directory / "root"
        if not target.is_dir():
            say(f"fetching a newer QEMU (some 40 MB): {QEMU} of this host has no SR-IOV card")
            store, fresh = directory / "packages", directory / "part"
            for old in (store, fresh):
                shutil.rmtree(old, ignore_errors=True)
            packages = PackageStore(store)
            packages.prefer_backports()
            # This host's C library is of the same release, and works only with its own loader.
            packages.unpack([_PACKAGE], fresh, without="libc6")
            shutil.rmtree(store)
            fresh.rename(target)
    libraries = ":".join(str(target / each) for each in _LIBRARIES)
    # Otherwise it would load modules of this host's QEMU, which belong to another version.
    environment = (f"LD_LIBRARY_PATH={libraries}", f"QEMU_MODULE_DIR={target / _MODULES}")
    data = [part for each in _DATA for part in ("-L", str(target / each))]
    qemu = Qemu(("env", *environment, str(target / "usr/bin" / QEMU), *data))
    if not _has_card(qemu):
        raise VicinalError(
            f"QEMU {qemu.version}, the newest in Debian's backports, has no device igb",
            "install QEMU 8.1 or newer",
        )
    return qemu


def _has_card(qemu: Qemu) -> bool:
    # The list of all devices is slower: for it QEMU loads every module that it finds.
    return "netdev=" in _ask(qemu.command, "-device", f"{_CARD},help")


@cache
def _ask(command: tuple[str, ...], *arguments: str) -> str:
    done = subprocess.run(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_HELP_SECONDS,
        check=False,
    )
    return done.stdout
