"""Slurm's jobs in virtual machines: their ends, owners, accounting, and what their tasks see.

The VMs are emulated without KVM.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from process_support import signal_all
from slurm_cgroups_support import CgroupHosts, Version
from slurm_cgroups_support import opened as opened_with_groups
from slurm_guests_support import FILE, begin, sleeping, vms, vms_of
from slurm_option_support import PATIENCE, OptionHosts, become, region_of, wait_until

from vicinal.cluster.vm.image.building import build_image
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi
from vicinal.region.inspection import inspect

JOBS = max(2, int(os.environ.get("SOAK_JOBS", "0")) // 5)
"""Number of jobs in a row."""
USER = 1
MIB = 1 << 20


@pytest.fixture(scope="module")
def hosts() -> Iterator[OptionHosts]:
    with OptionHosts.opened() as opened:
        yield opened


@pytest.fixture
def clean(hosts: OptionHosts) -> Iterator[OptionHosts]:
    """Hosts without traces of jobs, before and after the test, which accept the next job."""
    with hosts.clean():
        yield hosts
        assert hosts.at_head("srun", "-wnode0", "hostname").stdout == "node0\n"


@pytest.fixture(scope="module")
def one(hosts: OptionHosts) -> Path:
    """The file of a cluster of one virtual machine."""
    return hosts.cluster_file("one.yaml", FILE.format(count=1))


@pytest.fixture(scope="module")
def two(hosts: OptionHosts) -> Path:
    """The file of a cluster of two virtual machines."""
    return hosts.cluster_file("two.yaml", FILE.format(count=2))


def step(value: object, number: str) -> tuple[str, ...]:
    """The beginning of a command line that runs tasks of a waiting job."""
    return ("srun", f"--vicinal={value}", f"--jobid={number}", "--overlap", "--chdir=/")


# --- ends ----------------------------------------------------------------------------------


def test_a_killed_step(clean: OptionHosts, one: Path) -> None:
    """kill -9 of the slurmstepd that supervises it, and of Slurm's process for the task."""
    running = sleeping(clean, one, 1)
    (vm,) = vms(clean).values()
    signal_all(clean.running("node0", "slurmstepd"), signal.SIGKILL)
    assert clean.at_head("scancel", "--name=dies").returncode == 0
    running.kill()
    running.communicate()
    wait_until(lambda: not vm.is_running())


def test_a_host_that_lost_slurm(clean: OptionHosts, one: Path) -> None:
    """kill -9 of slurmd and slurmstepd: the VM stays until slurmd runs again."""
    running = sleeping(clean, one, 1)
    (vm,) = vms(clean).values()
    for program in ("slurmd", "slurmstepd"):
        signal_all(clean.running("node0", program), signal.SIGKILL)
    wait_until(lambda: not clean.running("node0", "slurmd"))
    assert vm.is_running()
    clean.start_slurmd("node0")
    assert clean.at_head("scancel", "--name=dies").returncode == 0
    running.kill()
    running.communicate()
    wait_until(lambda: not vm.is_running())


def test_a_job_that_is_cancelled_while_its_tasks_run(clean: OptionHosts, one: Path) -> None:
    running = sleeping(clean, one, 1)
    (vm,) = vms(clean).values()
    assert clean.at_head("scancel", "--name=dies").returncode == 0
    running.communicate(timeout=PATIENCE)
    assert running.returncode != 0
    wait_until(lambda: not vm.is_running())


def test_short_jobs_in_a_row_leave_nothing(clean: OptionHosts, one: Path) -> None:
    job = f"srun --vicinal={one} -wnode0 -n1 hostname || exit"
    running = begin(clean, "sh", "-c", "\n".join([job] * JOBS))
    said, errors = running.communicate(timeout=JOBS * PATIENCE)
    assert said == "node\n" * JOBS, errors


# --- what tasks see, and accounting --------------------------------------------------------


def test_messages_of_ranks_are_in_their_region(clean: OptionHosts, two: Path) -> None:
    """MPICH in both directions; then the job is cancelled between its steps."""
    number = clean.waiting_job(value=str(two))
    program = mpi_program(Mpi.MPICH, "verify")
    ranks = ("-O", "-n2", "--mpi=pmi2", program, "--max-size", "4096", "--only", "sendrecv")
    done = clean.at_head(*step(two, number), *ranks)
    assert done.returncode == 0, done.stderr
    (supervisor,) = clean.supervisors("node0")
    state = inspect(region_of(supervisor))
    hostnames = {member.slot: member.hostname for member in state.members}
    talked = {
        (hostnames[each.sender], hostnames[each.receiver])
        for each in state.connections
        if each.messages > 0 and each.bytes > 0
    }
    assert {("node0", "node1"), ("node1", "node0")} <= talked
    assert len(vms(clean)) == 2
    assert clean.at_head("scancel", number).returncode == 0


