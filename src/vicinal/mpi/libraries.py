"""The MPI libraries that are known by name, and where each is installed.

How a library is queried and started depends only on its family. There are three families, each with
launchers and variables of its own.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError


class Family(StrEnum):
    """MPI libraries with the same launchers and the same variables."""

    MPICH = "mpich"
    OPENMPI = "openmpi"
    INTEL = "intel"

    @property
    def full_name(self) -> str:
        """The usual name, such as "Open MPI"."""
        return _FAMILY_NAMES[self]


class Mpi(StrEnum):
    """The MPI libraries that Vicinal is tested with."""

    MPICH = "mpich"
    MPICH43 = "mpich43"
    OPENMPI = "openmpi"
    OPENMPI41 = "openmpi41"
    OPENMPI_DEBIAN = "openmpi-debian"
    INTEL = "intel"

    @property
    def family(self) -> Family:
        """The library's family."""
        return _FACTS[self][0]

    @property
    def full_name(self) -> str:
        """The name in messages, such as "Open MPI 4.1"."""
        return _FACTS[self][1]


STANDARD = (Mpi.MPICH, Mpi.OPENMPI)
"""The libraries that `make` installs; `make mpis` installs the other ones."""

_FAMILY_NAMES = {
    Family.MPICH: "MPICH",
    Family.OPENMPI: "Open MPI",
    Family.INTEL: "Intel MPI",
}
_FACTS = {
    Mpi.MPICH: (Family.MPICH, "MPICH"),
    Mpi.MPICH43: (Family.MPICH, "MPICH 4.3"),
    Mpi.OPENMPI: (Family.OPENMPI, "Open MPI"),
    Mpi.OPENMPI41: (Family.OPENMPI, "Open MPI 4.1"),
    Mpi.OPENMPI_DEBIAN: (Family.OPENMPI, "Debian's Open MPI"),
    Mpi.INTEL: (Family.INTEL, "Intel MPI"),
}

_SYSTEM_PREFIX = Path("/usr")
_RED_HAT_PREFIXES = (Path("/usr/lib64/mpich"), Path("/usr/lib64/openmpi"))
"""Where Red Hat's packages put each MPI library, and SUSE's in directories of similar names."""

STANDARD_INTERFACE = "libmpi_abi.so"
"""Beginning of the library's name in the standard ABI, the same for every MPI that supports it."""

_LIBRARIES = ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12", f"{STANDARD_INTERFACE}.*")
"""Patterns of names: Open MPI 4 and 5; MPICH and Intel MPI, which have one binary interface; MPICH
on Debian; the standard ABI, which may be the only library of an MPI."""

_LIBRARY_DIRECTORIES = ("lib", "lib/release", "lib64", "lib/*-linux-gnu", "lib64/*/lib")
"""Below a prefix, as patterns: plain, of older Intel MPI, and of Linux distributions."""

_LAUNCHERS = {
    # If a system has several MPI libraries, its plain mpirun may belong to any of them.
    Family.MPICH: ("mpiexec.mpich", "mpiexec.hydra", "mpiexec"),
    Family.OPENMPI: ("mpirun.openmpi", "mpirun"),
    Family.INTEL: ("mpiexec.hydra",),
}


@dataclass(frozen=True)
class Installation:
    """An MPI library that is installed on this host."""

    family: Family
    prefix: Path
    """The directory that holds bin/ and lib/."""
    library: Path
    """The library that programs are linked with."""
    launcher: Path
    name: str = ""
    """The value of Mpi; empty for a user's own library."""

    @property
    def full_name(self) -> str:
        """The name in messages."""
        return (
            Mpi(self.name).full_name
            if self.name
            else f"the {self.family.full_name} in {self.prefix}"
        )

    @property
    def starts_with_prrte(self) -> bool:
        """Whether this is Open MPI 5 or newer, whose launcher is PRRTE instead of ORTE."""
        return (self.launcher.resolve().parent / "prterun").exists()

    def is_library(self, path: Path) -> bool:
        """Whether a file is this installation's library, under any name."""
        return path.exists() and path.samefile(self.library)


