"""Finds the libfabric of an MPI library, and checks that it loads external providers.

Each library is queried in a process of its own, because a loaded library cannot be unloaded.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.mpi.libraries import Family, Installation, Mpi, installation

OLDEST = (1, 17)
"""The libfabric version that the provider is linked for; older versions lack symbols that it
needs."""

_SONAME = "libfabric.so.1"
_ASK_SECONDS = 60

_ASK_MPI = """
import ctypes, sys
text, length = ctypes.create_string_buffer(65536), ctypes.c_int()
ctypes.CDLL(sys.argv[1]).MPI_Get_library_version(text, ctypes.byref(length))
print(text.value.decode(errors="replace"))
"""
_ASK_LIBFABRIC = """
import ctypes, sys
ask = ctypes.CDLL(sys.argv[1]).fi_version
ask.restype = ctypes.c_uint32
print(ask() >> 16, ask() & 0xFFFF)
"""


def mpi_version(mpi: Installation) -> str:
    """Version of an MPI library, such as "5.0.2"; empty if the library does not report one."""
    found = re.search(r"(?:Version:|Open MPI v|Library )\s*(\d[\w.]*)", _about(mpi.library))
    return found[1] if found else ""


def libfabric_of(mpi: Installation) -> Path | None:
    """Return the libfabric.so.1 that the ranks of a job load; None if there is none.

    For Intel MPI the result is stock_libfabric(): Intel's own libfabric loads only the providers
    that Intel lists.
    """
    if mpi.family is Family.INTEL:
        return stock_libfabric()
    for library in (mpi.library, *_open_mpi_components(mpi)):
        found = linked_libraries(library).get(_SONAME)
        if found is not None:
            return found
    return None


def stock_libfabric() -> Path | None:
    """Return an unmodified libfabric.so.1, for an MPI whose own libfabric loads no external
    provider.

    The library is $I_MPI_OFI_LIBRARY, or else the libfabric of an MPICH that is known by name, or
    the system's. None if there is none.
    """
    chosen = os.environ.get("I_MPI_OFI_LIBRARY")
    if chosen:
        return Path(chosen)
    for mpi in (Mpi.MPICH, Mpi.MPICH43):
        with suppress(VicinalError):
            found = libfabric_of(installation(mpi))
            if found is not None:
                return found
    return next(iter(sorted(Path("/usr").glob(f"lib*/*/{_SONAME}"))), None) or next(
        iter(sorted(Path("/usr").glob(f"lib*/{_SONAME}"))), None
    )


@cache
def libfabric_version(library: Path) -> tuple[int, int]:
    """Return major and minor version of a libfabric. Raises VicinalError if it cannot be loaded."""
    answer = _ask(_ASK_LIBFABRIC, library)
    if answer is None:
        raise VicinalError(
            f"{library} cannot be loaded as libfabric",
            f"name another {_SONAME}, of libfabric {_text(OLDEST)} or newer",
        )
    major, minor = map(int, answer.split())
    return major, minor


def check_loads_provider(mpi: Installation) -> None:
    """Raise VicinalError if ranks of this MPI library could not load Vicinal's provider."""
    remedy = "use another MPI library, such as `--mpi mpich`"
    if mpi.family is Family.MPICH:
        device = re.search(r"Device:\s*(\S.*)", _about(mpi.library))
        if device and not re.search(r"\bofi\b", device[1]):
            raise VicinalError(
                f"{mpi.full_name} has no libfabric: its only device is {device[1].strip()}",
                f"{remedy}, or build the library with --with-device=ch4:ofi",
            )
    library = libfabric_of(mpi)
    if library is None and mpi.family is Family.INTEL:
        raise VicinalError(
            f"{mpi.full_name} needs an unmodified {_SONAME}, and none was found: "
            "its own libfabric loads no other providers",
            "set I_MPI_OFI_LIBRARY to such a library, for instance the MPICH wheel's",
        )
    if library is None:
        raise VicinalError(f"{mpi.full_name} uses no {_SONAME} that could load a provider", remedy)
    version = libfabric_version(library)
    if version < OLDEST:
        raise VicinalError(
            f"{library} of {mpi.full_name} is libfabric {_text(version)}, and Vicinal needs "
            f"{_text(OLDEST)}",
            f"install a newer libfabric, or {remedy}",
        )


def linked_libraries(binary: Path) -> dict[str, Path | None]:
    """Return the libraries that the loader loads for a binary, by name; None for a missing library.

    Empty for scripts, and for programs that load their libraries later, such as Python.
    """
    try:
        listing = subprocess.run(
            ["ldd", str(binary)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_ASK_SECONDS,
        ).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, Path | None] = {}
    for line in listing.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow:
            found[name] = None if path.startswith("not found") else Path(path.split(" (")[0])
    return found


def _open_mpi_components(mpi: Installation) -> Iterator[Path]:
    """The component of Open MPI that uses libfabric, if the component is a file of its own."""
    if mpi.family is Family.OPENMPI:
        for pattern in ("openmpi*", "openmpi/lib/openmpi*"):
            yield from sorted(mpi.library.parent.glob(f"{pattern}/mca_mtl_ofi.so"))


@cache
def _about(library: Path) -> str:
    """An MPI library's description of itself; empty if the library cannot be loaded."""
    return _ask(_ASK_MPI, library) or ""


def _ask(question: str, library: Path) -> str | None:
    """The output of a query in a process of its own; None if the process fails or takes too
    long."""
    try:
        return subprocess.run(
            [sys.executable, "-I", "-c", question, str(library)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_ASK_SECONDS,
        ).stdout
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
