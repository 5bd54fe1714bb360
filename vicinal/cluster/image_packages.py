"""Debian packages for a guest image: fetched and unpacked, never installed on this host.

apt resolves what is needed as if for an empty system, with the mirrors and keys that this
host is configured with. Root is not needed.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vicinal.errors import VicinalError

KERNEL_PACKAGE = "linux-image-cloud-amd64"
"""Depends on the newest cloud kernel: small, and made for virtual machines."""

_APT_SECONDS = 600
_UNPACK_SECONDS = 120


class PackageStore:
    """A fresh directory for fetched packages, with apt's state for fetching them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._archives = directory / "archives"
        self._own_lists = directory / "lists"
        self._use_own_lists = False
        _check_host()
        for directory in (self._archives / "partial", self._own_lists / "partial"):
            directory.mkdir(parents=True)
        # An empty package database: everything counts as missing.
        (self._directory / "status").touch()

    def unpack(self, packages: Sequence[str], target: Path) -> None:
        """Unpack packages and all they depend on into `target`.

        Raises VicinalError where a package cannot be had.
        """
        install = ["apt-get", "install", "--download-only", "--no-install-recommends", "--yes"]
        self._apt_or_update(f"the packages {' '.join(packages)}", *install, *packages)
        self._unpack_all(target)

    def unpack_kernel(self, target: Path) -> None:
        """Unpack the newest cloud kernel, without what its installation would need."""
        listing = self._apt_or_update(
            f"the package {KERNEL_PACKAGE}", "apt-cache", "depends", "--important", KERNEL_PACKAGE
        )
        fields = [line.split() for line in listing.splitlines()]
        kernels = [field[1] for field in fields if len(field) == 2 and field[0] == "Depends:"]
        kernel = next((name for name in kernels if name.startswith("linux-image-")), None)
        if kernel is None:
            raise VicinalError(
                f"{KERNEL_PACKAGE} names no kernel",
                "see that the Debian mirror of this host's apt configuration has it",
            )
        self._apt_or_update(f"the kernel package {kernel}", "apt-get", "download", kernel)
        self._unpack_all(target)

    def _unpack_all(self, target: Path) -> None:
        for file in sorted(self._archives.glob("*.deb")):
            _unpack(file, target)
            file.unlink()

    def _apt_or_update(self, what: str, *command: str) -> str:
        """Output of an apt command, tried again with fresh package lists if it fails."""
        result = self._apt(*command)
        if result.returncode != 0 and not self._use_own_lists:
            # This host's package lists are missing or too old; leave them, and get our own.
            self._use_own_lists = True
            update = self._apt("apt-get", "update")
            if update.returncode != 0:
                raise _apt_failed("the lists of Debian packages", update)
            result = self._apt(*command)
        if result.returncode != 0:
            raise _apt_failed(what, result)
        return result.stdout

    def _apt(self, *command: str) -> subprocess.CompletedProcess[str]:
        options = {
            "Dir::State::status": self._directory / "status",
            "Dir::Cache::archives": self._archives,
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "Debug::NoLocking": "1",
            "APT::Sandbox::User": "",
        }
        if self._use_own_lists:
            options["Dir::State::lists"] = self._own_lists
        arguments = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        try:
            return subprocess.run(
                [command[0], *arguments, *command[1:]],
                cwd=self._archives,
                env=os.environ | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_APT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise VicinalError(
                f"{command[0]} did not end within {_APT_SECONDS} s",
                "see whether the Debian mirror of this host's apt configuration answers",
            ) from error


def _check_host() -> None:
    if platform.machine() != "x86_64":
        raise VicinalError(
            f"guests are made for x86-64 only, and this host is {platform.machine()}",
            "run this on an x86-64 host",
        )
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise VicinalError(
                f"{tool} was not found; guest images are made of Debian packages",
                "install apt and dpkg, and configure a Debian mirror",
            )


def _unpack(file: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["dpkg-deb", "--extract", str(file), str(target)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_UNPACK_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise VicinalError(
            f"{file.name} could not be unpacked ({error.stderr.strip()})",
            f"remove {file} and try again",
        ) from error


def _apt_failed(what: str, result: subprocess.CompletedProcess[str]) -> VicinalError:
    lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
    reason = next((line for line in lines if line.startswith("E:")), lines[-1])
    return VicinalError(
        f"{what} could not be fetched ({reason})",
        "see whether `apt-get update` works on this host",
    )
