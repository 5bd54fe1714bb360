"""Where the provider and the MPI libraries are, and the variables that join them.

An application, its MPI library and libfabric stay as they are: Vicinal is selected by
environment variables alone, and this is the one place that makes them.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from vicinal.base.checkout import checkout
from vicinal.base.errors import VicinalError
from vicinal.mpi.libfabric import libfabric_of, stock_libfabric
from vicinal.mpi.libraries import Family, Installation, Mpi, installation, mpi_prefix

__all__ = [
    "MessagePath",
    "Mpi",
    "check_region_name",
    "check_region_names",
    "checkout",
    "mpi_environment",
    "mpi_prefix",
    "provider_directory",
]


class MessagePath(StrEnum):
    """How the messages of a job travel."""

    REGION = "region"
    """Through a shared region, by Vicinal's provider."""
    NETWORK = "network"
    """Through TCP sockets, as between hosts."""
    SHARED_MEMORY = "shared-memory"
    """Through the MPI library's own shared memory; every rank must be in one node."""


class Progress(StrEnum):
    """What a rank does that waits: the values of VICINAL_PROGRESS."""

    POLL = "poll"
    """Look on, and never give the core away."""
    ADAPTIVE = "adaptive"
    """Look on for a while, then offer the core, then sleep."""
    BLOCK = "block"
    """Sleep after some microseconds."""


PROVIDER_FILE = "libvicinal-fi.so"
TCP_ROOM = "FI_TCP_MAX_RX_SIZE"
"""Bytes that tcp of libfabric keeps with each of 1024 transfers, 16 KiB by default."""
DOORBELL_AGENT_FILE = "vicinal-doorbell-agent"
"""Beside the provider: what lends interrupts to the ranks of a guest."""
GUEST_RESEED_FILE = "vicinal-guest-reseed"
"""There too: what gives a guest that was saved before random numbers of its own."""
GUEST_TASK_FILE = "vicinal-guest-task"
"""There too: what runs a program in a guest for a task of the host."""

_SEPARATORS = " :"
"""What separates names in LD_PRELOAD; no name can have one."""

NO_LOCAL = "MPIR_CVAR_NOLOCAL"
"""Variable that keeps MPICH from its own shared memory between ranks in one node."""

NO_LOCAL_NOTE = (
    "MPICH's ranks in one node get no shared windows (MPI_Win_allocate_shared): their messages go "
    f"the path that was asked for, without its own shared memory; {NO_LOCAL}=0 gives them both"
)

REGIONS_MAX = 4
"""In which a rank can be at the same time."""

_REGION_FORMS = "write it as file:PATH, pci:0000:00:04.0 or dax:/dev/dax0.0"


