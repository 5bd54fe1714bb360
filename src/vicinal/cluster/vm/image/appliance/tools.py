"""What building an appliance needs on this host; whatever is missing is said before it begins."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.cluster.vm.image.appliance.boot_loader import BIOS, GRUB, UEFI

_TRIAL_SECONDS = 30
_SYSTEM_DIRECTORIES = "/usr/sbin:/sbin"
"""Where some of the programs are, and not every user looks."""

_PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "sfdisk": "fdisk",
    "grub-mkimage": "grub-common",
    "mformat": "mtools",
    "qemu-img": "qemu-utils",
    "apt-get": "apt",
}
_FILES = {
    GRUB / BIOS / "boot.img": "grub-pc-bin",
    GRUB / UEFI / "kernel.img": "grub-efi-amd64-bin",
}
_USERS_PROGRAMS = {"newuidmap": "uidmap"}
"""For users other than root: their namespaces have more than one user by this."""


def tool_environment() -> dict[str, str]:
    """Environment variables with which all programs are found."""
    return os.environ | {"PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:{_SYSTEM_DIRECTORIES}"}


def check_tools() -> None:
    """Raise VicinalError where a program is missing, or this user may not use namespaces."""
    if platform.machine() != "x86_64":
        raise VicinalError(
            f"appliances are made for x86-64 only, and this host is {platform.machine()}",
            "run this on an x86-64 host",
        )
    path = tool_environment()["PATH"]
    programs = _PROGRAMS if os.geteuid() == 0 else _PROGRAMS | _USERS_PROGRAMS
    missing = {name: package for name, package in programs.items() if not _found(name, path)}
    missing |= {str(file): package for file, package in _FILES.items() if not file.exists()}
    if missing:
        raise VicinalError(
            f"the appliance cannot be made here without {_listed(missing)}",
            f"install the Debian packages {' '.join(dict.fromkeys(missing.values()))}",
        )
    _check_namespace()


def _check_namespace() -> None:
    """mmdebstrap's own way into one is tried: what the kernel and the files say is not all."""
    trial = subprocess.run(
        ["mmdebstrap", "--unshare-helper", "true"],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TRIAL_SECONDS,
        check=False,
        env=tool_environment(),
    )
    if trial.returncode == 0:
        return
    lines = [line[3:] for line in trial.stderr.splitlines() if line.startswith(("E: ", "W: "))]
    reason = next((line for line in lines if "child had" not in line), "no message")
    if os.geteuid() == 0:
        raise VicinalError(
            f"this root may not make mount namespaces ({reason})",
            "run this outside of the container, or as an ordinary user",
        )
    raise VicinalError(
        f"this user may not make user namespaces with users of their own ({reason})",
        "have root give you subordinate ids (usermod --add-subuids 100000-165535 --add-subgids "
        "100000-165535 USER) and let sysctl user.max_user_namespaces be more than 0, "
        "or run this as root",
    )


def check_space(needed: Iterable[tuple[Path, int]]) -> None:
    """Raise VicinalError where a directory's file system has less free bytes than are needed."""
    wanted: dict[int, tuple[Path, int]] = {}
    for directory, size in needed:
        device = directory.stat().st_dev
        wanted[device] = directory, wanted.get(device, (directory, 0))[1] + size
    for directory, size in wanted.values():
        free = shutil.disk_usage(directory).free
        if free < size:
            raise VicinalError(
                f"making an appliance takes {size >> 20} MiB in {directory}, "
                f"and {free >> 20} MiB are free there",
                "make room; TMPDIR names another directory for what is temporary, and "
                "XDG_CACHE_HOME one for what is kept",
            )


def _found(name: str, path: str) -> bool:
    return shutil.which(name, path=path) is not None


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
