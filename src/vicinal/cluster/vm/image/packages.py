"""Debian packages for a guest image: fetched and unpacked, never installed on this host.

apt resolves dependencies as for an empty system, with this host's configured mirrors and keys. Root
is not needed.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from vicinal.base.errors import VicinalError

_ARCHIVE_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""Keys of Debian's archive including backports; apt verifies all packages with them."""

RECORD = Path("var/lib/dpkg/status")
"""File with the packages of a system, relative to its root, in the format of dpkg and apt."""
HOST_RECORD = "/" / RECORD

_APT_SECONDS = 600
_UNPACK_SECONDS = 120


class PackageStore:
    """A fresh directory for fetched packages, with apt's state for fetching them.

    Packages in the record `installed` count as present, and are not fetched. HOST_RECORD is for
    programs that run on this host with its libraries.
    """

    def __init__(self, directory: Path, *, installed: Path | None = None) -> None:
        self._directory = directory
        self._archives = directory / "archives"
        self._own_lists = directory / "lists"
        self._use_own_lists = False
        self._release = ""
        _check_host()
        for directory in (self._archives / "partial", self._own_lists / "partial"):
            directory.mkdir(parents=True)
        # With an empty package database all packages count as missing.
        status = self._directory / "status"
        if installed is not None and installed.is_file():
            shutil.copyfile(installed, status)
        else:
            status.touch()

    def unpack(self, packages: Sequence[str], target: Path, *, without: str = "") -> None:
        """Unpack packages and all their dependencies, except `without`, into `target`.

        RECORD in `target` lists them. Raises VicinalError if a package cannot be fetched.
        """
        install = ["apt-get", "install", "--download-only", "--no-install-recommends", "--yes"]
        self._apt_or_update(f"the packages {' '.join(packages)}", *install, *packages)
        if without:
            for file in self._archives.glob(f"{without}_*.deb"):
                file.unlink()
        self._record(target / RECORD)
        self._unpack_all(target)

    def unpack_kernel(self, package: str, target: Path) -> None:
        """Unpack the kernel that `package` depends on, without its other dependencies."""
        listing = self._apt_or_update(
            f"the package {package}", "apt-cache", "depends", "--important", package
        )
        fields = [line.split() for line in listing.splitlines()]
        kernels = [field[1] for field in fields if len(field) == 2 and field[0] == "Depends:"]
        kernel = next((name for name in kernels if name.startswith("linux-image-")), None)
        if kernel is None:
            raise VicinalError(
                f"{package} depends on no kernel",
                "check that the Debian mirror of this host's apt configuration has one",
            )
        self.unpack_alone([kernel], target)

    def unpack_alone(self, packages: Sequence[str], target: Path) -> None:
        """Unpack packages without their dependencies into `target`."""
        what = f"the packages {' '.join(packages)}"
        self._apt_or_update(what, "apt-get", "download", *packages)
        self._unpack_all(target)

    def release_sources(self) -> tuple[str, list[str]]:
        """Name of this host's Debian release, and lines of a sources.list for it.

        The lines include updates and security fixes if this host has them configured.
        """
        found = self._required_mirrors()
        release = next(name for _, name, _ in found if "-" not in name)
        suites = [each for each in found if each[1].partition("-")[0] == release]
        return release, _source_lines(each for each in suites if "backports" not in each[1])

    def prefer_backports(self) -> None:
        """From now on, prefer packages from the backports of this host's Debian release.

        This host need not have backports configured: they are on the mirror of the release.
        """
        found = self._required_mirrors()
        lines = _source_lines(found)
        # The release has a plain name; the names of updates and security fixes are longer.
        mirror, release = next((where, name) for where, name, _ in found if "-" not in name)
        self._release = f"{release}-backports"
        lines += _source_lines([(mirror, self._release, "main")])
        self._sources.write_text("".join(f"{line}\n" for line in lines))
        self._use_lists_of_our_own()

    @property
    def _sources(self) -> Path:
        return self._directory / "sources.list"

    def _required_mirrors(self) -> list[tuple[str, str, str]]:
        """Like _debian_mirrors(), with own package lists if this host's are of no use.

        Raises VicinalError if no mirror is found.
        """
        found = self._debian_mirrors()
        if not found:
            self._use_lists_of_our_own()
            found = self._debian_mirrors()
        if not found:
            raise VicinalError(
                "no Debian mirror was found in this host's apt configuration",
                "check whether `apt-get indextargets` on this host lists a mirror",
            )
        return found

    def _debian_mirrors(self) -> list[tuple[str, str, str]]:
        """Address, release and component of Debian packages in this host's apt configuration."""
        form = "$(REPO_URI) $(CODENAME) $(COMPONENT)"
        command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
        lines = self._apt(*command, "Origin: Debian").stdout.splitlines()
        fields = {tuple(line.split()): None for line in lines}  # without duplicates, in order
        found = [(each[0], each[1], each[2]) for each in fields if len(each) == 3]
        return found if any("-" not in name for _, name, _ in found) else []

    def _use_lists_of_our_own(self) -> None:
        self._use_own_lists = True
        update = self._apt("apt-get", "update")
        if update.returncode != 0:
            raise _apt_failed("the lists of Debian packages", update)

    def _record(self, record: Path) -> None:
        record.parent.mkdir(parents=True, exist_ok=True)
        with record.open("a") as lines:
            for file in sorted(self._archives.glob("*.deb")):
                about = _dpkg_deb("--field", file)
                lines.write(f"{about.strip()}\nStatus: install ok installed\n\n")

    def _unpack_all(self, target: Path) -> None:
        for file in sorted(self._archives.glob("*.deb")):
            _unpack(file, target)
            file.unlink()

    def _apt_or_update(self, what: str, *command: str) -> str:
        """Output of an apt command, which is repeated with fresh package lists if it fails."""
        result = self._apt(*command)
        if result.returncode != 0 and not self._use_own_lists:
            # This host's package lists are missing or too old: leave them, and fetch own lists.
            self._use_lists_of_our_own()
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
        if self._release:
            options["Dir::Etc::sourcelist"] = self._sources
            options["Dir::Etc::sourceparts"] = "-"
            options["APT::Default-Release"] = self._release
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
                "check whether the Debian mirror of this host's apt configuration answers",
            ) from error


def _source_lines(mirrors: Iterable[tuple[str, str, str]]) -> list[str]:
    """Lines of a sources.list for these mirrors, suites and components."""
    keys = f"[signed-by={_ARCHIVE_KEYS}] " if _ARCHIVE_KEYS.is_file() else ""
    return [f"deb {keys}{mirror} {suite} {component}" for mirror, suite, component in mirrors]


def _check_host() -> None:
    if platform.machine() != "x86_64":
        raise VicinalError(
            f"guests run on x86-64 only, and this host is {platform.machine()}",
            "run this on an x86-64 host",
        )
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise VicinalError(
                f"{tool} was not found, and guest images are built from Debian packages",
                "install apt and dpkg, and configure a Debian mirror",
            )


def _unpack(file: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _dpkg_deb("--extract", file, target)


def _dpkg_deb(action: str, file: Path, *more: Path) -> str:
    try:
        done = subprocess.run(
            ["dpkg-deb", action, str(file), *map(str, more)],
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
    return done.stdout


def _apt_failed(what: str, result: subprocess.CompletedProcess[str]) -> VicinalError:
    lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
    reason = next((line for line in lines if line.startswith("E:")), lines[-1])
    return VicinalError(
        f"{what} could not be fetched ({reason})",
        "check whether `apt-get update` works on this host",
    )
