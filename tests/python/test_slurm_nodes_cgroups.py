"""Nodes of a Slurm that has control groups, and gives each job a /tmp and a /dev/shm of its own."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from slurm_option_support import OptionHosts, become, wait_until

USER = 1
FREEZER = Path("/sys/fs/cgroup/freezer")
"""Slurm 22.05 needs it where control groups are of version 1."""
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
        (beside / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
        )

    def groups(self) -> list[str]:
        """The control groups of jobs."""
        return sorted(str(each) for each in FREEZER.parent.glob("*/slurm_node0/*/job_*"))


class StepHosts(CgroupHosts):
    """The same without groups that last as long as a job."""

    contained = ""


@contextmanager
def opened(kind: type[CgroupHosts]) -> Iterator[CgroupHosts]:
    if not os.access(FREEZER, os.W_OK):
        pytest.skip("Slurm 22.05 with control groups needs those of version 1, and to make some")
    groups = os.open(FREEZER.parent, os.O_RDONLY | os.O_DIRECTORY)
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
        for group in FREEZER.parent.glob("*/slurm_node0"):
            for each in (*sorted(group.rglob("*/"), reverse=True), group):
                each.rmdir()
        os.close(groups)


def groups_of(process: int) -> list[str]:
    return Path(f"/proc/{process}/cgroup").read_text().splitlines()


def test_nodes_are_in_the_control_groups_of_their_job() -> None:
    """In those that last as long as the job does, and tasks in nodes in those of their step."""
    with opened(CgroupHosts) as hosts:
        value = f"{hosts.directory}/two.yaml"
        number = hosts.waiting_job(user=USER, value=value)
        (keeper,) = hosts.keepers("node0")
        below = [keeper, *keeper.children(recursive=True)]
        assert len(below) > 5
        for each in below:
            (freezer,) = (line for line in groups_of(each.pid) if ":freezer:" in line)
            (memory,) = (line for line in groups_of(each.pid) if ":memory:" in line)
            assert freezer.endswith(f"/job_{number}/step_extern")
            assert f"/job_{number}/step_extern/" in memory
        step = ("srun", f"--vicinal={value}", f"--jobid={number}", "--chdir=/", "--overlap")
        look = "hostname; grep -o 'step_[0-9]*$' /proc/self/cgroup; ls -A /tmp /dev/shm"
        result = hosts.at_head(*become(USER), *step, "sh", "-c", look)
        assert result.stdout.split() == ["node0", "step_1", "/dev/shm:", "/tmp:"], result.stderr
        assert hosts.at_head("scancel", number).returncode == 0


@contextmanager
def named_like_jobs(jobs: range) -> Iterator[Path]:
    """Groups outside of Slurm's, as a user may have who may make some, with a process in each."""
    outside = FREEZER / f"vicinal-{os.getpid()}"
    groups = [outside / f"job_{job}" / "step_extern" for job in jobs]
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
        (freezer,) = (line for line in groups_of(keeper.pid) if ":freezer:" in line)
        assert freezer.endswith(f":/slurm_node0/uid_{USER}/job_{number}/step_extern")
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