def mpi_variable(mpi: Mpi) -> str:
    """The variable in which a user may name an MPI library's prefix."""
    return f"VICINAL_{mpi.name}"


def mpi_prefix(mpi: Mpi | str) -> Path:
    """The installation prefix of an MPI library. Raises VicinalError as installation() does."""
    return installation(mpi).prefix


def installation(mpi: Mpi | str) -> Installation:
    """Return the installation of an MPI library.

    Its prefix is in a variable, such as $VICINAL_MPICH or $VICINAL_OPENMPI_DEBIAN, or else
    build/mpi/<mpi> in the checkout; Debian's own library is in /usr. Each library in build/mpi has
    its own prefix, because most of them install bin/mpicc, bin/mpiexec and include/mpi.h. Outside a
    checkout, the names of families stand for the first library of the family on this host, of any
    version: in the virtual environment, by PATH, by LD_LIBRARY_PATH, in the system's directories.
    Raises VicinalError if the library is not there, or if the prefix holds another MPI library.
    """
    mpi = Mpi(mpi)
    variable = mpi_variable(mpi)
    chosen = os.environ.get(variable)
    tree = checkout()
    if chosen:
        prefix = Path(chosen).resolve()
        remedy = f"set {variable} to the prefix that holds bin/mpiexec"
    elif mpi is Mpi.OPENMPI_DEBIAN:
        prefix = _SYSTEM_PREFIX
        remedy = f"on Debian run apt-get install openmpi-bin libopenmpi-dev, or set {variable}"
    elif tree is not None:
        prefix = tree / "build" / "mpi" / mpi.value
        target = "make" if mpi in STANDARD else "make mpis"
        remedy = f"run `{target}` in {tree}, or set {variable} to the prefix of an installed one"
    else:
        return _on_this_host(mpi)
    try:
        found = _look_in(prefix, mpi.family)
    except VicinalError:
        found = None
    if found is None:
        raise VicinalError(f"there is no {mpi.full_name} in {prefix}", remedy)
    if found.family is not mpi.family:
        raise VicinalError(
            f"the MPI library in {prefix} is {found.family.full_name}, not {mpi.full_name}", remedy
        )
    return Installation(found.family, prefix, found.library, found.launcher, mpi.value)


def default_installation() -> Installation:
    """Return the MPI library for programs that show none: MPICH, or outside a checkout the first of
    the families that is installed. Raises VicinalError if there is none."""
    try:
        return installation(Mpi.MPICH)
    except VicinalError:
        for mpi in (Mpi.OPENMPI, Mpi.INTEL) if checkout() is None else ():
            with suppress(VicinalError):
                return installation(mpi)
        raise


def standard_here() -> tuple[Mpi, ...]:
    """Return the standard libraries: all in a checkout, and elsewhere the installed ones.

    Raises VicinalError if none is installed.
    """
    if checkout() is not None:
        return STANDARD
    found = []
    for mpi in STANDARD:
        with suppress(VicinalError):
            found.append(installation(mpi))
    return tuple(Mpi(each.name) for each in found or [installation(STANDARD[0])])


def _on_this_host(mpi: Mpi) -> Installation:
    if mpi.value == mpi.family.value:  # other names stand for a version, or for Debian's library
        for prefix in dict.fromkeys(_prefixes()):
            with suppress(VicinalError):
                found = _look_in(prefix, mpi.family)
                if found.family is mpi.family:
                    return replace(found, name=mpi.value)
    remedy = f"set {mpi_variable(mpi)} to the prefix of an installed one"
    if mpi.value == mpi.family.value:
        remedy = f"put its bin/ into PATH, or {remedy}"
    if mpi in STANDARD:
        remedy = f"run `pip install 'vicinal[{mpi}]'`, {remedy}"
    raise VicinalError(f"{mpi.full_name} was not found", remedy)


