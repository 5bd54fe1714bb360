"""What building an appliance needs on this host. The build starts only if nothing is missing."""

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
"""Directories of some programs that are not in all users' PATH."""

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
"""For unprivileged users, who need it to have more than one user in a namespace."""


def tool_environment() -> dict[str, str]:
    """Environment variables in which PATH has all needed directories."""
    return os.environ | {"PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:{_SYSTEM_DIRECTORIES}"}


def check_tools() -> None:
    """Raise VicinalError if a program is missing, or this user may not use namespaces."""
    if platform.machine() != "x86_64":
        raise VicinalError(
            f"appliances are built for x86-64 only, and this host is {platform.machine()}",
            "run this on an x86-64 host",
        )
    path = tool_environment()["PATH"]
    programs = _PROGRAMS if os.geteuid() == 0 else _PROGRAMS | _USERS_PROGRAMS
    missing = {name: package for name, package in programs.items() if not _found(name, path)}
    missing |= {str(file): package for file, package in _FILES.items() if not file.exists()}
    if missing:
        raise VicinalError(
            f"this host cannot build the appliance without {_listed(missing)}",
            f"install the Debian packages {' '.join(dict.fromkeys(missing.values()))}",
        )
    _check_namespace()


def _check_namespace() -> None:
    """Try mmdebstrap's own namespace, because kernel settings and files do not tell everything."""
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
            f"this root may not create mount namespaces ({reason})",
            "run this outside of the container, or as an unprivileged user",
        )
    raise VicinalError(
        f"this user may not create user namespaces with several users ({reason})",
        "let root assign subordinate ids to this user (usermod --add-subuids 100000-165535 "
        "--add-subgids 100000-165535 USER) and set sysctl user.max_user_namespaces above 0, "
        "or run this as root",
    )


def check_space(needed: Iterable[tuple[Path, int]]) -> None:
    """Raise VicinalError if a directory's file system has too few free bytes."""
    wanted: dict[int, tuple[Path, int]] = {}
    for directory, size in needed:
        device = directory.stat().st_dev
        wanted[device] = directory, wanted.get(device, (directory, 0))[1] + size
    for directory, size in wanted.values():
        free = shutil.disk_usage(directory).free
        if free < size:
            raise VicinalError(
                f"building an appliance takes {size >> 20} MiB in {directory}, "
                f"and {free >> 20} MiB are free there",
                "make room, or name another directory: in TMPDIR for temporary files, in "
                "XDG_CACHE_HOME for kept files",
            )


def _found(name: str, path: str) -> bool:
    return shutil.which(name, path=path) is not None


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
