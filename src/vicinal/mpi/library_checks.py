"""The checks of `vicinal doctor` for jobs: the provider, the MPI libraries, and libfabric."""

from collections.abc import Iterator
from pathlib import Path

from vicinal.base.errors import VicinalError
from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.system import Host
from vicinal.mpi.environment import PROVIDER_FILE, provider_directory
from vicinal.mpi.libfabric import (
    check_loads_provider,
    libfabric_of,
    libfabric_version,
    mpi_version,
)
from vicinal.mpi.libraries import STANDARD, Mpi, installation


def check_provider(host: Host) -> Iterator[Finding]:
    """Check that libvicinal-fi.so exists."""
    del host  # the path depends on this package, not on the host
    path = provider_directory() / PROVIDER_FILE
    yield passed(f"{path}", path=str(path))


def check_mpi(host: Host) -> Iterator[Finding]:
    """Check for each known MPI library that its libfabric loads the provider."""
    del host
    missing: list[tuple[Mpi, VicinalError]] = []
    seen: set[Path] = set()  # outside a checkout, Open MPI may be Debian's
    for mpi in Mpi:
        try:
            found = installation(mpi)
        except VicinalError as error:
            missing.append((mpi, error))
            continue
        if found.library in seen:
            continue
        seen.add(found.library)
        version = mpi_version(found) or "of unknown version"
        facts = {"mpi": mpi.value, "version": version, "prefix": str(found.prefix)}
        name = f"{mpi.full_name} {version}"
        try:
            check_loads_provider(found)
        except VicinalError as error:
            yield failed(f"{name}: {error.message}", error.remedy, **facts)
            continue
        library = libfabric_of(found)
        assert library is not None  # check_loads_provider() raised an error otherwise
        number = ".".join(map(str, libfabric_version(library)))
        yield passed(
            f"{name} with libfabric {number}, in {found.prefix}",
            **facts,
            libfabric=str(library),
            libfabric_version=number,
        )
        yield from _other_copies(name, library)
    if len(missing) == len(Mpi):
        _, first = missing[0]
        yield failed(f"no MPI library was found: {first.message}", first.remedy)
    elif missing:
        names = ", ".join(mpi.full_name for mpi, _ in missing)
        standard = any(mpi in STANDARD for mpi, _ in missing)
        yield skipped(
            f"not installed: {names}",
            "see docs/reference/mpi-libraries.md, or name your own with `vicinal run --mpi-prefix`"
            if standard
            else "",
            missing=[mpi.value for mpi, _ in missing],
        )


def _other_copies(name: str, library: Path) -> Iterator[Finding]:
    """Warn of another installation's provider where a libfabric looks by itself."""
    ours = provider_directory() / PROVIDER_FILE
    other = library.parent / "libfabric" / PROVIDER_FILE
    if other.is_file() and other.read_bytes() != ours.read_bytes():
        yield warned(
            f"{name} loads a provider of another Vicinal, too: {other}, besides {ours}",
            "remove one of the two installations, because libfabric chooses the newer provider",
            other=str(other),
        )


LIBRARY_CHECKS = (
    Check("provider", "provider", "Vicinal's libfabric provider, libvicinal-fi.so", check_provider),
    Check("mpi", "MPI", "MPI libraries and the libfabric that each of them uses", check_mpi),
)
