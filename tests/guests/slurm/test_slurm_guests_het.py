"""A heterogeneous job of Slurm whose components have one virtual machine each.

The VMs are emulated without KVM, and start from a snapshot, which the first job makes.
"""

import json
from collections.abc import Iterator

import psutil
import pytest
from slurm_guests_support import FILE, begin, vms_of
from slurm_option_support import (
    PATIENCE,
    OptionHosts,
    let_components_start,
    region_of,
    wait_until,
)

from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi
from vicinal.region.inspection import inspect


class HetHosts(OptionHosts):
    """Two hosts, one for each component."""

    def prepare(self) -> None:
        super().prepare()
        let_components_start(self.slurm_conf)
        self.cluster_file("one.yaml", FILE.replace("name: node", "name: inner").format(count=1))


@pytest.fixture
def hosts() -> Iterator[HetHosts]:
    with HetHosts.opened() as opened, opened.clean():
        try:
            yield opened
        finally:
            opened.at_head("scancel", "--user=root")


def test_each_component_has_a_vm(hosts: HetHosts) -> None:
    """One step has tasks in both; MPI runs in each. They end separately, and leave nothing."""
    pmis = [(Mpi.MPICH, "pmi2")]
    if "pmix" in hosts.at_head("srun", "--mpi=list").stdout:
        pmis.append((Mpi.OPENMPI, "pmix"))
    where = "echo $SLURM_PROCID $SLURMD_NODENAME $(hostname) $(id -un)"
    steps = [f"srun --het-group=0,1 sh -c '{where}'"]
    for mpi, pmi in pmis:
        verify = f"{mpi_program(mpi, 'verify')} --max-size 1024 --only sendrecv"
        steps += [f"srun --het-group={group} --mpi={pmi} {verify}" for group in "01"]
    # salloc does not end its command when the job ends.
    one, both = hosts.directory / "one-ended", hosts.directory / "both-ended"
    wait_for = "until [ -e {} ]; do sleep 0.1; done"
    steps.append(f"echo all went well; {wait_for.format(one)}")
    steps.append(f"srun --het-group=0 hostname; echo over; {wait_for.format(both)}")
    first, second = (f"-wnode{host} -n2 -Jhet".split() for host in "01")
    job = ("salloc", "-Q", f"--vicinal={hosts.directory}/one.yaml", *first, ":", *second)
    running = begin(hosts, *job, "sh", "-c", " && ".join(steps))
    assert running.stdout is not None
    said = [running.stdout.readline().strip() for _ in range(4 + 2 * len(pmis) + 1)]
    assert said.pop() == "all went well", running.communicate(timeout=PATIENCE)[1]
    assert sorted(said[:4]) == [f"{rank} node{rank // 2} inner mpi" for rank in range(4)]
    assert not [each for each in map(json.loads, said[4:]) if each["errors"]]
    vms: list[psutil.Process] = []
    for name in hosts.names:
        (supervisor,) = hosts.supervisors(name)
        assert max(each.messages for each in inspect(region_of(supervisor)).connections) > 10
        vms += vms_of(supervisor).values()
    listed = hosts.at_head("squeue", "-h", "--name=het", "--format=%A").stdout.split()
    numbers = sorted(listed, key=int)
    mine, other = vms
    assert hosts.at_head("scancel", numbers[1]).returncode == 0
    wait_until(lambda: not other.is_running() and not hosts.supervisors("node1"))
    assert mine.is_running()
    one.touch()
    said = [running.stdout.readline().strip() for _ in range(3)]
    assert said == ["inner", "inner", "over"]
    assert hosts.at_head("scancel", numbers[0]).returncode == 0
    both.touch()
    running.communicate(timeout=PATIENCE)
    wait_until(lambda: not mine.is_running())
