"""Limits of a process: locked memory, open files, processes."""

import re
from collections.abc import Iterator

from vicinal.base.sizes import show_short_size
from vicinal.host.finding import Check, Finding, passed, warned
from vicinal.host.infiniband_facts import read_rdma_devices
from vicinal.host.system import Host

_CAP_IPC_LOCK = 14
_FEW_FILES = 4096
"""A rank has several descriptors for each peer over the network."""
_FEW_PROCESSES = 1024

_NAMES = {
    "memlock": "Max locked memory",
    "nofile": "Max open files",
    "nproc": "Max processes",
}


def check_limits(host: Host) -> Iterator[Finding]:
    """Report this process's limits, which the processes that it starts inherit."""
    limits = {name: _limit(host, line) for name, line in _NAMES.items()}
    yield _locked_memory(host, *limits["memlock"])
    _, files = limits["nofile"]
    if files is not None and files < _FEW_FILES:
        yield warned(
            f"at most {files} open files: jobs with many ranks over the network need more",
            "raise the limit: `* hard nofile 1048576` in /etc/security/limits.d/vicinal.conf, or "
            "LimitNOFILE= in the systemd unit",
            nofile=files,
        )
    else:
        yield passed(f"open files: {_shown(files)}", nofile=files)
    processes, most = limits["nproc"]
    if processes is not None and processes < _FEW_PROCESSES and host.user != 0:
        yield warned(
            f"at most {processes} processes and threads of this user: few nodes and ranks fit",
            "raise the limit: `* - nproc unlimited` in /etc/security/limits.d/vicinal.conf, or "
            "TasksMax= in the systemd unit",
            nproc=processes,
        )
    else:
        yield passed(f"processes: {_shown(most)}", nproc=most)


def _locked_memory(host: Host, soft: int | None, hard: int | None) -> Finding:
    exempt = bool(host.capabilities >> _CAP_IPC_LOCK & 1)
    rdma = any(read_rdma_devices(host))
    facts = {"memlock_bytes": soft, "memlock_hard_bytes": hard, "exempt": exempt}
    if soft is None:
        return passed("locked memory: no limit", **facts)
    shown = f"locked memory: {show_short_size(soft)}"
    if exempt:
        return passed(f"{shown}, which does not limit this user (CAP_IPC_LOCK)", **facts)
    if rdma or host.exists("dev/vfio/vfio"):
        what = "RDMA cannot register" if rdma else "guests with a device of this host cannot use"
        return warned(
            f"{shown}: {what} more memory",
            "raise the limit: `* - memlock unlimited` in /etc/security/limits.d/vicinal.conf, or "
            "LimitMEMLOCK=infinity in the systemd unit",
            **facts,
        )
    return passed(f"{shown}; this host has neither RDMA nor VFIO, which need more", **facts)


def _limit(host: Host, name: str) -> tuple[int | None, int | None]:
    """A soft and a hard limit; None for no limit."""
    found = re.search(
        rf"^{name}\s+(unlimited|\d+)\s+(unlimited|\d+)", host.text("proc/self/limits") or "", re.M
    )
    if found is None:
        return None, None
    soft, hard = (None if word == "unlimited" else int(word) for word in found.groups())
    return soft, hard


def _shown(limit: int | None) -> str:
    return "no limit" if limit is None else str(limit)


LIMITS = Check(
    "limits",
    "limits",
    "Limits of this user's processes: locked memory, open files, processes",
    check_limits,
)
