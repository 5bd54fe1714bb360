"""Which libfabric an MPI library uses, and whether it lets a provider from outside in.

Libraries are asked themselves, each in a process of its own: what is loaded into this one
stays.
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
"""The libfabric that the provider is linked for; older ones lack symbols that it needs."""

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
    """Version of an MPI library, such as "5.0.2"; empty if it does not say."""
    found = re.search(r"(?:Version:|Open MPI v|Library )\s*(\d[\w.]*)", _about(mpi.library))
    return found[1] if found else ""


def libfabric_of(mpi: Installation) -> Path | None:
    """The libfabric.so.1 that the ranks of a job load, or None where there is none.

    For Intel MPI it is not the one it brings along, which admits only providers that Intel
    named, but see stock_libfabric().
    """
    if mpi.family is Family.INTEL:
        return stock_libfabric()
    for library in (mpi.library, *_open_mpi_components(mpi)):
        found = linked_libraries(library).get(_SONAME)
        if found is not None:
            return found
    return None


def stock_libfabric() -> Path | None:
    """A libfabric.so.1 as it was released, for an MPI whose own one admits no provider.

    It is $I_MPI_OFI_LIBRARY, or else that of an MPICH which is known by name, or the system's.
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
    """Version of a libfabric; raises VicinalError where it cannot be loaded."""
    answer = _ask(_ASK_LIBFABRIC, library)
    if answer is None:
        raise VicinalError(
            f"{library} is no libfabric that can be loaded here",
            f"name another {_SONAME}, of libfabric {_text(OLDEST)} or newer",
        )
    major, minor = map(int, answer.split())
    return major, minor


def check_loads_provider(mpi: Installation) -> None:
    """Raise VicinalError where ranks of this MPI library could not load Vicinal's provider."""
    remedy = "use another MPI library, such as `--mpi mpich`"
    if mpi.family is Family.MPICH:
        device = re.search(r"Device:\s*(\S.*)", _about(mpi.library))
        if device and not re.search(r"\bofi\b", device[1]):
            raise VicinalError(
                f"{mpi.full_name} has no libfabric: it is built for {device[1].strip()} only",
                f"{remedy}, or build it with --with-device=ch4:ofi",
            )
    library = libfabric_of(mpi)
    if library is None and mpi.family is Family.INTEL:
        raise VicinalError(
            f"{mpi.full_name} needs a {_SONAME} as it was released, and none was found: "
            "its own one admits no other providers",
            "let I_MPI_OFI_LIBRARY name one, such as that of the MPICH wheel",
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
    """The libraries that the loader would load for a binary; None for those it does not find.

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
        name, arrow, place = line.strip().partition(" => ")
        if arrow:
            found[name] = None if place.startswith("not found") else Path(place.split(" (")[0])
    return found


def _open_mpi_components(mpi: Installation) -> Iterator[Path]:
    """The component of Open MPI that uses libfabric, where it is a file of its own."""
    if mpi.family is Family.OPENMPI:
        for pattern in ("openmpi*", "openmpi/lib/openmpi*"):
            yield from sorted(mpi.library.parent.glob(f"{pattern}/mca_mtl_ofi.so"))


@cache
def _about(library: Path) -> str:
    """What an MPI library says about itself; empty if it cannot be loaded."""
    return _ask(_ASK_MPI, library) or ""


def _ask(question: str, library: Path) -> str | None:
    """What a library answers in a process of its own; None if it cannot."""
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
