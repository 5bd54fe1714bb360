"""A job of Slurm in virtual machines on two hosts, as an unprivileged user.

The VMs are emulated without KVM, and start from that user's snapshot.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from slurm_guests_support import FILE, vms_of
from slurm_option_support import OptionHosts, become, region_of, wait_until

from vicinal.cluster.nodes.layout import NODE_DIRECTORY
from vicinal.cluster.vm.image.building import build_image
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi, mpi_prefix
from vicinal.region.inspection import inspect

USER = 1


class UserHosts(OptionHosts):
    """Two hosts, and a user's home on both."""

    @property
    def home(self) -> Path:
        return self.directory / "home"

    def prepare(self) -> None:
        super().prepare()
        self.home.mkdir(mode=0o700)
        os.chown(self.home, USER, USER)
        self.cluster_file("three.yaml", FILE.format(count=3))

    def let_users_make_taps(self) -> None:
        """As on many systems, whatever the mode of this machine's own file is."""
        devices = f"{NODE_DIRECTORY}/devices"
        script = (
            f"mkdir {devices} && mount -t tmpfs -o mode=755,nosuid,dev devices {devices} && "
            f"mknod -m 666 {devices}/tun c 10 200 && mount --bind {devices}/tun /dev/net/tun"
        )
        for name in self.names:
            self.cluster.run_in(name, ["sh", "-c", script])

    def as_user(self, *command: object) -> str:
        """The output of a command of the user, which must succeed."""
        # The variables with Open MPI's paths on these hosts mean nothing in VMs.
        own = {"HOME": str(self.home), "PRTE_MCA_prte_tmpdir_base": "/tmp"}
        done = self.at_head(*become(USER), *command, **own)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def job(self) -> str:
        """Start a job on both hosts, which waits to be cancelled; returns its number."""
        job = (f"--vicinal={self.directory}/three.yaml", "-N2", "--ntasks-per-node=2", "-Jwaits")
        self.as_user("salloc", "-Q", *job, "--no-shell")
        return self.at_head("squeue", "-h", "--name=waits", "--format=%A").stdout.strip()

    def step(self, number: str, *words: object) -> str:
        """The output of tasks in the VMs of that job."""
        value = f"--vicinal={self.directory}/three.yaml"
        return self.as_user("srun", value, f"--jobid={number}", "--overlap", "--chdir=/", *words)


@pytest.fixture(scope="module")
def hosts() -> Iterator[UserHosts]:
    build_image()
    with UserHosts.opened() as opened:
        opened.let_users_make_taps()
        yield opened


@pytest.fixture
def clean(hosts: UserHosts) -> Iterator[UserHosts]:
    """Hosts without traces of jobs, before and after the test, which accept the next job."""
    with hosts.clean():
        try:
            yield hosts
        finally:
            hosts.at_head("scancel", "--name=waits")
    assert hosts.as_user("srun", "--chdir=/", "-N2", "hostname").split() in (
        ["node0", "node1"],
        ["node1", "node0"],
    )


def talked(supervisor: psutil.Process) -> set[tuple[str, str]]:
    """Pairs of VMs whose messages a region carried, including pairs of the same VM."""
    state = inspect(region_of(supervisor))
    hostnames = {member.slot: member.hostname for member in state.members}
    return {
        (hostnames[each.sender], hostnames[each.receiver])
        for each in state.connections
        if each.messages > 0 and each.bytes > 0
    }


def test_an_ordinary_user_s_vms_on_two_hosts(clean: UserHosts) -> None:
    """One VM here, two there: messages are verified in a VM, in a host, between hosts.

    The user owns all started processes, which end with the job.
    """
    program = mpi_program(Mpi.MPICH, "verify")
    number = clean.job()
    said = clean.step(number, "-n4", "--mpi=pmi2", program, "--max-size", "4096")
    checks = [json.loads(line) for line in said.splitlines() if line.startswith('{"')]
    assert len(checks) > 10, said
    assert not [each for each in checks if each["errors"]]
    supervisors = [supervisor for name in clean.names for supervisor in clean.supervisors(name)]
    found = [vms_of(supervisor) for supervisor in supervisors]
    assert [sorted(each) for each in found] == [["node0"], ["node1", "node2"]]
    for each in (vm for vms in found for vm in vms.values()):
        assert set(each.uids()) == {USER}
        assert "-incoming" in each.cmdline()
    assert [talked(supervisor) for supervisor in supervisors] == [
        {("node0", "node0")},
        {("node1", "node2"), ("node2", "node1")},
    ]
    assert clean.at_head("scancel", number).returncode == 0
    processes = [vm for vms in found for vm in vms.values()]
    wait_until(lambda: not any(each.is_running() for each in processes))


def test_vms_of_all_hosts_reach_each_other_by_ssh(clean: UserHosts) -> None:
    """As the user mpi: what MPI's own launchers start in one VM runs in all."""
    number = clean.job()
    names = [f"node{vm}" for vm in range(3)]
    script = f"for name in {' '.join(names)}; do ssh $name hostname; done"
    said = clean.step(number, "-N2", "--ntasks-per-node=1", "sh", "-c", script)
    assert sorted(said.split()) == sorted(names * 2)
    for mpi, launcher in ((Mpi.OPENMPI, "mpirun"), (Mpi.MPICH, "mpiexec")):
        verify = (mpi_program(mpi, "verify"), "--max-size", "4096", "--only", "sendrecv")
        said = clean.step(
            number, "-N1", "-n1", mpi_prefix(mpi) / "bin" / launcher, "-n", "3", *verify
        )
        checks = [json.loads(line) for line in said.splitlines() if line.startswith('{"')]
        assert checks, said
        assert not [each for each in checks if each["errors"]]
        (supervisor,) = clean.supervisors("node1")
        assert talked(supervisor) == {("node1", "node2"), ("node2", "node1")}
    assert clean.at_head("scancel", number).returncode == 0


def test_a_user_who_may_make_no_taps(clean: UserHosts) -> None:
    """On one of the hosts: the step ends with a message, and nothing of its VMs is left."""
    clean.cluster.run_in("node1", ["chmod", "600", "/dev/net/tun"])
    value = f"--vicinal={clean.directory}/three.yaml"
    command = (*become(USER), "srun", "-K", value, "-N2", "--ntasks-per-node=1", "--chdir=/")
    try:
        done = clean.at_head(*command, "hostname", HOME=str(clean.home))
    finally:
        clean.cluster.run_in("node1", ["chmod", "666", "/dev/net/tun"])
    assert done.returncode != 0
    assert "slurmstepd-node1: error: vicinal: the VMs' network: /dev/net/tun" in done.stderr
    assert "chmod 0666 /dev/net/tun" in done.stderr
