"""Where the provider and the MPI libraries are, and the variables that join them.

An application, its MPI library and libfabric stay as they are: Vicinal is selected by
environment variables alone, and this is the one place that makes them.
"""

import os
from enum import StrEnum
from pathlib import Path

import vicinal
from vicinal.errors import VicinalError


class Mpi(StrEnum):
    """The MPI libraries that Vicinal is tested with."""

    MPICH = "mpich"
    OPENMPI = "openmpi"


class MessagePath(StrEnum):
    """How the messages of a job travel."""

    REGION = "region"
    """Through a shared region, by Vicinal's provider."""
    NETWORK = "network"
    """Through TCP sockets, as between hosts."""
    SHARED_MEMORY = "shared-memory"
    """Through the MPI library's own shared memory; every rank must be in one node."""


PROVIDER_FILE = "libvicinal-fi.so"

_TITLES = {Mpi.MPICH: "MPICH", Mpi.OPENMPI: "Open MPI"}
_REGION_FORMS = "write it as file:PATH or pci:0000:00:04.0"


def checkout() -> Path | None:
    """The source tree that this package runs from, or None where it is installed without one."""
    tree = Path(vicinal.__file__).resolve().parent.parent
    return tree if (tree / "provider").is_dir() else None


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


def mpi_prefix(mpi: Mpi | str) -> Path:
    """The installation prefix of an MPI library: it holds bin/mpiexec, bin/mpicc and lib/.

    It is $VICINAL_MPICH or $VICINAL_OPENMPI, or else build/mpi/<mpi> in the checkout. The
    two never share a prefix: both install bin/mpicc, bin/mpiexec and include/mpi.h.
    Raises VicinalError where there is no bin/mpiexec.
    """
    mpi = Mpi(mpi)
    variable = f"VICINAL_{mpi.name}"
    chosen = os.environ.get(variable)
    tree = checkout()
    if chosen:
        prefix = Path(chosen).resolve()
        remedy = f"let {variable} name the prefix that holds bin/mpiexec"
    elif tree is not None:
        prefix = tree / "build" / "mpi" / mpi.value
        remedy = f"run `make` in {tree}, or set {variable} to the prefix of an installed one"
    else:
        raise VicinalError(
            f"{_TITLES[mpi]} was not found", f"set {variable} to the prefix of an installed one"
        )
    if not (prefix / "bin" / "mpiexec").is_file():
        raise VicinalError(f"there is no {_TITLES[mpi]} in {prefix}", remedy)
    return prefix


def check_region_name(region: str) -> str:
    """Return `region` if it has the form of VICINAL_REGION; raise VicinalError if not."""
    kind, _, place = region.partition(":")
    if kind not in ("file", "pci") or not place:
        raise VicinalError(f"{region!r} does not name a region", _REGION_FORMS)
    if kind == "file" and not place.startswith("/"):
        raise VicinalError(
            f"the region path {place!r} is relative, and would differ between nodes",
            "give an absolute path",
        )
    return region


def mpi_environment(
    mpi: Mpi | str,
    path: MessagePath | str = MessagePath.REGION,
    region: str | None = None,
    *,
    cma: bool = True,
) -> dict[str, str]:
    """The variables that make the ranks of an MPI job use a path.

    `region` is a value for VICINAL_REGION; without it the provider looks for a region by
    itself. It is for the path `region` only. `cma` is for the path `shared-memory` only:
    whether the MPI library may copy straight out of another process (cross-memory attach).
    Raises VicinalError where the region's name is malformed or the provider is not built.
    """
    mpi = Mpi(mpi)
    path = MessagePath(path)
    if path is MessagePath.REGION:
        return _region(mpi, region)
    if region is not None:
        raise VicinalError(
            f"the path {path.value} takes no region", "leave out the region, or use path region"
        )
    if path is MessagePath.NETWORK:
        return _network(mpi)
    return _shared_memory(mpi, cma=cma)


def _region(mpi: Mpi, region: str | None) -> dict[str, str]:
    variables = {"FI_PROVIDER_PATH": str(provider_directory()), "FI_PROVIDER": "vicinal"}
    if region is not None:
        variables["VICINAL_REGION"] = check_region_name(region)
    if mpi is Mpi.MPICH:
        return variables | {"MPIR_CVAR_CH4_NETMOD": "ofi"}
    return variables | {
        "OMPI_MCA_pml": "cm",
        "OMPI_MCA_mtl": "ofi",
        "OMPI_MCA_mtl_ofi_provider_include": "vicinal",
    }


def _network(mpi: Mpi) -> dict[str, str]:
    if mpi is Mpi.MPICH:
        return {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    return {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}


def _shared_memory(mpi: Mpi, *, cma: bool) -> dict[str, str]:
    if mpi is Mpi.MPICH:
        # The network module stays MPICH's default: this is what its users have by themselves.
        return {"MPIR_CVAR_CH4_CMA_ENABLE": "1" if cma else "0"}
    return {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "sm,self",
        "OMPI_MCA_smsc": "cma" if cma else "^cma,knem,xpmem",
    }
