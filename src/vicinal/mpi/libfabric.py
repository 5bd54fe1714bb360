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
from vicinal.base.native import PROVIDER_FILE, provider_directory
from vicinal.mpi.libraries import Family, Installation, Mpi, installation, tested

OLDEST = (1, 17)
"""The libfabric version that the provider is linked for; older versions lack symbols that it
needs."""

_SONAME = "libfabric.so.1"
_ASK_SECONDS = 60
_MACHINES = {3: "i386", 20: "ppc", 21: "ppc64", 40: "arm", 62: "x86_64", 183: "aarch64"}

_ASK_MPI = """
import ctypes, sys
text, length = ctypes.create_string_buffer(65536), ctypes.c_int()
ctypes.CDLL(sys.argv[1]).MPI_Get_library_version(text, ctypes.byref(length))
print(text.value.decode(errors="replace"))
"""
_NO_FILES = "it loads no providers from files"
_ASK_LIBFABRIC = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
library.fi_version.restype = ctypes.c_uint32
version = library.fi_version()
print(version >> 16, version & 0xFFFF)
"""
_ASK_PROVIDER = (
    _ASK_LIBFABRIC
    + """
class Info(ctypes.Structure):
    pass
Text = ctypes.c_char_p
class Fabric(ctypes.Structure):
    _fields_ = [("fabric", ctypes.c_void_p), ("name", Text), ("provider", Text)]
Info._fields_ = [
    ("next", ctypes.POINTER(Info)), ("caps", ctypes.c_uint64), ("mode", ctypes.c_uint64),
    ("format", ctypes.c_uint32), ("lengths", ctypes.c_size_t * 2), ("rest", ctypes.c_void_p * 7),
    ("fabric", ctypes.POINTER(Fabric)),
]
ONLY_ATTRIBUTES = 1 << 54
found = ctypes.POINTER(Info)()
try:
    list_providers = library.fi_getinfo
except AttributeError:
    sys.exit()
list_providers.argtypes = [
    ctypes.c_uint32, Text, Text, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p
]
list_providers((1 << 16) + 17, None, None, ONLY_ATTRIBUTES, None, ctypes.byref(found))
while found:
    if found.contents.fabric.contents.provider == b"vicinal":
        sys.exit()
    found = found.contents.next
try:
    ctypes.CDLL(sys.argv[2])
    print(sys.argv[3])
except OSError as error:
    print(error)
"""
)
"""The second line of its output, if there is one, says why the provider is not listed."""


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


def libfabric_version(library: Path) -> tuple[int, int]:
    """Return major and minor version of a libfabric. Raises VicinalError if it cannot be loaded."""
    version, _ = _ask_libfabric(library, _provider())
    return version


@cache
def _ask_libfabric(library: Path, provider: Path | None) -> tuple[tuple[int, int], str]:
    """Version of a libfabric, and why it does not list the provider; empty if it does, or if there
    is no provider. One process tells both, because a job asks for both."""
    if provider is None:
        answer = _ask(_ASK_LIBFABRIC, library)
    else:
        own = {"FI_PROVIDER": "vicinal", "FI_PROVIDER_PATH": str(provider.parent)}
        answer = _ask(_ASK_PROVIDER, library, provider, _NO_FILES, **own)
    if answer is None:
        raise VicinalError(
            f"{library} cannot be loaded as libfabric",
            f"name another {_SONAME}, of libfabric {_text(OLDEST)} or newer",
        )
    numbers, _, trouble = answer.strip().partition("\n")
    major, minor = map(int, numbers.split())
    return (major, minor), _explained(trouble.partition("\n")[0], provider, library)


def _explained(trouble: str, provider: Path | None, library: Path) -> str:
    """The loader's reason, or a better one: of another processor's files it says that there is no
    such file, and of musl's that a header is invalid."""
    if provider is None or trouble in ("", _NO_FILES):
        return trouble
    built, needed = _processor(provider), _processor(library)
    if not built:
        return "it is no shared library"
    if built != needed:
        return f"it is for {built}, and {library} is for {needed}"
    if trouble.endswith("invalid ELF header"):
        return f"it was linked with another C library, such as musl ({trouble})"
    return trouble.removesuffix(f" (required by {provider})")


def _processor(file: Path) -> str:
    """The kind of processor that an ELF file is for; empty if it is no such file."""
    with file.open("rb") as opened:
        header = opened.read(20)
    if len(header) < 20 or not header.startswith(b"\x7fELF"):
        return ""
    machine = int.from_bytes(header[18:20], "big" if header[5] == 2 else "little")
    name = _MACHINES.get(machine, f"ELF machine {machine}")
    return f"32-bit {name}" if header[4] == 1 else name


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
    _, trouble = _ask_libfabric(library, _provider())
    if trouble == _NO_FILES:
        raise VicinalError(
            f"{library} of {mpi.full_name} loads no providers from files: it was built without "
            "support for dlopen",
            f"install a libfabric that loads them, or {remedy}",
        )
    if trouble:
        raise VicinalError(
            f"the provider {_provider()} cannot be loaded here: {trouble}",
            "build Vicinal on this system, or install a wheel or package that is for this system",
        )


def check_job_loads_provider(mpi: Installation) -> None:
    """As check_loads_provider(), but without asking a library and a provider that `make` put
    together, because that takes each job 0.1 s."""
    if not tested(mpi) or os.environ.get("VICINAL_PROVIDER_DIR"):
        check_loads_provider(mpi)


def _provider() -> Path | None:
    with suppress(VicinalError):
        return provider_directory() / PROVIDER_FILE
    return None


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


def _ask(question: str, *arguments: Path | str, **variables: str) -> str | None:
    """The output of a query in a process of its own; None if the process fails or takes too
    long."""
    try:
        return subprocess.run(
            [sys.executable, "-I", "-c", question, *map(str, arguments)],
            env=os.environ | variables,
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
