"""A Slurm cluster of one host that has control groups, of the version that a test is for.

Of version 1 there is a tree for each controller, of version 2 one for all. A machine with both, as
older systemd makes it, has few controllers in the latter, and Slurm's plugin for it wants to be
told of no other: unified_groups.c hides them from slurmd. Groups, Slurm and its plugins are real.
"""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import pytest
from slurm_option_support import OptionHosts, wait_until

_MOUNTED = Path("/sys/fs/cgroup")
_HERE = Path(__file__).parent
_PROCESSOR = min(os.sched_getaffinity(0))
_CONTAIN = "PrologFlags=Contain\nJobContainerType=job_container/tmpfs\n"


@dataclass(frozen=True)
class Version:
    """Control groups of one version, as Slurm 22.05 lays out its own."""

    number: int
    mounted: Path
    """What CgroupMountpoint is."""
    tree: Path
    """The one in which Slurm keeps the processes of steps apart."""
    slurmd: str
    """Below `mounted` what slurmd makes."""
    others: bool
    """Whether there are groups of the other version that Slurm is not to see."""

    @classmethod
    def of(cls, number: int) -> Self:
        """Skips the test where the machine has none of this version that could be made here."""
        if number == 1:
            found = cls(1, _MOUNTED, _MOUNTED / "freezer", "*/slurm_node0", False)
        else:
            only = (_MOUNTED / "cgroup.controllers").exists()
            tree = _MOUNTED if only else _MOUNTED / "unified"
            found = cls(2, tree, tree, "system.slice/*slurmstepd.scope", not only)
        if not os.access(found.tree / "cgroup.procs", os.W_OK):
            pytest.skip(f"no control groups of version {number} can be made here")
        return found

    @property
    def accounts_memory(self) -> bool:
        """Whether Slurm can have the memory of steps counted and bounded."""
        if self.number == 1:
            return True
        return "memory" in (self.mounted / "cgroup.controllers").read_text().split()

    @property
    def extern(self) -> str:
        """Below a job's group the one of what lasts as long as the job."""
        if self.number == 1:
            return "step_extern"
        return f"step_extern/user/task_{'0' if self.accounts_memory else 'special'}"

    @property
    def configuration(self) -> str:
        """Text of Slurm's cgroup.conf."""
        lines = [f"CgroupPlugin=cgroup/v{self.number}", f"CgroupMountpoint={self.mounted}"]
        if self.number == 2:
            lines.append("IgnoreSystemd=yes")
        if self.accounts_memory:
            lines.append("ConstrainRAMSpace=yes")
        return "\n".join(lines) + "\n"

    def of_slurmd(self) -> list[Path]:
        """The groups that slurmd has made, in all trees."""
        return list(self.mounted.glob(self.slurmd))

    def of_process(self, process: int, controller: str) -> str:
        """The group of a process in the tree with this controller, from its root on."""
        tree = f":{controller}:" if self.number == 1 else "0::"
        lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
        (found,) = (line for line in lines if tree in line)
        return found.split(":", 2)[2]


class CgroupHosts(OptionHosts):
    """One host, whose slurmd keeps jobs apart by all that it has for that."""

    count = 1
    contained = _CONTAIN
    version: Version

    def _configure(self) -> None:
        super()._configure()
        text = self.slurm_conf.read_text()
        for name in ("ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none"):
            assert name in text
        text = text.replace("proctrack/linuxproc", "proctrack/cgroup")
        text = text.replace("TaskPlugin=task/none", "TaskPlugin=task/cgroup")
        text += self.contained
        if self.version.accounts_memory:
            text += "JobAcctGatherType=jobacct_gather/cgroup\n"
        self.slurm_conf.write_text(text)
        beside = self.slurm_conf.parent
        (beside / "job_container.conf").write_text("AutoBasePath=true\nBasePath=/run/node/jobs\n")
        (beside / "cgroup.conf").write_text(self.version.configuration)

    def start_slurmd(self, name: str) -> None:
        """Start the slurmd of a host, which stays on the processor that the host was made on.

        job_container/tmpfs binds the file of the mount namespace that a child has made, which Linux
        refuses where it takes that to be older than its own. By 6.18 it numbers them by processor:
        of 100 that were made on another than the host's was, all were refused, or none, as it came;
        and of 200 on the same none.
        """
        processor = str(_PROCESSOR)
        variables = [f"SLURM_CONF={self.slurm_conf}"]
        if self.version.others:
            library = self.directory / "unified_groups.so"
            compiler = ["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC"]
            source = _HERE / "unified_groups.c"
            subprocess.run([*compiler, "-o", library, source], check=True)
            variables.append(f"LD_PRELOAD={library}")
        command = ["env", *variables, "taskset", "-c", processor, "slurmd", "-N", name]
        self.cluster.run_in(name, command)

    def groups(self) -> list[Path]:
        """The control groups of jobs."""
        return [job for group in self.version.of_slurmd() for job in group.glob("**/job_*")]


class StepHosts(CgroupHosts):
    """The same without groups that last as long as a job."""

    contained = ""


@contextmanager
def _on_one_processor() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {_PROCESSOR})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_Hosts = TypeVar("_Hosts", bound=CgroupHosts)


@contextmanager
def opened(kind: type[_Hosts], version: Version) -> Iterator[_Hosts]:
    """Hosts with a file two.yaml of two nodes, whose groups are all taken away at the end."""
    groups = os.open(_MOUNTED, os.O_RDONLY | os.O_DIRECTORY)
    # They are the machine's, where another of these hosts would have those of the same names.
    fcntl.flock(groups, fcntl.LOCK_EX)
    made = version.mounted / "system.slice"
    kind.version = version
    try:
        if version.number == 2:
            made.mkdir(exist_ok=True)  # systemd's, where there is one
        with ExitStack() as stack:
            with _on_one_processor():
                hosts = stack.enter_context(kind.opened())
            hosts.cluster_file(
                "two.yaml",
                "name: lab\nnodes:\n  - {name: node, count: 2}\nregion: {members: 8}\n",
            )
            with hosts.clean():
                yield hosts
            wait_until(lambda: not hosts.groups())
    finally:
        # slurmd itself leaves the group that those of its jobs were in.
        for group in version.of_slurmd():
            for each in (*sorted(group.rglob("*/"), reverse=True), group):
                each.rmdir()
        with suppress(OSError):
            made.rmdir()
        os.close(groups)
