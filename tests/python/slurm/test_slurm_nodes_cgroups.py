"""Nodes in a Slurm that has control groups, and gives each job its own /tmp and /dev/shm."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_support import CHECKOUT
from slurm_cgroups_support import CgroupHosts, StepHosts, Version, opened
from slurm_option_support import become

USER = 1


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.long), 2])
def version(request: pytest.FixtureRequest) -> Version:
    return Version.of(request.param)


def test_nodes_are_in_the_control_groups_of_their_job(version: Version) -> None:
    """Nodes are in groups that last as long as the job; their tasks are in their step's groups."""
    with opened(CgroupHosts, version) as hosts:
        value = f"{hosts.directory}/two.yaml"
        number = hosts.waiting_job(user=USER, value=value)
        (supervisor,) = hosts.supervisors("node0")
        below = [supervisor, *supervisor.children(recursive=True)]
        assert len(below) > 5
        for each in below:
            apart = version.of_process(each.pid, "freezer")
            assert apart.endswith(f"/job_{number}/{version.extern}")
            assert f"/job_{number}/step_extern/" in version.of_process(each.pid, "memory")
        step = ("srun", f"--vicinal={value}", f"--jobid={number}", "--chdir=/", "--overlap")
        step_of = "grep -o 'step_[0-9]*' /proc/self/cgroup | sort -u"
        look = f"hostname; {step_of}; ls -A /tmp /dev/shm"
        result = hosts.at_head(*become(USER), *step, "sh", "-c", look)
        # Nodes see the directory from which Vicinal runs, wherever it is.
        own = CHECKOUT.relative_to("/tmp").parts[:1] if CHECKOUT.is_relative_to("/tmp") else ()
        assert result.stdout.split() == ["node0", "step_1", "/dev/shm:", "/tmp:", *own], (
            result.stderr
        )
        assert hosts.at_head("scancel", number).returncode == 0


@contextmanager
def named_like_jobs(jobs: range, version: Version) -> Iterator[Path]:
    """Groups outside Slurm's groups, with a process in each, as a user may make them."""
    outside = version.tree / f"vicinal-{os.getpid()}"
    groups = [outside / f"job_{job}" / version.extern for job in jobs]
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


@pytest.mark.long
def test_groups_of_others_that_are_called_as_a_jobs_are_left_alone(version: Version) -> None:
    """Otherwise the owner of such a group would control another user's nodes."""
    jobs = range(1, 9)
    with opened(CgroupHosts, version) as hosts, named_like_jobs(jobs, version) as outside:
        number = hosts.waiting_job(user=USER, value=f"{hosts.directory}/two.yaml")
        assert int(number) in jobs
        (supervisor,) = hosts.supervisors("node0")
        (job,) = (each for each in hosts.groups() if each.is_relative_to(version.tree))
        assert job.name == f"job_{number}"
        own = version.of_process(supervisor.pid, "freezer")
        assert Path(f"{version.tree}{own}") == job / version.extern
        for group in (outside / f"job_{number}").rglob("cgroup.procs"):
            assert str(supervisor.pid) not in group.read_text().split()
        assert hosts.at_head("scancel", number).returncode == 0


@pytest.mark.long
def test_groups_that_end_with_each_step_are_no_place_for_nodes(version: Version) -> None:
    with opened(StepHosts, version) as hosts:
        step = ("srun", f"--vicinal={hosts.directory}/two.yaml", "-n1", "--chdir=/", "true")
        result = hosts.at_head(*become(USER), *step)
        assert result.returncode != 0
        assert "must set PrologFlags=Contain in slurm.conf" in result.stderr
        assert "drain" not in hosts.at_head("sinfo", "-h").stdout