def no_local_notes(given: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """A note for ranks that are given NO_LOCAL, unless their user's own variables have it."""
    return [NO_LOCAL_NOTE] if given.get(NO_LOCAL, "0") != "0" and NO_LOCAL not in known else []


def library_to_preload(file: str) -> str:
    """The path of a library that lies beside the provider, as LD_PRELOAD names it.

    Raises VicinalError where it is not there or has a name that LD_PRELOAD cannot have.
    """
    library = provider_directory() / file
    if not library.is_file():
        raise VicinalError(
            f"there is no {file} in {library.parent}", "build it as the provider is built"
        )
    if any(letter in _SEPARATORS for letter in str(library)):
        raise VicinalError(
            f"LD_PRELOAD cannot name {library}, which has a space or a colon in it",
            "let VICINAL_PROVIDER_DIR name a directory without",
        )
    return str(library)


def provider_directory() -> Path:
    """The directory to name in FI_PROVIDER_PATH.

    It is $VICINAL_PROVIDER_DIR, or else build/release/provider in the checkout.
    Raises VicinalError where the provider is in neither.
    """
    chosen = os.environ.get("VICINAL_PROVIDER_DIR")
    if chosen:
        directory = Path(chosen).resolve()
        remedy = f"let VICINAL_PROVIDER_DIR name the directory that holds {PROVIDER_FILE}"
    else:
        tree = checkout()
        if tree is None:
            raise VicinalError(
                "the provider was not found",
                f"set VICINAL_PROVIDER_DIR to the directory that holds {PROVIDER_FILE}",
            )
        directory = tree / "build" / "release" / "provider"
        remedy = f"run `make` in {tree}, or set VICINAL_PROVIDER_DIR"
    if not (directory / PROVIDER_FILE).is_file():
        raise VicinalError(f"there is no {PROVIDER_FILE} in {directory}", remedy)
    return directory


def check_region_name(region: str) -> str:
    """Return `region` if it names one as VICINAL_REGION does; raise VicinalError if not."""
    kind, _, place = region.partition(":")
    if kind not in ("file", "pci", "dax") or not place:
        raise VicinalError(f"{region!r} does not name a region", _REGION_FORMS)
    if kind != "pci" and not place.startswith("/"):
        raise VicinalError(
            f"the region path {place!r} is relative, and would differ between nodes",
            "give an absolute path",
        )
    return region


def check_region_names(regions: str) -> str:
    """Return a value for VICINAL_REGION, one region or several; raise VicinalError if malformed."""
    names = regions.split(",")
    if len(names) > REGIONS_MAX:
        raise VicinalError(
            f"a rank cannot be in {len(names)} regions", f"name {REGIONS_MAX} at most"
        )
    for name in names:
        check_region_name(name)
        if names.count(name) > 1:
            raise VicinalError(f"the region {name} is named twice", "name each once")
    return regions


def mpi_environment(
    mpi: Mpi | Installation | str,
    path: MessagePath | str = MessagePath.REGION,
    region: str | None = None,
    *,
    cma: bool = True,
    core: str | None = None,
) -> dict[str, str]:
    """The variables that make the ranks of an MPI job use a path.

    `region` is a value for VICINAL_REGION, one region or several; without it the provider looks
    for a region by itself. It is for the path `region` only. `cma` is for the path
    `shared-memory` only: whether the MPI library may copy straight out of another process
    (cross-memory attach).
    `core` is what VICINAL_NET will be for the ranks, by default as it is for this process; it
    is for the path `region` only.
    Raises VicinalError where the region's name is malformed, the provider is not built, or
    there is no libfabric for Intel MPI.
    """
    mpi = mpi if isinstance(mpi, Installation) else Mpi(mpi)
    path = MessagePath(path)
    if path is MessagePath.REGION:
        own = os.environ.get("VICINAL_NET") or os.environ.get("FI_VICINAL_NET", "")
        return _region(mpi, region) | _layered_core(mpi, own if core is None else core)
    if region is not None:
        raise VicinalError(
            f"the path {path.value} takes no region", "leave out the region, or use path region"
        )
    if path is MessagePath.NETWORK:
        return _network(mpi.family)
    return _shared_memory(mpi, cma=cma)


def _region(mpi: Mpi | Installation, region: str | None) -> dict[str, str]:
    variables = {"FI_PROVIDER_PATH": str(provider_directory()), "FI_PROVIDER": "vicinal"}
    if region is not None:
        variables["VICINAL_REGION"] = check_region_names(region)
    # Else tcp fills 17 MB with zeros once a peer in the network is known: room for tagged messages
    # that arrive early, and the provider sends no tagged ones by it (docs/decisions/0030).
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
                # One-sided communication does not go through the pml: osc rdma takes a btl.
                # Without ofi named, it may take tcp; with tcp named too, it may still.
                "OMPI_MCA_btl": "self,ofi",
                "OMPI_MCA_btl_ofi_provider_include": "vicinal",
            }
            variables |= _without_ucx()
            if _is_open_mpi_4(mpi):
                # Its btl ofi ends the program at operations that it does not know, such as
                # MPI_MAX, and is asked for them all the same.
                variables["OMPI_MCA_osc_rdma_acc_use_amo"] = "0"
            return variables
        case Family.INTEL:
            return variables | {
                "I_MPI_FABRICS": "ofi",
                "I_MPI_OFI_PROVIDER": "vicinal",
                "I_MPI_OFI_LIBRARY": str(_libfabric_for_intel()),
                # mpi4py would load Intel's own beside it, and the provider be bound to that.
                "I_MPI_OFI_LIBRARY_INTERNAL": "0",
            }


def _layered_core(mpi: Mpi | Installation, core: str) -> dict[str, str]:
    """What the variables of the path region have to be to reach others by a core of two names.

    One such as "verbs;ofi_rxm" libfabric opens only if FI_PROVIDER admits the first. That may be
    a library of its own beside the MPI's libfabric, where libfabric does not look for it once
    FI_PROVIDER_PATH is set.
    """
    first, _, layer = core.partition(";")
    if not layer:
        return {}
    path = [provider_directory()]
    with suppress(VicinalError):  # of an MPI library that is not here there is nothing to find
        found = mpi if isinstance(mpi, Installation) else installation(mpi)
        libfabric = libfabric_of(found)
        if libfabric is not None and (libfabric.parent / "libfabric").is_dir():
            path.append(libfabric.parent / "libfabric")
    variables = {
        "FI_PROVIDER": f"vicinal,{first}",
        "FI_PROVIDER_PATH": ":".join(map(str, path)),
    }
    if core == "verbs;ofi_rxm":
        # Without, ofi_rxm (libfabric 2.5.1) may post a receive to a connection that it has closed:
        # of 11 jobs of 4 ranks in two guests 4 died so in the end, with it none of 11.
        variables["FI_OFI_RXM_USE_SRX"] = "1"
        # Without, the provider does not have large messages read in place: what libfabric keeps of
        # registered memory may be of pages that the program has given back (docs/decisions/0012).
        if "FI_MR_CACHE_MONITOR" not in os.environ:
            variables["FI_MR_CACHE_MONITOR"] = "disabled"
    return variables


def _libfabric_for_intel() -> Path:
    library = stock_libfabric()
    if library is None or not library.is_file():
        found = "none was found" if library is None else f"there is no {library}"
        raise VicinalError(
            "Intel MPI's own libfabric admits no providers from outside; it needs a "
            f"libfabric.so.1 as it was released, and {found}",
            "let I_MPI_OFI_LIBRARY name one, such as that of the MPICH wheel",
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
    """The variable that keeps Open MPI's osc ucx away, unless its user has chosen an osc.

    Where there is an InfiniBand card, one-sided communication would go by that, whatever the path
    is. Where there is none, it says at each window that its priority was "set ... failed".
    """
    return {} if "OMPI_MCA_osc" in os.environ else {"OMPI_MCA_osc": "^ucx"}


def _shared_memory(mpi: Mpi | Installation, *, cma: bool) -> dict[str, str]:
    match mpi.family:
        case Family.MPICH:
            # The network module stays MPICH's default: what its users have by themselves.
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
