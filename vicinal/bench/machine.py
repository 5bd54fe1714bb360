"""What a result has to say about where it comes from."""

import hashlib
import os
import platform
import subprocess
from pathlib import Path

import psutil

import vicinal
from vicinal.errors import VicinalError
from vicinal.launch.checkout import checkout
from vicinal.launch.cores import usable_cpus
from vicinal.launch.environment import PROVIDER_FILE, provider_directory
from vicinal.launch.libfabric import libfabric_of
from vicinal.launch.libfabric import libfabric_version as version_of
from vicinal.launch.mpi import Mpi, installation


def describe_machine() -> dict[str, object]:
    """Processor, cores, memory, virtualization and the load that others make."""
    processor = _processor_fields()
    return {
        "cpu": processor.get("model name", platform.processor() or "unknown"),
        "cores": psutil.cpu_count(logical=False) or 0,
        "threads": psutil.cpu_count() or 0,
        "memory_bytes": psutil.virtual_memory().total,
        "virtual": "hypervisor" in processor.get("flags", "").split(),
        "load": round(os.getloadavg()[0], 2),
    }


def describe_versions(mpis: list[Mpi]) -> dict[str, str]:
    """Versions of Vicinal, the kernel, Python, and the libfabric of each MPI library.

    `provider` is the beginning of the SHA-256 of the file that was measured.
    """
    versions = {
        "vicinal": vicinal.__version__,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    tree = checkout()
    if tree is not None:
        versions["commit"] = _commit(tree)
    provider = provider_directory() / PROVIDER_FILE
    versions["provider"] = hashlib.sha256(provider.read_bytes()).hexdigest()[:16]
    for mpi in mpis:
        versions[f"{mpi.value}-libfabric"] = libfabric_version(mpi)
    return versions


def _commit(tree: Path) -> str:
    """The commit that is checked out, with a + where files differ from it."""
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def libfabric_version(mpi: Mpi) -> str:
    """Version of the libfabric that an MPI library uses, asked of itself."""
    library = libfabric_of(installation(mpi))
    if library is None:
        return "unknown"
    return ".".join(map(str, version_of(library)))


def choose_cpus() -> list[int]:
    """Two CPUs to pin two ranks to, of different cores where there are two.

    Raises VicinalError where this process may use only one CPU.
    """
    cpus = usable_cpus()[:2]
    if len(cpus) < 2:
        raise VicinalError(
            "only one core is usable here, and two ranks that poll need one each",
            "allow this process two cores (taskset, cpuset), or measure on another machine",
        )
    return cpus


def _processor_fields() -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields
