"""A Slurm cluster of one host with control groups, of the version that a test needs.

Version 1 has a tree for each controller, version 2 has one for all. A machine with both, as older
systemd sets it up, has few controllers in the latter, and Slurm's plugin for version 2 must see no
other tree. unified_groups.c hides the others from slurmd. Groups, Slurm and its plugins are real.
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
    """Control groups of one version, as Slurm 22.05 uses them."""

    number: int
    mounted: Path
    """The value of CgroupMountpoint."""
    tree: Path
    """The tree in which Slurm separates the processes of steps."""
    slurmd: str
    """The groups of slurmd, below `mounted`."""
    others: bool
    """Whether Slurm must not see the groups of the other version."""

    @classmethod
    def of(cls, number: int) -> Self:
        """The version's groups. Skips the test if the machine cannot make such groups here."""
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
        """Whether Slurm can count and limit the memory of steps."""
        if self.number == 1:
            return True
        return "memory" in (self.mounted / "cgroup.controllers").read_text().split()

    @property
    def extern(self) -> str:
        """The group below a job's group that lasts as long as the job."""
        if self.number == 1:
            return "step_extern"
        return f"step_extern/user/task_{'0' if self.accounts_memory else 'special'}"

    @property
    def configuration(self) -> str:
        """The text of Slurm's cgroup.conf."""
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
        """A process's group in the tree with this controller, from the tree's root on."""
        tree = f":{controller}:" if self.number == 1 else "0::"
        lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
        (found,) = (line for line in lines if tree in line)
        return found.split(":", 2)[2]


class CgroupHosts(OptionHosts):
    """One host whose slurmd isolates jobs by everything it has for that."""

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
        directory = self.slurm_conf.parent
        (directory / "job_container.conf").write_text(
            "AutoBasePath=true\nBasePath=/run/node/jobs\n"
        )
        (directory / "cgroup.conf").write_text(self.version.configuration)

    def start_slurmd(self, name: str) -> None:
        """Start a host's slurmd, on the processor on which the host was made.

        job_container/tmpfs binds the file of a mount namespace that a child has made. Linux refuses
        this if it considers that namespace older than the caller's own. As of 6.18, Linux numbers
        namespaces by processor. Of 100 namespaces made on another processor than the host's, either
        all or none were refused. Of 200 made on the same processor, none were.
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
    """The same host without groups that last as long as a job."""

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
    """Hosts with a file two.yaml of two nodes. All their groups are removed at the end."""
    groups = os.open(_MOUNTED, os.O_RDONLY | os.O_DIRECTORY)
    # The groups belong to the machine, so other such hosts would use the same names.
    fcntl.flock(groups, fcntl.LOCK_EX)
    made = version.mounted / "system.slice"
    kind.version = version
    try:
        if version.number == 2:
            made.mkdir(exist_ok=True)  # systemd owns it, if there is one
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
        # slurmd itself leaves the parent group of its jobs' groups.
        for group in version.of_slurmd():
            for each in (*sorted(group.rglob("*/"), reverse=True), group):
                each.rmdir()
        with suppress(OSError):
            made.rmdir()
        os.close(groups)
