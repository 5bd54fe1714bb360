"""Where a result comes from: when, the machine, its cards and hypervisor, versions, variables."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

import vicinal
from vicinal.base.checkout import checkout
from vicinal.mpi.environment import PROVIDER_FILE, provider_directory
from vicinal.mpi.libfabric import libfabric_of
from vicinal.mpi.libfabric import libfabric_version as version_of
from vicinal.mpi.libraries import Mpi, installation


def now() -> str:
    """UTC, as results have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_origin(mpis: Sequence[Mpi]) -> dict[str, Any]:
    """When a result is begun, and by what: the head of each kind of result.

    Call it when measuring begins, because the load counts.
    """
    return {
        "created": now(),
        "versions": describe_versions(mpis),
        "host": describe_host(),
    }


def changes(facts: Iterable[tuple[str, object, object]], absent: str) -> list[str]:
    """What is another than it was when a result was begun, as phrases.

    `facts` are what is compared, its value then and its value now; None reads as `absent`.
    """
    return [
        f"{what} was {absent if was is None else was}, is {absent if is_now is None else is_now}"
        for what, was, is_now in facts
        if was != is_now
    ]


def describe_host() -> dict[str, object]:
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


def describe_versions(mpis: Sequence[Mpi]) -> dict[str, str]:
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


def describe_network() -> list[dict[str, object]]:
    """Network cards and RDMA devices of this host that are hardware, or a hypervisor's.

    What only this kernel has (loopback, bridges, taps, tunnels) is left out.
    """
    cards: list[dict[str, object]] = []
    for kind in ("net", "infiniband"):
        for device in sorted(Path("/sys/class", kind).glob("*")):
            driver = device / "device/driver"
            if driver.exists():
                cards.append(
                    {
                        "name": device.name,
                        "kind": kind,
                        "driver": driver.resolve().name,
                        "state": _text(device / "operstate"),
                        "speed_megabits": _speed(device),
                        "firmware": _text(device / "fw_ver"),
                    }
                )
    return cards


def describe_hypervisor() -> dict[str, str | None]:
    """What this host runs under, and what it could run guests under: None where there is none."""
    return {
        "under": _answer("systemd-detect-virt", "--vm"),
        "qemu": _answer("qemu-system-x86_64", "--version"),
        "libvirt": _answer("libvirtd", "--version"),
    }


def describe_variables() -> dict[str, str]:
    """The environment variables that decide how MPI libraries and Vicinal behave."""
    return {name: value for name, value in sorted(os.environ.items()) if _DECIDES.match(name)}


_DECIDES = re.compile(r"(VICINAL|FI|MPICH|MPIR_CVAR|OMPI|PRTE|PMIX|UCX|I_MPI|MV2|HYDRA|OMP|KMP)_")
_ANSWER_SECONDS = 10


def _answer(*command: str) -> str | None:
    """The first line that a program prints, or None if it is missing or fails."""
    program = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    if not lines or done.returncode != 0:
        return None
    return lines[0].replace(program, command[0])  # where it lies is no matter of a report's


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _speed(device: Path) -> int | None:
    """Megabits a second; None where the card does not say, as virtual ones do not."""
    text = _text(device / "speed")
    return int(text) if text and text.isdecimal() else None


def _processor_fields() -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields
