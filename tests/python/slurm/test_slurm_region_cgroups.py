"""The region of a Slurm job without nodes counts as the job's memory, in its control groups."""

from pathlib import Path

import pytest
from slurm_cgroups_support import CgroupHosts, StepHosts, Version, opened
from slurm_option_support import REGIONS, VICINAL, become

USER = 1
MEBIBYTE = 1 << 20


class SeenHosts(CgroupHosts):
    """One host that gives jobs parts of its memory, and records the groups of `slurm region`."""

    def _configure(self) -> None:
        super()._configure()
        text = self.slurm_conf.read_text().replace("CR_CPU", "CR_CPU_Memory")
        text = text.replace(" CPUs=", " RealMemory=4096 CPUs=")
        self.slurm_conf.write_text(text + "DefMemPerNode=1024\n")

    def prepare(self) -> None:
        super().prepare()
        script = self.directory / "vicinal"
        script.write_text(
            f"#!/bin/sh\ncat /proc/self/cgroup >{self.seen}\n"
            f'cat /proc/self/oom_score_adj >>{self.seen}\nexec {VICINAL} "$@"\n'
        )
        script.chmod(0o755)
        (include,) = self.slurm_conf.parent.glob("plugstack.conf.d/*")
        text = include.read_text()
        assert f"command={VICINAL} " in text
        include.write_text(text.replace(f"command={VICINAL} ", f"command={script} "))

    @property
    def seen(self) -> Path:
        return self.directory / "seen"

    def region_bytes(self) -> int:
        """How many bytes the regions of this host take."""
        blocks = self.cluster.run_in("node0", ["sh", "-c", f"stat -c %b {REGIONS}/*"])
        return 512 * sum(map(int, blocks.split()))


class SeenStepHosts(StepHosts, SeenHosts):
    """The same host without groups that last as long as a job."""


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> Version:
    return Version.of(request.param)


def shared_memory(group: Path) -> int:
    """How much shared memory a control group and the groups below it count."""
    lines = (group / "memory.stat").read_text().splitlines()
    found = dict(line.split() for line in lines)
    return int(found["total_shmem" if "total_shmem" in found else "shmem"])


def memory_groups(hosts: CgroupHosts, version: Version) -> list[Path]:
    """The groups of jobs that count memory."""
    if version.number == 2:
        return hosts.groups()
    return [group for group in hosts.groups() if group.is_relative_to(version.mounted / "memory")]


@pytest.mark.long
def test_a_region_counts_for_its_job(version: Version) -> None:
    """The kernel charges the region to the job while it lasts, and would first kill its maker."""
    with opened(SeenHosts, version) as hosts:
        number = hosts.waiting_job(user=USER)
        *groups, score = hosts.seen.read_text().splitlines()
        tree = ":freezer:" if version.number == 1 else "0::"
        (group,) = (line for line in groups if tree in line)
        assert group.endswith(f"/job_{number}/{version.extern}")
        assert score == "1000"
        if version.accounts_memory:
            (job,) = memory_groups(hosts, version)
            size = hosts.region_bytes()
            assert size > 4 * MEBIBYTE
            assert shared_memory(job) >= size
            assert shared_memory(job / "step_extern") >= size
        assert hosts.at_head("scancel", number).returncode == 0


@pytest.mark.long
def test_without_groups_that_last_it_counts_for_nobody(version: Version) -> None:
    with opened(SeenStepHosts, version) as hosts:
        number = hosts.waiting_job(user=USER)
        assert "step_extern" not in hosts.seen.read_text()
        assert hosts.regions("node0") == [f"job-{number} 600 {USER}"]
        assert hosts.at_head("scancel", number).returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("members", [64, 70])
def test_a_region_that_does_not_fit_into_its_job_s_memory(version: Version, members: int) -> None:
    """The step ends with a message, leaves nothing of its region, and the job continues."""
    if not version.accounts_memory:
        pytest.skip("no control groups here that bound memory")
    with opened(SeenHosts, version) as hosts:
        bad = f"srun --vicinal=region,members={members} echo begun"
        steps = f"! {bad} && srun ls -A {REGIONS} && srun --vicinal echo goes on"
        job = ("salloc", "-Q", "--mem=64M", "-n1", "--chdir=/", "sh", "-c", steps)
        done = hosts.at_head(*become(USER), *job)
        assert done.stdout == "goes on\n", done.stderr
        (line,) = (line for line in done.stderr.splitlines() if "memory limit" in line)
        assert "request more memory (--mem)" in line
        assert "drain" not in hosts.at_head("sinfo", "-h").stdout
