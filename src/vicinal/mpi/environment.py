"""Finds the provider and the MPI libraries, and sets the variables that connect them.

An application, its MPI library and libfabric stay unmodified. Only environment variables select
Vicinal, and only this module sets them.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError
from vicinal.base.native import PROVIDER_FILE, provider_directory
from vicinal.mpi.libfabric import libfabric_of, libfabric_version, stock_libfabric
from vicinal.mpi.libraries import Family, Installation, Mpi, installation, mpi_prefix

__all__ = [
    "PROVIDER_FILE",
    "MessagePath",
    "Mpi",
    "check_region_name",
    "check_region_names",
    "checkout",
    "mpi_environment",
    "mpi_prefix",
    "provider_directory",
    "provider_path",
]


class MessagePath(StrEnum):
    """The transport of a job's messages."""

    REGION = "region"
    """A shared region, by Vicinal's provider."""
    NETWORK = "network"
    """TCP sockets, as between hosts."""
    SHARED_MEMORY = "shared-memory"
    """The MPI library's own shared memory; all ranks must be in one node."""


class Progress(StrEnum):
    """What a waiting rank does: the values of VICINAL_PROGRESS."""

    POLL = "poll"
    """Poll, and never yield the core."""
    ADAPTIVE = "adaptive"
    """Poll for a while, then yield the core, then sleep."""
    BLOCK = "block"
    """Sleep after some microseconds."""


TCP_ROOM = "FI_TCP_MAX_RX_SIZE"
"""Bytes that libfabric's tcp provider reserves for each of 1024 transfers, 16 KiB by default."""
DOORBELL_AGENT_FILE = "vicinal-doorbell-agent"
"""Program beside the provider that grants interrupts to the ranks of a guest."""
GUEST_RESEED_FILE = "vicinal-guest-reseed"
"""Program beside the provider that gives a guest from a saved state new random numbers."""
GUEST_TASK_FILE = "vicinal-guest-task"
"""Program beside the provider that runs a program in a guest for a task of the host."""

_SEPARATORS = " :"
"""Separators of names in LD_PRELOAD; a name cannot contain one."""

NO_LOCAL = "MPIR_CVAR_NOLOCAL"
"""Variable that disables MPICH's own shared memory between ranks in one node."""

WINDOWS = "VICINAL_WINDOWS"
"""Variable that keeps one-sided operations out of the region if its value is `off`, and makes
shared windows of the members of a region if its value is `on`."""

NO_LOCAL_NOTE = (
    "MPICH's ranks in one node get no shared windows (MPI_Win_allocate_shared): MPICH's own shared "
    f"memory is off, so that messages use the requested path; {NO_LOCAL}=0 turns it on, and "
    f"{WINDOWS}=on makes shared windows in the region"
)

REGIONS_MAX = 4
"""Greatest number of regions that a rank can use at the same time."""

_REGION_FORMS = "write file:PATH, socket:PATH, pci:0000:00:04.0 or dax:/dev/dax0.0"


