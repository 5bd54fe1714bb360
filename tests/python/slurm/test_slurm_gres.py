"""srun --gres=vf:1 with a real Slurm: two hosts with a slurmd each, and VFs of fake cards."""

import signal
from collections.abc import Iterator

import pytest
from process_support import signal_all
from slurm_option_support import REGIONS, wait_until
from slurm_vfs_support import FIRST, INFINIBAND, SECOND, VfHosts

from vicinal.integrations.slurm.job_vfs import owner_of


@pytest.fixture(scope="module")
def hosts() -> Iterator[VfHosts]:
    with VfHosts.opened() as opened:
        yield opened


@pytest.fixture
def clean(hosts: VfHosts) -> Iterator[VfHosts]:
    """Hosts on which no job has a VF, before and after the test."""
    with hosts.clean():
        yield hosts


def allocate(hosts: VfHosts, gres: str, *options: str) -> str:
    """Start a job on the first host. Its first step sets its VFs up. Returns its number."""
    command = ("salloc", "-Q", "-wnode0", "-n1", f"--gres={gres}", "--no-shell", *options)
    done = hosts.at_head(*command, "--job-name=waits")
    assert done.returncode == 0, done.stderr
    number = max(
        hosts.at_head("squeue", "-h", "--name=waits", "--format=%A").stdout.split(), key=int
    )
    assert hosts.at_head("srun", f"--jobid={number}", "true").returncode == 0
    return number


def cancel(hosts: VfHosts, *numbers: str) -> None:
    assert hosts.at_head("scancel", *numbers).returncode == 0


def test_the_check_finds_nothing_missing(hosts: VfHosts) -> None:
    said = hosts.cluster.run_in("node0", hosts.installation("check", "node0"))
    assert "ok: node0 has vf:eth1:2,vf:ib0:2, and Slurm knows of vf:eth1:2,vf:ib0:2\n" in said
    assert "\nmissing" not in said


def test_tasks_are_told_of_their_job_s_vfs(clean: VfHosts) -> None:
    """Tasks are told on each host, without --vicinal too. The interface is up during the job."""
    show = "printenv VICINAL_VFS VICINAL_VF_INTERFACES VICINAL_VF_DEVICES"
    flags = "ip -o link show eth1v0 | grep -o '[<,]UP[,>]'"
    ask = ("srun", "-N2", "--gres=vf:eth1:1,vf:ib0:1", "-l", "sh", "-c")
    done = clean.at_head(
        *ask, f"{show}; {flags}; grep -o slurm-[0-9]* /run/vicinal-vfs/records.json"
    )
    assert done.returncode == 0, done.stderr
    for host in range(2):
        words = [line[3:] for line in done.stdout.splitlines() if line.startswith(f"{host}: ")]
        assert words[:3] == [f"{FIRST},{INFINIBAND}", "eth1v0", "mlx5_0v0"]
        assert words[3].strip("<,>") == "UP"
        assert len(words[4:]) == 2
        assert len(set(words[4:])) == 1
    wait_until(lambda: not clean.owners("node0"))
    down = clean.cluster.run_in("node0", ["ip", "-o", "link", "show", "eth1v0"])
    assert ",UP" not in down


@pytest.mark.long
def test_a_job_with_a_region_and_an_infiniband_vf(clean: VfHosts) -> None:
    """The VF has GUIDs while the job has it."""
    before = clean.guid("node0")
    number = allocate(clean, "vf:ib0:1", "--vicinal")
    assert clean.guid("node0") != before
    assert clean.owners("node0") == {INFINIBAND: owner_of(int(number))}
    show = ("printenv", "VICINAL_REGION", "VICINAL_VF_DEVICES")
    done = clean.at_head("srun", "--vicinal", f"--jobid={number}", *show)
    assert done.stdout.splitlines() == [f"file:{REGIONS}/job-{number}", "mlx5_0v0"]
    cancel(clean, number)
    wait_until(lambda: clean.guid("node0") == before)


@pytest.mark.long
def test_jobs_at_once_have_different_ones_and_others_wait(clean: VfHosts) -> None:
    """Two of three jobs start at the same moment, and both find the same VF free."""
    job = ("sbatch", "--parsable", "--hold", "-wnode0", "--gres=vf:eth1:1", "--output=/dev/null")
    jobs = [clean.at_head(*job, "--wrap", "sleep 600").stdout.strip() for _ in range(3)]
    try:
        assert clean.at_head("scontrol", "release", ",".join(jobs)).returncode == 0
        wait_until(lambda: len(clean.running("node0", "sleep")) == 2)
        before = clean.owners("node0")
        assert before.keys() == {FIRST, SECOND}
        run = {owner.removeprefix("slurm-") for owner in before.values()}
        [waits] = set(jobs) - run
        state = ("squeue", "-h", "-j", waits, "--format=%T")
        assert clean.at_head(*state).stdout == "PENDING\n"
        cancel(clean, before[FIRST].removeprefix("slurm-"))
        wait_until(lambda: clean.owners("node0").get(FIRST) == owner_of(int(waits)))
        assert clean.owners("node0")[SECOND] == before[SECOND]
    finally:
        cancel(clean, *jobs)