def _prefixes() -> Iterator[Path]:
    """Prefixes in which this host may have MPI libraries, the user's own before the system's."""
    if sys.prefix != sys.base_prefix:
        yield Path(sys.prefix)
    if root := os.environ.get("I_MPI_ROOT"):
        yield Path(root)
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        if directory.startswith("/"):
            yield _named(Path(directory).resolve().parent)
    for directory in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if directory.startswith("/"):  # PREFIX/lib, or PREFIX/lib/release of Intel MPI
            yield from map(_named, list(Path(directory).parents)[:2])
    yield from (*_RED_HAT_PREFIXES, _SYSTEM_PREFIX.joinpath("local"), _SYSTEM_PREFIX)


def _named(prefix: Path) -> Path:
    """A prefix by its usual name: / has the same libraries as /usr."""
    return prefix if prefix.name else _SYSTEM_PREFIX


def tested(mpi: Installation) -> bool:
    """Whether `make` or `make mpis` installed this library, in a version that is tested."""
    tree = checkout()
    return tree is not None and mpi.prefix.is_relative_to(tree / "build" / "mpi")


def installation_in(prefix: Path) -> Installation:
    """Return the MPI library in a user's prefix.

    Raises VicinalError if there is none, or if its launcher is missing.
    """
    if not prefix.is_dir():
        raise VicinalError(
            f"there is no directory {prefix}",
            "name the prefix of an MPI library: the directory that holds its bin/ and lib/",
        )
    return _known(_look_in(prefix.resolve()))


def installation_of(library: Path) -> Installation | None:
    """Return the installation that a library belongs to; None if no launcher is installed with
    it."""
    for directory in library.resolve().parents:
        if (directory / "bin").is_dir():
            try:
                found = _look_in(directory, only=library.resolve())
            except VicinalError:
                return None
            return _known(found)
    return None


def _known(found: Installation) -> Installation:
    """The same installation with its name from Mpi, if it has one."""
    for mpi in Mpi:
        try:
            named = installation(mpi)
        except VicinalError:
            continue
        if named.is_library(found.library):
            return named
    return found


def _look_in(prefix: Path, wanted: Family | None = None, only: Path | None = None) -> Installation:
    """The MPI library in a prefix. Of several libraries it is the wanted family, or else the first
    found. With `only`, it is this library, or if that is of the standard ABI, a library beside it.

    Raises VicinalError if there is no library, or if its launcher is missing.
    """
    found = []
    for name in _LIBRARIES:
        for pattern in _LIBRARY_DIRECTORIES:
            for library in sorted(prefix.glob(f"{pattern}/{name}")):
                if only is None or library.samefile(only) or _is_beside(library, only):
                    found.append((_family(prefix, library), library))
    if not found:
        raise VicinalError(
            f"there is no MPI library in {prefix}",
            "name the directory that holds bin/mpiexec and lib/libmpi.so of "
            "MPICH, Open MPI or Intel MPI",
        )
    family, library = next((entry for entry in found if entry[0] is wanted), found[0])
    for name in _LAUNCHERS[family]:
        launcher = prefix / "bin" / name
        if launcher.is_file():
            return Installation(family, prefix, library, launcher)
    raise VicinalError(
        f"{prefix} has the library of {family.full_name} but no bin/{_LAUNCHERS[family][-1]}",
        "install the launcher too, or name another prefix",
    )


def _is_beside(library: Path, standard: Path) -> bool:
    """Whether a library is of the same MPI as a library of the standard ABI."""
    return standard.name.startswith(STANDARD_INTERFACE) and library.parent.samefile(standard.parent)


def _family(prefix: Path, library: Path) -> Family:
    standard = library.name.startswith(STANDARD_INTERFACE)
    if library.name == "libmpi.so.40" or (standard and any(library.parent.glob("libopen-pal.so*"))):
        return Family.OPENMPI
    intel = (prefix / "bin" / "hydra_bstrap_proxy").exists()
    return Family.INTEL if intel else Family.MPICH
