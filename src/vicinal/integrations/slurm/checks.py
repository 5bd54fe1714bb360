"""Checks of the option --vicinal on this host, each with its remedy."""

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.host_network import ip
from vicinal.host import namespaces as kernel
from vicinal.integrations.slurm.files import Files, setting
from vicinal.integrations.slurm.installation import Wanted
from vicinal.integrations.slurm.job_namespace import job_namespace
from vicinal.integrations.slurm.job_network import addresses_of
from vicinal.region.filesystem import filesystem_type

_TRACKED_BY_CGROUP = "proctrack/cgroup"
"""Slurm's default."""
_PMIX_LIBRARY = b"libpmix.so"
"""The plugin contains this name if it was built with PMIx's headers (slurm/pmix_nodes.c)."""
_ANSWER_SECONDS = 30.0
_SHOWN = 3
"""Number of hosts without an address that are shown."""
_CLOCK_SECONDS = 2.0
"""Start times of processes have a resolution of one second."""


@dataclass(frozen=True)
class Found:
    """The result of one check."""

    good: bool
    text: str
    remedy: str = ""
    needed: bool = True
    """Whether the option fails without it."""

    @property
    def line(self) -> str:
        if self.good:
            return f"ok: {self.text}"
        return f"{'missing' if self.needed else 'note'}: {self.text}: {self.remedy}"


def check(
    files: Files, wanted: Wanted, *, plugin: Path, command: Path, python: Path, regions: Path
) -> Iterator[Found]:
    """Check everything on this host; changes nothing."""
    again = "run `vicinal slurm install` with the same options"
    for path, text in ((files.variables, wanted.variables), (files.include, wanted.include)):
        there = path.is_file() and path.read_text(errors="replace") == text
        yield Found(there, f"{path} {'has' if there else 'lacks'} the expected contents", again)
    plugstack = files.plugstack
    included = plugstack.is_file() and files.is_included(plugstack.read_text(errors="replace"))
    verb = "includes" if included else "does not include"
    where = "run `vicinal slurm install` where slurmctld is, and `scontrol reconfigure`"
    remedy = where if files.is_fetched else again
    yield Found(included, f"{plugstack} {verb} {files.include}", remedy)
    for path, what in ((plugin, "the plugin"), (command, "the command")):
        yield _of_root(path, what)
    yield _of_everybody(python)
    yield _directory(files, regions)
    yield from _own_users_or_processes(files)
    yield _default_mpi(files)
    yield _lasting_groups(files)
    yield from _pmix(files, plugin)
    if included:
        yield from _daemons(files)
        yield _option(files)


def _of_root(path: Path, what: str) -> Found:
    """Check that only root can write the file, because root runs it."""
    if not path.is_file():
        return Found(False, f"{what} {path} does not exist", "run `make`, or install again")
    status = path.stat()
    if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Found(
            False,
            f"users other than root can write {what} {path}, and root runs it",
            "install Vicinal where only root can write",
        )
    return Found(True, f"only root can write {what} {path}")


def _of_everybody(python: Path) -> Found:
    """Check that every user can run the interpreter, because a job's user creates the job's
    nodes.
    """
    resolved = python.resolve()
    reached = all(each.stat().st_mode & stat.S_IXOTH for each in resolved.parents)
    good = reached and resolved.is_file() and bool(resolved.stat().st_mode & stat.S_IXOTH)
    return Found(
        good,
        f"{'every user can' if good else 'not every user can'} run the interpreter {python}",
        "until then jobs have no nodes from a cluster file: install Vicinal where all users can "
        "read it, or name another interpreter that has Vicinal with `vicinal slurm install "
        "--python`",
        needed=False,
    )


def _directory(files: Files, regions: Path) -> Found:
    namespace = job_namespace(files.slurm_conf)
    if namespace.hides(regions):
        return Found(
            False,
            f"{regions} is hidden from jobs by {namespace.kind}",
            "choose another directory with `vicinal slurm install --directory`, such as "
            "/run/vicinal-slurm",
        )
    above = regions
    while not above.exists():
        above = above.parent
    kind = filesystem_type(above.stat().st_dev)
    return Found(
        kind in ("tmpfs", "hugetlbfs"),
        f"{regions} is on {kind}",
        "choose a directory in memory with `vicinal slurm install --directory`",
        needed=False,
    )


def _own_users_or_processes(files: Files) -> Iterator[Found]:
    """Check what namespace/linux gives jobs besides a file system of their own."""
    flags = {"CLONE_NEWUSER", "CLONE_NEWPID"} & set(job_namespace(files.slurm_conf).flags)
    if flags:
        yield Found(
            False,
            f"namespace.yaml gives jobs {' and '.join(sorted(flags))}",
            "Vicinal was not tried with it: nodes of a job enter namespaces of the host. Leave it "
            "out of clone_ns_flags if jobs with a cluster file fail",
            needed=False,
        )


def _default_mpi(files: Files) -> Found:
    kind = (setting(files.slurm_conf, "MpiDefault") or "none").lower()
    knows_pmix = "pmix" in (_said_by_srun(files, "--mpi=list") or "")
    best = (
        "MpiDefault=pmix, or MpiDefault=pmi2 for an MPICH without PMIx"
        if knows_pmix
        else "MpiDefault=pmi2 for MPICH, because this Slurm has no PMIx"
    )
    return Found(
        kind not in ("none", "mpi/none"),
        f"MpiDefault in {files.slurm_conf} is {kind}",
        f"`srun ./program` then starts ranks that do not find each other: write {best}, or let "
        "users call srun with --mpi",
        needed=False,
    )


def _lasting_groups(files: Files) -> Found:
    """Check that control groups last as long as a job (slurm/job_cgroup.h)."""
    tracked = (setting(files.slurm_conf, "ProctrackType") or _TRACKED_BY_CGROUP).lower()
    flags = (setting(files.slurm_conf, "PrologFlags") or "").lower().split(",")
    # X11 implies Contain.
    good = tracked != _TRACKED_BY_CGROUP or bool({"contain", "x11"} & set(flags))
    said = "are" if good else "are not"
    return Found(
        good,
        f"nodes of a job {said} possible with ProctrackType={tracked} and "
        f"PrologFlags={','.join(filter(None, flags)) or 'none'}",
        "control groups end with each step, so jobs with a cluster file are refused, and other "
        "jobs' regions count for no job's memory: write PrologFlags=Contain into "
        f"{files.slurm_conf}",
        needed=False,
    )


def _pmix(files: Files, plugin: Path) -> Iterator[Found]:
    """Check that srun can start Open MPI, and that the plugin supports PMIx in nodes."""
    known = "pmix" in (_said_by_srun(files, "--mpi=list") or "")
    yield Found(
        known,
        f"srun {'knows' if known else 'does not know'} --mpi=pmix",
        "Open MPI needs it: install a Slurm with PMIx, and the PMIx library that Slurm loads "
        "(Debian: libpmix-dev)",
        needed=False,
    )
    if known and plugin.is_file():
        built = _PMIX_LIBRARY in plugin.read_bytes()
        yield Found(
            built,
            f"the plugin was built {'with' if built else 'without'} PMIx",
            "without PMIx, Open MPI does not run in nodes of a job: install PMIx's headers "
            "(Debian: libpmix-dev), remove build/release and run `make`",
            needed=False,
        )


def _said_by_srun(files: Files, argument: str) -> str | None:
    """The output and errors of srun; None if srun is missing or does not answer."""
    try:
        done = subprocess.run(
            ["srun", argument],
            env=os.environ | {"SLURM_CONF": str(files.slurm_conf)},
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr


def _daemons(files: Files) -> Iterator[Found]:
    """Check that slurmd of this host, if any, knows the epilog: slurmd reads it only at its
    start.
    """
    started = [
        process.info["create_time"]
        for process in psutil.process_iter(["name", "create_time"])
        if process.info["name"] == "slurmd"
    ]
    if started:
        late = min(started) >= files.include.stat().st_mtime - _CLOCK_SECONDS
        yield Found(
            late,
            f"slurmd was started {'after' if late else 'before'} {files.include} was written",
            "restart slurmd, for example with `systemctl restart slurmd`: until then its epilog "
            "does not remove the regions of jobs",
        )


def _option(files: Files) -> Found:
    """Check that Slurm loads the plugin: then its commands know the option."""
    said = _said_by_srun(files, "--help")
    if said is None:
        return Found(False, "srun is missing or does not answer", "install Slurm's commands")
    known = "--vicinal" in said
    why = "" if known else f" ({' '.join(said.split())[-300:] or 'it writes nothing'})"
    return Found(
        known,
        f"srun {'knows' if known else 'does not know'} --vicinal{why}",
        "the plugin may be built with headers of another release of Slurm: remove build/release "
        "and run `make` on this host",
    )


def check_network(slurm_conf: Path) -> Iterator[Found]:
    """Check whether nodes of a job on several hosts can have a network of their own: the kernel's
    VXLAN, and the hosts' addresses in Slurm. Changes nothing.
    """
    trouble = _vxlan_trouble()
    if trouble is not None:
        yield Found(
            not trouble,
            f"the kernel has {'no ' if trouble else ''}VXLAN{f' ({trouble})' if trouble else ''}",
            "nodes of a job on several hosts need VXLAN: load its module (modprobe vxlan), or let "
            "nodes use the hosts' network with `vicinal slurm install --host-network`",
            needed=False,
        )
    yield from _addresses(slurm_conf)


def _vxlan_trouble() -> str | None:
    """The error of a VXLAN device in a temporary network; "" if none, None if this user is
    not root.
    """
    if os.geteuid() != 0:
        return None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        trouble = ""
        try:
            kernel.unshare(kernel.CLONE_NEWNET)
            ip(["link", "add", "vxlan0", "type", "vxlan", "id", "1", "dstport", "0"])
        except (OSError, VicinalError) as error:
            trouble = str(error)
        os.write(writer, trouble.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        trouble = answer.read().decode()
    os.waitpid(child, 0)
    return trouble


def _addresses(slurm_conf: Path) -> Iterator[Found]:
    """Check that this host finds an address of each other host."""
    try:
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--all", "--format=%N %o"],
            env=os.environ | {"SLURM_CONF": str(slurm_conf)},
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return  # other checks report this failure
    own = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    faults: dict[str, str] = {}
    node_addresses = dict(line.split() for line in done.stdout.splitlines())
    for name, node_address in node_addresses.items():
        if len(faults) > _SHOWN:  # each host may take a name server's timeout
            break
        if name != own:  # a host's own name often resolves to 127.0.1.1
            try:
                addresses_of(name, node_address)
            except VicinalError as error:
                faults[name] = error.message
    shown = ", ".join(list(faults)[:_SHOWN]) + (", ..." if len(faults) > _SHOWN else "")
    first = next(iter(faults.values()), "")
    yield Found(
        not faults,
        f"these hosts have no usable address: {shown} ({first})"
        if faults
        else "all hosts have addresses",
        "jobs on these hosts and others cannot have nodes with a network of their own: set "
        "NodeAddr in slurm.conf",
        needed=False,
    )