def test_more_than_a_host_has_is_refused(hosts: VfHosts) -> None:
    done = hosts.at_head("srun", "-N1", "--gres=vf:eth1:3", "true")
    assert done.returncode != 0
    assert "Requested node configuration is not available" in done.stderr


@pytest.mark.long
def test_steps_at_once_share_what_the_job_has(clean: VfHosts) -> None:
    step = "srun --overlap -n1 printenv VICINAL_VFS"
    job = ("salloc", "-Q", "-wnode0", "-n2", "--gres=vf:eth1:1", "sh", "-c")
    done = clean.at_head(*job, f"{step} & {step} & wait")
    assert done.stdout.splitlines() == [FIRST, FIRST], done.stderr


def test_a_job_without_any_leaves_no_note_of_that(clean: VfHosts) -> None:
    show = f"ls {REGIONS}; printenv VICINAL_VFS"
    done = clean.at_head("srun", "-wnode0", "-n1", "sh", "-c", show)
    assert done.stdout.startswith("vfs-")
    assert len(done.stdout.splitlines()) == 1


# --- errors found on the host --------------------------------------------------------------


@pytest.mark.long
def test_vfs_that_somebody_else_took(clean: VfHosts) -> None:
    """The step ends with one message, and the host keeps accepting jobs."""
    clean.assign("node0", "somebody", FIRST, SECOND)
    try:
        done = clean.at_head("srun", "-wnode0", "-n2", "--gres=vf:eth1:1", "echo", "ran")
    finally:
        clean.assign("node0", "somebody")
    assert done.returncode != 0
    assert done.stdout == ""
    fault = f"eth1 has no free VF ({FIRST}: assigned to somebody; {SECOND}: assigned"
    assert done.stderr.count(fault) == 1
    assert "node0: the SR-IOV VFs of job" in done.stderr
    assert "drain" not in clean.at_head("sinfo", "-h").stdout


@pytest.mark.long
def test_an_interface_that_cannot_be_switched_on(clean: VfHosts) -> None:
    """The first of two VFs was already set up, and is released."""
    clean.cluster.run_in("node0", ["ip", "link", "set", "eth1v1", "name", "elsewhere"])
    try:
        done = clean.at_head("srun", "-wnode0", "-n1", "--gres=vf:eth1:2", "true")
        assert done.returncode != 0
        assert done.stderr.count('Cannot find device "eth1v1"') == 1
    finally:
        clean.cluster.run_in("node0", ["ip", "link", "set", "elsewhere", "name", "eth1v1"])
    # The epilog failed for the same reason, so the next epilog releases the VFs.
    assert clean.at_head("srun", "-wnode0", "-n1", "true").returncode == 0


# --- killed --------------------------------------------------------------------------------


def test_a_host_that_lost_all_of_a_job_gives_its_vfs_back(clean: VfHosts) -> None:
    with clean.start("srun", "-wnode0", "--gres=vf:1", "--job-name=dies", "sleep", "600") as step:
        try:
            wait_until(lambda: clean.running("node0", "sleep"))
            assert len(clean.owners("node0")) == 1
            for program in ("slurmd", "slurmstepd", "sleep"):
                signal_all(clean.running("node0", program), signal.SIGKILL)
            wait_until(lambda: not clean.running("node0", "slurmd"))
            clean.start_slurmd("node0")
            assert clean.at_head("scancel", "--name=dies").returncode == 0
            wait_until(lambda: not clean.owners("node0"))
        finally:
            step.kill()


@pytest.mark.long
def test_what_a_crash_left_over_goes_with_the_next_epilog(clean: VfHosts) -> None:
    """The epilog keeps the VFs of an existing job, whatever steps the job has."""
    number = allocate(clean, "vf:eth1:1")
    clean.assign("node0", "slurm-4000000", SECOND, kept=True)
    clean.cluster.run_in("node0", ["touch", f"{REGIONS}/vfs-4000000.lock"])
    assert len(clean.owners("node0")) == 2
    assert clean.at_head("srun", "-wnode0", "-n1", "true").returncode == 0
    wait_until(lambda: list(clean.owners("node0").values()) == [f"slurm-{number}"])
    cancel(clean, number)
