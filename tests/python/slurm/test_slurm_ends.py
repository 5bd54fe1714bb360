"""A job with --vicinal leaves nothing in a real Slurm, however it ends and whatever is killed."""

import os
import signal
import subprocess
import time

import psutil
import pytest
from launch_support import GUARD_SECONDS
from process_support import signal_all, words_of
from slurm_option_support import REGIONS, VICINAL, OptionHosts, wait_until

JOBS = int(os.environ.get("SOAK_JOBS", "10"))
"""Jobs in a row, on two hosts at once."""


def next_job(hosts: OptionHosts) -> None:
    """The host accepts another job, whose epilog removes what earlier jobs left."""
    done = hosts.at_head("srun", "--vicinal", "-wnode0", "-n1", "true")
    assert done.returncode == 0, done.stderr


def steps(hosts: OptionHosts, tasks: int = 1) -> subprocess.Popen[bytes]:
    """A job with one step on the first host, which runs until it is ended."""
    return hosts.start(
        *("srun", "--vicinal", "-wnode0", f"-n{tasks}", "--job-name=dies", "sleep", "600")
    )


# --- killed --------------------------------------------------------------------------------


def test_a_killed_step_leaves_nothing(clean: OptionHosts) -> None:
    """kill -9 of the step's tasks and of its slurmstepd."""
    with steps(clean, 2) as step:
        try:
            wait_until(lambda: len(clean.running("node0", "sleep")) == 2)
            assert len(clean.regions("node0")) == 1
            for program in ("slurmstepd", "sleep"):
                found = clean.running("node0", program)
                assert found
                signal_all(found, signal.SIGKILL)
            assert clean.at_head("scancel", "--name=dies").returncode == 0
            wait_until(lambda: not clean.regions("node0"))
        finally:
            step.kill()  # srun may wait long for a step whose slurmstepd is gone


def test_a_job_goes_on_while_slurmd_is_killed(clean: OptionHosts) -> None:
    """The region exists until the job ends. The next slurmd then removes it."""
    number = clean.waiting_job()
    step = clean.start("srun", "--vicinal", f"--jobid={number}", "--overlap", "sleep", "600")
    with step:
        try:
            wait_until(lambda: clean.running("node0", "sleep"))
            signal_all(clean.running("node0", "slurmd"), signal.SIGKILL)
            wait_until(lambda: not clean.running("node0", "slurmd"))
            assert clean.regions("node0") == [f"job-{number} 600 0"]
            assert clean.running("node0", "sleep")
            clean.start_slurmd("node0")
            assert clean.regions("node0") == [f"job-{number} 600 0"]
            assert clean.at_head("scancel", number).returncode == 0
            wait_until(lambda: not clean.regions("node0"))
        finally:
            step.kill()
    next_job(clean)


def test_a_host_that_lost_all_of_a_job_gives_its_region_back(clean: OptionHosts) -> None:
    """kill -9 of slurmd, slurmstepd and the task at once simulates a crash that /run survives."""
    with steps(clean) as step:
        try:
            wait_until(lambda: clean.running("node0", "sleep"))
            assert len(clean.regions("node0")) == 1
            for program in ("slurmd", "slurmstepd", "sleep"):
                signal_all(clean.running("node0", program), signal.SIGKILL)
            wait_until(lambda: not clean.running("node0", "slurmd"))
            clean.start_slurmd("node0")
            assert clean.at_head("scancel", "--name=dies").returncode == 0
            wait_until(lambda: not clean.regions("node0"))
        finally:
            step.kill()
    next_job(clean)


def test_what_a_crash_left_over_goes_with_the_next_epilog(clean: OptionHosts) -> None:
    """The epilog keeps the region of an existing job, even if no process of the job is a member."""
    number = clean.waiting_job()
    make = [VICINAL, "slurm", "region", "--directory", REGIONS, "--user", "0"]
    clean.cluster.run_in("node0", [*make, "4000000"])
    assert len(clean.regions("node0")) == 2
    assert clean.at_head("srun", "-wnode0", "-n1", "true").returncode == 0
    wait_until(lambda: clean.regions("node0") == [f"job-{number} 600 0"])
    assert clean.at_head("scancel", number).returncode == 0


# --- cancelled -----------------------------------------------------------------------------


def test_a_job_that_is_cancelled_before_it_starts(clean: OptionHosts) -> None:
    submit = ("sbatch", "--parsable", "--hold", "--vicinal", "-wnode0", "--wrap", "true")
    number = clean.at_head(*submit, "--output=/dev/null").stdout.strip()
    assert clean.at_head("scancel", number).returncode == 0
    wait_until(lambda: not clean.at_head("squeue", "-h").stdout)
    assert clean.regions("node0") == []


@pytest.mark.long
def test_a_job_that_is_cancelled_while_its_region_is_made(clean: OptionHosts) -> None:
    """The process that makes the region is stopped until the job is over, and then continues."""

    def making() -> list[psutil.Process]:
        there = clean.processes("node0")
        return [each for each in there if words_of(each)[2:4] == ["slurm", "region"]]

    with steps(clean) as step:
        stopped: list[psutil.Process] = []
        try:
            deadline = time.monotonic() + GUARD_SECONDS
            while not stopped:  # without a pause, because the process runs for less than 0.1 s
                assert time.monotonic() < deadline
                stopped = making()
            signal_all(stopped, signal.SIGSTOP)
            assert not clean.running("node0", "sleep")
            assert clean.at_head("scancel", "--name=dies").returncode == 0
            step.wait(GUARD_SECONDS)
        finally:
            signal_all(stopped, signal.SIGCONT)
            step.kill()
    wait_until(lambda: not making())
    assert not clean.running("node0", "sleep")
    next_job(clean)


def test_a_job_that_is_cancelled_while_its_tasks_run(clean: OptionHosts) -> None:
    with steps(clean, 2) as step:
        wait_until(lambda: len(clean.running("node0", "sleep")) == 2)
        assert clean.at_head("scancel", "--name=dies").returncode == 0
        assert step.wait(GUARD_SECONDS) != 0


def test_a_job_that_is_cancelled_between_steps(clean: OptionHosts) -> None:
    number = clean.waiting_job()
    assert clean.regions("node0") == [f"job-{number} 600 0"]
    assert clean.at_head("scancel", number).returncode == 0


# --- many ----------------------------------------------------------------------------------


@pytest.mark.long
def test_short_jobs_in_a_row_leave_nothing(clean: OptionHosts) -> None:
    job = """srun --vicinal -w"$1" -n1 sh -c 'test -w "${VICINAL_REGION#file:}"' || exit"""
    script = "\n".join([job] * (JOBS // 2))
    rows = [clean.start("sh", "-c", script, "row", name) for name in clean.names]
    assert [row.wait(2 * GUARD_SECONDS) for row in rows] == [0, 0]
