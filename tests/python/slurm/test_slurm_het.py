"""Heterogeneous jobs of a real Slurm with --vicinal: each component is like a job of its own."""

import json
from collections.abc import Iterator

import psutil
import pytest
from launch_support import GUARD_SECONDS
from slurm_option_support import (
    REGIONS,
    OptionHosts,
    become,
    let_components_start,
    wait_until,
)
from slurm_vfs_support import FIRST, VfHosts

from vicinal.integrations.slurm.job_vfs import owner_of
from vicinal.labs.programs import mpi_program
from vicinal.mpi.environment import Mpi

pytestmark = pytest.mark.long

USER = 1
FILE = "name: lab\nnodes:\n  - {name: inner, count: 2}\nregion: {members: 16}\n"
FIRST_PART, SECOND_PART = ("-wnode0", "-n2"), ("-N2", "-wnode[1-2]", "-n2")
BETWEEN = ":"
RUNS_MAX = 3
"""srun of Slurm 22.05 can hang after its tasks have ended: in a step with several components and
PMIx, the threads of two components stop the same agent, and one waits for it forever (in
pmixp_abort_agent_stop(); seen once on 2026-11-26). Such a run is repeated."""


class HetHosts(OptionHosts):
    """Three hosts: one for a job's first component, two for its second."""

    count = 3

    def prepare(self) -> None:
        super().prepare()
        let_components_start(self.slurm_conf)
        self.cluster_file("two.yaml", FILE)

    @property
    def value(self) -> str:
        return f"--vicinal={self.directory}/two.yaml"


class HetVfHosts(VfHosts):
    """Two hosts with virtual functions."""

    def prepare(self) -> None:
        super().prepare()
        let_components_start(self.slurm_conf)


@pytest.fixture(scope="module")
def hosts() -> Iterator[HetHosts]:
    with HetHosts.opened() as opened:
        yield opened


@pytest.fixture
def clean(hosts: HetHosts) -> Iterator[HetHosts]:
    """Hosts without traces of jobs before and after the test."""
    with hosts.clean():
        try:
            yield hosts
        finally:
            hosts.at_head("scancel", "--user=root,daemon")


def good_checks(text: str) -> list[dict[str, object]]:
    """The records that the program verify prints, none of which may have errors."""
    checks = [json.loads(line) for line in text.splitlines() if line.startswith('{"')]
    assert not [each for each in checks if each["errors"]]
    return checks


def verify(mpi: Mpi) -> str:
    return f"{mpi_program(mpi, 'verify')} --max-size 1024 --only sendrecv"


# --- regions -------------------------------------------------------------------------------


@pytest.mark.parametrize(("mpi", "pmi"), [(Mpi.MPICH, "pmi2"), (Mpi.OPENMPI, "pmix")])
def test_a_region_for_each_component(clean: HetHosts, mpi: Mpi, pmi: str) -> None:
    """Each host of a component has one. MPI runs over both, within hosts by their regions."""
    if pmi not in clean.at_head("srun", "--mpi=list").stdout:
        pytest.skip("this Slurm has no PMIx: on Debian, apt-get install libpmix-dev")
    show = 'echo "$SLURM_PROCID $SLURMD_NODENAME $VICINAL_REGION"'
    task = ("sh", "-c", f"{show}; exec {verify(mpi)}")
    parts = (*FIRST_PART, *task, BETWEEN, *SECOND_PART, *task)
    for _ in range(RUNS_MAX):
        bounded = ("timeout", "--kill-after=1", "60", *become(USER), "srun", f"--mpi={pmi}")
        done = clean.at_head(*bounded, "--vicinal", "--chdir=/", *parts)
        if done.returncode not in (124, 137):
            break
        clean.at_head("pkill", "-KILL", "-x", "srun")
        clean.at_head("scancel", "--user=root,daemon")
    assert done.returncode == 0, done.stderr
    assert good_checks(done.stdout)
    said = sorted(line.split() for line in done.stdout.splitlines() if not line.startswith("{"))
    regions = [f"file:{REGIONS}/job-{number}" for number in numbers(said[0][2])]
    assert said == [
        ["0", "node0", regions[0]],
        ["1", "node0", regions[0]],
        ["2", "node1", regions[1]],
        ["3", "node2", regions[1]],
    ]


def numbers(first: str) -> tuple[int, int]:
    """The numbers of a job's components, from the region of the first component."""
    number = int(first.rpartition("-")[2])
    return number, number + 1


# --- nodes ---------------------------------------------------------------------------------


def test_nodes_for_each_component(clean: HetHosts) -> None:
    """The first has all nodes on one host, the second on two. One step runs tasks in all."""
    task = ("sh", "-c", "echo $SLURMD_NODENAME $(hostname)")
    parts = (*FIRST_PART, *task, BETWEEN, *SECOND_PART, *task)
    done = clean.at_head(*become(USER), "srun", clean.value, "--chdir=/", *parts)
    assert sorted(done.stdout.splitlines()) == [
        "node0 inner0",
        "node0 inner1",
        "node1 inner0",
        "node2 inner1",
    ], done.stderr


