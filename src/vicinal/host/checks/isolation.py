"""Checks of what isolates nodes and limits them.

These are namespaces, containers, control groups, limits, and the right to read other processes.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

from vicinal.base.sizes import show_short_size
from vicinal.host.finding import Check, Finding, failed, passed, skipped, warned
from vicinal.host.infiniband_facts import read_rdma_devices
from vicinal.host.system import Host

# Namespaces, which isolated nodes on this host consist of.

_SETTINGS = {
    "proc/sys/user/max_user_namespaces": (0, "sysctl user.max_user_namespaces=15000"),
    "proc/sys/kernel/unprivileged_userns_clone": (0, "sysctl kernel.unprivileged_userns_clone=1"),
    "proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        1,
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}
"""Settings that can forbid namespaces: the forbidding value, and the command that changes it."""

_OWN = ("--mount", "--uts", "--ipc", "--net", "--pid", "--fork")


def check_namespaces(host: Host) -> Iterator[Finding]:
    """Enter new namespaces, as an isolated node does: as this user, or else in a user namespace."""
    facts = {file.rpartition("/")[2]: host.number(file) for file in _SETTINGS}
    tried = host.try_program("unshare", *_OWN, "true")
    if tried.worked:
        yield passed("created as this user; isolated nodes need no user namespace", **facts)
        return
    in_user = host.try_program("unshare", "--user", "--map-root-user", *_OWN, "true")
    if in_user.worked:
        yield passed("created in a user namespace", **facts)
        return
    remedies = [
        f"`{command}`"
        for file, (forbids, command) in _SETTINGS.items()
        if host.number(file) == forbids
    ]
    yield failed(
        f"isolated nodes cannot be created: {in_user.complaint}",
        " and ".join(remedies)
        or (
            "install util-linux"
            if host.program("unshare") is None
            else "allow namespaces; in a container, start it with --privileged or without its "
            "seccomp profile"
        ),
        **facts,
    )


NAMESPACES = Check(
    "namespaces",
    "namespaces",
    "Whether isolated nodes can be created, by a trial of their namespaces",
    check_namespaces,
)


# Container runtimes: which ones are installed.

_RUNTIMES = ("bwrap", "crun", "runc", "podman", "docker", "systemd-nspawn", "apptainer")


def check_containers(host: Host) -> Iterator[Finding]:
    """Report each installed runtime, and the missing runtimes in one finding."""
    missing = []
    for name in _RUNTIMES:
        path = host.program(name)
        if path is None:
            missing.append(name)
            continue
        version = _version(host.ask(name, "--version") or "")
        facts = {"runtime": name, "path": str(path), "version": version}
        yield passed(f"{name} {version} is installed", **facts)
    if missing:
        everything = len(missing) == len(_RUNTIMES)
        yield skipped(
            f"not installed: {', '.join(missing)}",
            "for containers, install one: on Debian `apt-get install crun`" if everything else "",
            missing=missing,
        )


def _version(text: str) -> str:
    found = re.search(r"\d+(?:\.[\w~+-]+)*", text)
    return found[0] if found else "of unknown version"


CONTAINERS = Check(
    "containers",
    "containers",
    "Which container runtimes are installed: bubblewrap, crun, runc, podman, docker and others",
    check_containers,
)


# Control groups: their version, and whether this user's group is delegated.

_ROOT = "/sys/fs/cgroup"
_WANTED = ("cpu", "cpuset", "memory", "pids")


def check_cgroups(host: Host) -> Iterator[Finding]:
    """Report version 2, version 2 beside version 1 (hybrid), or version 1; then delegation."""
    kind = host.mounts.get(_ROOT)
    second = [at for at, type_ in host.mounts.items() if type_ == "cgroup2"]
    first = [at for at, type_ in host.mounts.items() if type_ == "cgroup"]
    facts: dict[str, Any] = {"version": None, "controllers": []}
    if kind != "cgroup2":
        if not first and not second:
            yield skipped("no control groups are mounted", **facts)
            return
        shape = "version 1 and 2 side by side (hybrid)" if second else "version 1"
        facts["version"] = "hybrid" if second else "1"
        yield warned(
            f"{shape}: podman, and crun by itself, need version 2 on {_ROOT}; Vicinal's nodes do "
            "not",
            "boot with systemd.unified_cgroup_hierarchy=1, or run podman and crun in a mount "
            f"namespace of their own with cgroup2 on {_ROOT}",
            **facts,
        )
        return
    own = _own_group(host)
    group = f"{_ROOT.lstrip('/')}{own}".rstrip("/")
    controllers = (host.text(f"{group}/cgroup.controllers") or "").split()
    facts = {"version": "2", "controllers": controllers, "group": own}
    missing = [name for name in _WANTED if name not in controllers]
    shown = f"version 2, controllers {' '.join(controllers) or 'none'}"
    if host.user != 0 and not host.may(group, os.W_OK):
        yield warned(
            f"{shown}; this user's group is not delegated, so containers get no limits of their "
            "own",
            "run in a session of systemd (`systemd-run --user --scope COMMAND`), with "
            "Delegate=yes in user@.service",
            **facts,
        )
    elif missing:
        yield warned(
            f"{shown}: {', '.join(missing)} cannot be set for containers here",
            f"delegate the controllers from the group above: `echo +{' +'.join(missing)} > "
            "cgroup.subtree_control` there, or Delegate= in its systemd unit",
            **facts,
        )
    else:
        yield passed(shown, **facts)


def _own_group(host: Host) -> str:
    """This process's group of version 2, relative to the hierarchy's root."""
    for line in (host.text("proc/self/cgroup") or "").splitlines():
        if line.startswith("0::/"):
            return line.removeprefix("0::").rstrip("/")
    return ""


CGROUPS = Check(
    "cgroups", "control groups", "Version of control groups, controllers, delegation", check_cgroups
)


# Limits of a process: locked memory, open files, processes.

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


# Cross-memory attach: whether processes of one user may read each other's memory.

_SCOPE = "proc/sys/kernel/yama/ptrace_scope"
_CAP_SYS_PTRACE = 19
_MEANINGS = {
    1: "only a process's ancestors may read its memory",
    2: "only a process with CAP_SYS_PTRACE may read another's memory",
    3: "no process may read another's memory until the next boot",
}


def check_cross_memory(host: Host) -> Iterator[Finding]:
    """Report Yama's ptrace_scope, and filters on system calls."""
    scope = host.number(_SCOPE)
    filtered = re.search(r"^Seccomp:\s*2", host.text("proc/self/status") or "", re.M) is not None
    exempt = scope != 3 and bool(host.capabilities >> _CAP_SYS_PTRACE & 1)
    facts = {"ptrace_scope": scope, "seccomp_filter": filtered}
    with_filter = (
        "; a filter on system calls (seccomp) is on, and may forbid this" if filtered else ""
    )
    if scope in (None, 0):
        why = "no Yama in this kernel" if scope is None else "ptrace_scope is 0"
        yield passed(
            f"ranks of one user may read each other's memory ({why}){with_filter}", **facts
        )
    elif exempt:
        yield passed(
            f"this user may read the memory of others (CAP_SYS_PTRACE); ptrace_scope is {scope}"
            f"{with_filter}",
            **facts,
        )
    else:
        yield warned(
            f"ptrace_scope is {scope}: {_MEANINGS.get(scope or 0, 'access is restricted')}; an MPI "
            "library's own shared memory is then slower, and may print errors. Regions need no "
            "such access",
            "`sysctl kernel.yama.ptrace_scope=0`"
            + (" on the kernel's next boot" if scope == 3 else ""),
            **facts,
        )


CROSS_MEMORY = Check(
    "cma",
    "cross-memory attach",
    "Whether ranks may read each other's memory: ptrace_scope of Yama, seccomp",
    check_cross_memory,
)