def test_two_jobs_at_once_see_nothing_of_each_other(
    clean: OptionHosts, one: Path, two: Path
) -> None:
    """A job of one VM has no network."""
    numbers = [clean.waiting_job(value=str(value)) for value in (two, one)]
    supervisors = sorted(clean.supervisors("node0"), key=lambda each: each.create_time())
    names = [sorted(vms_of(each)) for each in supervisors]
    assert names == [["node0", "node1"], ["node"]]
    write = clean.at_head(*step(two, numbers[0]), "-n1", "sh", "-c", "echo a >/tmp/of-first")
    assert write.returncode == 0, write.stderr
    look = "ls /tmp /sys/class/net"
    first = clean.at_head(*step(two, numbers[0]), "-n1", "sh", "-c", look)
    assert {"of-first", "eth0"} <= set(first.stdout.split()), first.stderr
    second = clean.at_head(*step(one, numbers[1]), "-n1", "sh", "-c", look)
    assert second.returncode == 0, second.stderr
    assert {"of-first", "eth0"}.isdisjoint(second.stdout.split())
    assert "lo" in second.stdout.split()
    regions = {inspect(region_of(each)).header.id for each in supervisors}
    assert len(regions) == 2
    for number in numbers:
        assert clean.at_head("scancel", number).returncode == 0


def anonymous(process: psutil.Process) -> int:
    """Bytes of memory that only this process has."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


class MemoryHosts(CgroupHosts):
    """One host with control groups, whose jobs have a memory limit.

    They have the real host's /tmp, which contains the interpreter that these tests give to Slurm.
    """

    contained = "PrologFlags=Contain\n"

    def _configure(self) -> None:
        super()._configure()
        text = self.slurm_conf.read_text()
        assert " State=UNKNOWN" in text
        text = text.replace(" State=UNKNOWN", " RealMemory=8192 State=UNKNOWN")
        self.slurm_conf.write_text(text)


def test_vms_and_their_memory_are_in_the_control_groups_of_their_job() -> None:
    """For version 1: this was written on a host where version 2 does not count memory."""
    version = Version.of(1)
    build_image()
    with opened_with_groups(MemoryHosts, version) as hosts:
        value = hosts.cluster_file("one.yaml", FILE.format(count=1))
        number = hosts.waiting_job(value=str(value))
        (vm,) = vms(hosts).values()
        apart = version.of_process(vm.pid, "freezer")
        assert apart.endswith(f"/job_{number}/{version.extern}")
        memory = version.of_process(vm.pid, "memory")
        assert f"/job_{number}/step_extern/" in memory
        job = Path(f"{version.mounted}/memory{memory.partition('/step_extern')[0]}")
        taken = anonymous(vm)
        assert taken > 32 * MIB
        # The kernel counts with a delay.
        assert int((job / "memory.usage_in_bytes").read_text()) > 0.9 * taken
        assert hosts.at_head("scancel", number).returncode == 0


# --- owners --------------------------------------------------------------------------------


def test_an_ordinary_user_has_vms(clean: OptionHosts, one: Path) -> None:
    """From root's image, and from a snapshot of the user, which the user's second job finds."""
    build_image()
    home = clean.directory / "home"
    home.mkdir(mode=0o700)
    os.chown(home, USER, USER)
    job = (*become(USER), "srun", f"--vicinal={one}", "-wnode0", "-n1", "--chdir=/")
    first = clean.at_head(*job, "id", "-un", HOME=str(home))
    assert first.stdout == "mpi\n", first.stderr
    kept = home / ".cache/vicinal/guests"
    (snapshot,) = (each for each in (kept / f"snapshots-{USER}").iterdir() if each.is_dir())
    assert {each.stat().st_uid for each in (snapshot, *snapshot.iterdir())} == {USER}
    assert not list(kept.glob("image-*"))
    made = (snapshot / "state").stat().st_mtime_ns
    number = clean.waiting_job(user=USER, value=str(one), HOME=str(home))
    (vm,) = vms(clean).values()
    assert set(vm.uids()) == {USER}
    assert "-incoming" in vm.cmdline()
    assert (snapshot / "state").stat().st_mtime_ns == made
    assert clean.at_head("scancel", number).returncode == 0