def no_local_notes(given: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """A note for ranks with NO_LOCAL in `given`, unless the user's own variables (`known`) set
    it, or have shared windows in the region."""
    shares = {**known, **given}.get(WINDOWS) == "on"
    lost = given.get(NO_LOCAL, "0") != "0" and not shares
    return [NO_LOCAL_NOTE] if lost and NO_LOCAL not in known else []


_ADDS_PROVIDERS = (1, 21)
"""The first libfabric whose FI_PROVIDER_PATH may name a file of a provider, behind a +. If the
variable names only files, libfabric also searches its default directory."""


def library_to_preload(file: str) -> str:
    """Return the path of a library beside the provider, for LD_PRELOAD.

    Raises VicinalError if the library is missing, or if its path has a space or a colon, which
    LD_PRELOAD cannot express.
    """
    library = provider_directory() / file
    if not library.is_file():
        raise VicinalError(f"there is no {file} in {library.parent}", "build it with the provider")
    if any(letter in _SEPARATORS for letter in str(library)):
        raise VicinalError(
            f"LD_PRELOAD cannot name {library}, because the path has a space or a colon",
            "set VICINAL_PROVIDER_DIR to a directory without spaces and colons",
        )
    return str(library)


def provider_path(mpi: Mpi | Installation) -> tuple[str, str]:
    """Return a value of FI_PROVIDER_PATH that hides no provider, and a sentence that says why.

    Once the variable is set, libfabric does not search the directories that it would search by
    itself. In an MPI library's wheel, the other providers, such as verbs and efa, are files of
    their own in the directory libfabric beside libfabric.so.1. So the value names this directory
    too. Without such a directory, a newer libfabric gets the provider as a file, and keeps its own
    directory, wherever that is. An older libfabric does not know files: a rank that loads one, such
    as the system's, would not find the provider. So the value names directories if that hides
    nothing. Raises VicinalError if the provider is missing.
    """
    file = provider_directory() / PROVIDER_FILE
    library, version = _loaded_libfabric(mpi)
    named = f"libfabric {version[0]}.{version[1]}" if version[0] else "libfabric of unknown version"
    own = None if library is None else library.parent / "libfabric"
    if own is not None and own.is_dir():
        if file.resolve().parent == own.resolve():
            # A second registration of the same provider would end the first.
            return str(own), f"the provider is in the directory of providers of {named}"
        return (
            f"{file.parent}:{own}",
            f"{own} has the other providers of {named}, which the variable would hide",
        )
    if version >= _ADDS_PROVIDERS:
        return f"+{file}", f"{named} adds the file behind the + to the providers of its directory"
    return str(file.parent), f"{named} takes directories only"


def _loaded_libfabric(mpi: Mpi | Installation) -> tuple[Path | None, tuple[int, int]]:
    """The libfabric of an MPI library and its version; (0, 0) if the version is unknown."""
    with suppress(VicinalError):  # the MPI library is not installed here, or cannot be loaded
        library = libfabric_of(mpi if isinstance(mpi, Installation) else installation(mpi))
        if library is not None and library.is_file():
            return library, libfabric_version(library)
    return None, (0, 0)


def check_region_name(region: str) -> str:
    """Return `region` if it has a form of VICINAL_REGION for one region.

    Raises VicinalError for another form, and for a relative path.
    """
    kind, _, location = region.partition(":")
    if kind not in ("file", "socket", "pci", "dax") or not location:
        raise VicinalError(f"{region!r} does not name a region", _REGION_FORMS)
    if kind != "pci" and not location.startswith("/"):
        raise VicinalError(
            f"the region path {location!r} is relative, and would differ between nodes",
            "use an absolute path",
        )
    return region


def check_region_names(regions: str) -> str:
    """Return `regions` if it is a value for VICINAL_REGION, one region or several.

    Raises VicinalError for a malformed name, a repeated name, or more than REGIONS_MAX regions.
    """
    names = regions.split(",")
    if len(names) > REGIONS_MAX:
        raise VicinalError(
            f"a rank cannot be in {len(names)} regions", f"name {REGIONS_MAX} at most"
        )
    for name in names:
        check_region_name(name)
        if names.count(name) > 1:
            raise VicinalError(f"the region {name} is named twice", "name each region once")
    return regions


def mpi_environment(
    mpi: Mpi | Installation | str,
    path: MessagePath | str = MessagePath.REGION,
    region: str | None = None,
    *,
    cma: bool = True,
    core: str | None = None,
    others: bool = False,
) -> dict[str, str]:
    """Return the variables that make the ranks of an MPI job use a path.

    `region` is a value for VICINAL_REGION, one region or several, for the path `region` only;
    without it the provider searches for a region. `cma` is for the path `shared-memory` only:
    whether the MPI library may copy directly from another process (cross-memory attach). `core` is
    the ranks' VICINAL_NET, for the path `region` only; by default it is this process's value.
    `others`: the path `region` hides no provider of the MPI library, see provider_path(). The other
    providers are of use only if FI_PROVIDER is changed, and each rank loads them at its start: with
    those of MPICH's wheel, a job of two ranks takes 0.53 s instead of 0.43.

    Raises VicinalError if the region's name is malformed, if the provider is not built, or if there
    is no libfabric for Intel MPI.
    """
    mpi = mpi if isinstance(mpi, Installation) else Mpi(mpi)
    path = MessagePath(path)
    if path is MessagePath.REGION:
        own = os.environ.get("VICINAL_NET") or os.environ.get("FI_VICINAL_NET", "")
        layered = _layered_core(own if core is None else core)
        return _region(mpi, region, others or bool(layered)) | layered
    if region is not None:
        raise VicinalError(
            f"the path {path.value} takes no region", "leave out the region, or use the path region"
        )
    if path is MessagePath.NETWORK:
        return _network(mpi.family)
    return _shared_memory(mpi, cma=cma)


def _region(mpi: Mpi | Installation, region: str | None, others: bool) -> dict[str, str]:
    value = provider_path(mpi)[0] if others else str(provider_directory())
    variables = {"FI_PROVIDER_PATH": value, "FI_PROVIDER": "vicinal"}
    if region is not None:
        variables["VICINAL_REGION"] = check_region_names(region)
    # Without this, tcp fills 17 MB with zeros once a peer in the network is known: room for
    # unexpected tagged messages. The provider sends no tagged messages over tcp
    # (docs/decisions/0030).
    if TCP_ROOM not in os.environ:
        variables[TCP_ROOM] = "256"
    match mpi.family:
        case Family.MPICH:
            return variables | {"MPIR_CVAR_CH4_NETMOD": "ofi"}
        case Family.OPENMPI:
            variables |= {
                "OMPI_MCA_pml": "cm",
                "OMPI_MCA_mtl": "ofi",
                "OMPI_MCA_mtl_ofi_provider_include": "vicinal",
                # One-sided communication does not use the pml: osc rdma uses a btl. If ofi is not
                # named, osc rdma may use tcp; if tcp is named too, osc rdma may still use tcp.
                "OMPI_MCA_btl": "self,ofi",
                "OMPI_MCA_btl_ofi_provider_include": "vicinal",
            }
            variables |= _without_ucx()
            if _is_open_mpi_4(mpi):
                # Its btl ofi ends the program at operations that it does not know, such as MPI_MAX,
                # and Open MPI passes such operations to it.
                variables["OMPI_MCA_osc_rdma_acc_use_amo"] = "0"
            return variables
        case Family.INTEL:
            return variables | {
                "I_MPI_FABRICS": "ofi",
                "I_MPI_OFI_PROVIDER": "vicinal",
                "I_MPI_OFI_LIBRARY": str(_libfabric_for_intel()),
                # Otherwise mpi4py also loads Intel's own libfabric, and the provider binds to that
                # one.
                "I_MPI_OFI_LIBRARY_INTERNAL": "0",
            }


def _layered_core(core: str) -> dict[str, str]:
    """Variables of the path region for a core provider with two names, such as "verbs;ofi_rxm".

    libfabric opens such a core provider only if FI_PROVIDER admits the first name.
    """
    first, _, layer = core.partition(";")
    if not layer:
        return {}
    variables = {"FI_PROVIDER": f"vicinal,{first}"}
    if core == "verbs;ofi_rxm":
        # Without this variable, ofi_rxm (libfabric 2.5.1) may post a receive to a connection that
        # it has closed: 4 of 11 jobs of 4 ranks in two guests died at their end. With the variable,
        # none of 11 died.
        variables["FI_OFI_RXM_USE_SRX"] = "1"
        # Without this variable, the provider does not let peers read large messages in place:
        # libfabric's cache of registered memory may contain pages that the program has freed
        # (docs/decisions/0012).
        if "FI_MR_CACHE_MONITOR" not in os.environ:
            variables["FI_MR_CACHE_MONITOR"] = "disabled"
    return variables


def _libfabric_for_intel() -> Path:
    library = stock_libfabric()
    if library is None or not library.is_file():
        found = "none was found" if library is None else f"{library} does not exist"
        raise VicinalError(
            "Intel MPI's own libfabric loads no other providers; Intel MPI needs an "
            f"unmodified libfabric.so.1, and {found}",
            "set I_MPI_OFI_LIBRARY to such a library, for instance the MPICH wheel's",
        )
    return library


def _network(family: Family) -> dict[str, str]:
    match family:
        case Family.MPICH:
            return {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
        case Family.OPENMPI:
            return {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"} | _without_ucx()
        case Family.INTEL:
            return {"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "tcp"}


def _without_ucx() -> dict[str, str]:
    """The variable that disables Open MPI's osc ucx, unless the user has chosen an osc.

    On a host with an InfiniBand card, osc ucx would carry one-sided communication on every path. On
    a host without a card, osc ucx prints for each window that its priority was "set ... failed".
    """
    return {} if "OMPI_MCA_osc" in os.environ else {"OMPI_MCA_osc": "^ucx"}


def _shared_memory(mpi: Mpi | Installation, *, cma: bool) -> dict[str, str]:
    match mpi.family:
        case Family.MPICH:
            # The network module stays MPICH's default, as MPICH's users have it.
            return {"MPIR_CVAR_CH4_CMA_ENABLE": "1" if cma else "0"}
        case Family.OPENMPI if _is_open_mpi_4(mpi):
            return _without_ucx() | {
                "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl": "vader,self",
                "OMPI_MCA_btl_vader_single_copy_mechanism": "cma" if cma else "none",
            }
        case Family.OPENMPI:
            return _without_ucx() | {
                "OMPI_MCA_pml": "ob1",
                "OMPI_MCA_btl": "sm,self",
                "OMPI_MCA_smsc": "cma" if cma else "^cma,knem,xpmem",
            }
        case Family.INTEL:
            return {"I_MPI_FABRICS": "shm", "I_MPI_SHM_CMA": "1" if cma else "0"}


def _is_open_mpi_4(mpi: Mpi | Installation) -> bool:
    if isinstance(mpi, Installation):
        return not mpi.starts_with_prrte
    if mpi is Mpi.OPENMPI_DEBIAN:  # 4.1.4 in Debian 12, 5.0.7 in Debian 13
        with suppress(VicinalError):
            return not installation(mpi).starts_with_prrte
    return mpi in (Mpi.OPENMPI41, Mpi.OPENMPI_DEBIAN)
