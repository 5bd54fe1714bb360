"""Nodes of a Slurm that has control groups, and gives each job a /tmp and a /dev/shm of its own.

There are two kinds of them: trees of version 1, each with controllers of its own, and the one tree
of version 2. These tests run with the kind that the machine has.
"""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from slurm_option_support import OptionHosts, become, wait_until

USER = 1
MOUNTED = Path("/sys/fs/cgroup")
UNIFIED = (MOUNTED / "cgroup.controllers").exists()
"""Whether control groups are of version 2."""
TREE = MOUNTED if UNIFIED else MOUNTED / "freezer"
"""Where Slurm 22.05 keeps the processes of steps apart."""
STEP = "step_extern/user/task_special" if UNIFIED else "step_extern"
"""Below a job's group the one of what lasts as long as the job."""
FILE = "name: lab\nnodes:\n  - {name: node, count: 2}\nregion: {members: 8}\n"
CONTAIN = "PrologFlags=Contain\nJobContainerType=job_container/tmpfs\n"


class CgroupHosts(OptionHosts):
    """One host, whose slurmd keeps jobs apart by all that it has for that."""

    count = 1
    contained = CONTAIN

    def _configure(self) -> None:
        super()._configure()
        text = self.slurm_conf.read_text()
        for name in ("ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none"):
            assert name in text
        text = text.replace("proctrack/linuxproc", "proctrack/cgroup")
        text = text.replace("TaskPlugin=task/none", "TaskPlugin=task/cgroup")
        text += f"{self.contained}JobAcctGatherType=jobacct_gather/cgroup\n"
        self.slurm_conf.write_text(text)
        beside = self.slurm_conf.parent
        (beside / "job_container.conf").write_text("AutoBasePath=true\nBasePath=/run/node/jobs\n")
        kind = "v2\nIgnoreSystemd=yes" if UNIFIED else "v1"
        (beside / "cgroup.conf").write_text(
            f"CgroupPlugin=cgroup/{kind}\nCgroupMountpoint={MOUNTED}\nConstrainRAMSpace=yes\n"
        )

    def groups(self) -> list[str]:
        """The control groups of jobs."""
        found = (job for group in slurm_groups() for job in group.glob("**/job_*"))
        return sorted(map(str, found))


class StepHosts(CgroupHosts):
    """The same without groups that last as long as a job."""

    contained = ""


def slurm_groups() -> list[Path]:
    """The groups of this host's slurmd, in all trees."""
    below = "system.slice/*slurmstepd.scope" if UNIFIED else "*/slurm_node0"
    return list(MOUNTED.glob(below))


@contextmanager
def opened(kind: type[CgroupHosts]) -> Iterator[CgroupHosts]:
    if not os.access(TREE, os.W_OK):
        pytest.skip("this machine has no control groups that could be made here")
    groups = os.open(MOUNTED, os.O_RDONLY | os.O_DIRECTORY)
    # They are the machine's, where another of these hosts would have those of the same names.
    fcntl.flock(groups, fcntl.LOCK_EX)
    try:
        with kind.opened() as hosts:
            hosts.cluster_file("two.yaml", FILE)
            with hosts.clean():
                yield hosts
            wait_until(lambda: not hosts.groups())
    finally:
        # slurmd itself leaves the group that those of its jobs were in.
        for group in slurm_groups():
            for each in (*sorted(group.rglob("*/"), reverse=True), group):
                each.rmdir()
        os.close(groups)


def group_of(process: int, controller: str) -> str:
    """The group of a process in the tree with this controller, from its root on."""
    lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    (found,) = (line for line in lines if UNIFIED or f":{controller}:" in line)
    return found.split(":", 2)[2]


def test_nodes_are_in_the_control_groups_of_their_job() -> None:
    """In those that last as long as the job does, and tasks in nodes in those of their step."""
    with opened(CgroupHosts) as hosts:
        value = f"{hosts.directory}/two.yaml"
        number = hosts.waiting_job(user=USER, value=value)
        (keeper,) = hosts.keepers("node0")
        below = [keeper, *keeper.children(recursive=True)]
        assert len(below) > 5
        for each in below:
            assert group_of(each.pid, "freezer").endswith(f"/job_{number}/{STEP}")
            assert f"/job_{number}/step_extern/" in group_of(each.pid, "memory")
        step = ("srun", f"--vicinal={value}", f"--jobid={number}", "--chdir=/", "--overlap")
        step_of = "grep -o 'step_[0-9]*' /proc/self/cgroup | sort -u"
        look = f"hostname; {step_of}; ls -A /tmp /dev/shm"
        result = hosts.at_head(*become(USER), *step, "sh", "-c", look)
        assert result.stdout.split() == ["node0", "step_1", "/dev/shm:", "/tmp:"], result.stderr
        assert hosts.at_head("scancel", number).returncode == 0


@contextmanager
def named_like_jobs(jobs: range) -> Iterator[Path]:
    """Groups outside of Slurm's, as a user may have who may make some, with a process in each."""
    outside = TREE / f"vicinal-{os.getpid()}"
    groups = [outside / f"job_{job}" / STEP for job in jobs]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for group in groups:
            group.mkdir(parents=True)
            processes.append(subprocess.Popen(["sleep", "300"]))
            (group / "cgroup.procs").write_text(str(processes[-1].pid))
        yield outside
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for each in (*sorted(outside.rglob("*/"), reverse=True), outside):
            each.rmdir()


def test_groups_of_others_that_are_called_as_a_jobs_are_left_alone() -> None:
    """Or whoever made them had another user's nodes in there, to stop them for example."""
    jobs = range(1, 9)
    with opened(CgroupHosts) as hosts, named_like_jobs(jobs) as outside:
        number = hosts.waiting_job(user=USER, value=f"{hosts.directory}/two.yaml")
        assert int(number) in jobs
        (keeper,) = hosts.keepers("node0")
        (group,) = (each for each in hosts.groups() if Path(each).is_relative_to(TREE))
        assert f"{TREE}{group_of(keeper.pid, 'freezer')}" == f"{group}/{STEP}"
        assert Path(group).name == f"job_{number}"
        for group in (outside / f"job_{number}").rglob("cgroup.procs"):
            assert str(keeper.pid) not in group.read_text().split()
        assert hosts.at_head("scancel", number).returncode == 0


def test_groups_that_end_with_each_step_are_no_place_for_nodes() -> None:
    with opened(StepHosts) as hosts:
        step = ("srun", f"--vicinal={hosts.directory}/two.yaml", "-n1", "--chdir=/", "true")
        result = hosts.at_head(*become(USER), *step)
        assert result.returncode != 0
        assert "has to set PrologFlags=Contain in slurm.conf" in result.stderr
        assert "drain" not in hosts.at_head("sinfo", "-h").stdout
