"""Cross-memory attach: whether processes of one user may read each other's memory."""

import re
from collections.abc import Iterator

from vicinal.host.finding import Check, Finding, passed, warned
from vicinal.host.system import Host

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