@pytest.mark.parametrize("command", ["salloc", "sbatch"])
def test_mpi_in_the_nodes_of_each_component(clean: HetHosts, command: str) -> None:
    """MPICH and Open MPI run one step after another. The second component has a network between its
    hosts.

    The option of the first component counts for all components.
    """
    pmis = [(Mpi.MPICH, "pmi2")]
    if "pmix" in clean.at_head("srun", "--mpi=list").stdout:
        pmis.append((Mpi.OPENMPI, "pmix"))
    steps = [
        f"srun --het-group={group} --mpi={pmi} {verify(mpi)}" for mpi, pmi in pmis for group in "01"
    ]
    script = "cd / && " + " && ".join(steps)
    if command == "salloc":
        parts = (clean.value, *FIRST_PART, BETWEEN, *SECOND_PART, "sh", "-c", script)
        done = clean.at_head(*become(USER), "salloc", "-Q", *parts)
        said, complaints = done.stdout, done.stderr
    else:
        lines = [f"#SBATCH {' '.join(part)}" for part in ((clean.value, *FIRST_PART), SECOND_PART)]
        text = "\n".join(("#!/bin/sh", lines[0], "#SBATCH hetjob", lines[1], script, ""))
        file = clean.cluster_file("script", text)
        output = clean.directory / "work"
        output.mkdir(mode=0o1777, exist_ok=True)
        output.chmod(0o1777)
        options = ("-W", "--chdir=/", f"--output={output}/said")
        done = clean.at_head(*become(USER), "sbatch", *options, file)
        said = complaints = (output / "said").read_text()
    assert done.returncode == 0, complaints
    assert len(good_checks(said)) == len(steps)


@pytest.mark.parametrize("pmi", ["pmi2", "pmix"])
def test_mpi_over_the_nodes_of_several_components_is_refused(clean: HetHosts, pmi: str) -> None:
    """The components' nodes have the same names and addresses, in separate networks."""
    parts = (*FIRST_PART, "true", BETWEEN, *SECOND_PART, "true")
    done = clean.at_head("srun", clean.value, f"--mpi={pmi}", "--chdir=/", *parts)
    assert done.returncode != 0
    assert (
        "so MPI cannot run over several components: start it in each (srun --het-group=N)"
        in done.stderr
    )
    assert not any(map(clean.supervisors, clean.names))


# --- ends ----------------------------------------------------------------------------------


def sleeping(hosts: OptionHosts) -> list[psutil.Process]:
    return hosts.sleeping("603")


def test_a_component_that_is_cancelled_ends_alone_and_the_first_ends_all(clean: HetHosts) -> None:
    """Slurm's own rule. Resources of a cancelled component are removed, those of the other stay."""
    task = ("/bin/sleep", "603")
    parts = (*FIRST_PART, *task, BETWEEN, *SECOND_PART, *task)
    with clean.start(*become(USER), "srun", "-Jhet", clean.value, "--chdir=/", *parts) as running:
        wait_until(lambda: len(sleeping(clean)) == 4)
        assert all(map(clean.supervisors, clean.names))
        listed = clean.at_head("squeue", "-h", "--name=het", "--format=%A").stdout.split()
        first, second = sorted(listed, key=int)
        assert clean.at_head("scancel", second).returncode == 0
        wait_until(lambda: not clean.supervisors("node1") and not clean.supervisors("node2"))
        assert len(sleeping(clean)) == 2
        assert len(clean.supervisors("node0")) == 1
        assert clean.at_head("scancel", first).returncode == 0
        running.wait(GUARD_SECONDS)
    wait_until(lambda: not sleeping(clean) and not any(map(clean.supervisors, clean.names)))


# --- VFs -----------------------------------------------------------------------------


def test_vfs_for_each_component() -> None:
    show = ("sh", "-c", "echo $SLURMD_NODENAME $VICINAL_VFS; exec sleep 600")
    part = ("-n1", "--gres=vf:eth1:1")
    with HetVfHosts.opened() as hosts, hosts.clean():
        parts = ("-wnode0", *part, *show, BETWEEN, "-wnode1", *part, *show)
        with hosts.start("srun", "--job-name=het", "--chdir=/", *parts) as running:
            wait_until(lambda: all(hosts.running(name, "sleep") for name in hosts.names))
            listed = hosts.at_head("squeue", "-h", "--name=het", "--format=%A").stdout.split()
            owners = [{FIRST: owner_of(number)} for number in sorted(map(int, listed))]
            assert [hosts.owners(name) for name in hosts.names] == owners
            assert hosts.at_head("scancel", "--name=het").returncode == 0
            running.wait(GUARD_SECONDS)
