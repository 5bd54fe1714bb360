"""MPI programs over hosts that share only a network. Each host has a region of its own."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from command_support import CHECKOUT
from launch_support import GUARD_SECONDS, MPIS, ONE_MPI, long_unless, square

from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import launch
from vicinal.mpi.job import CompletedJob, Job
from vicinal.mpi.traffic import NETWORK_PATH, job_traffic, merge_traffic, pair_traffic

HOSTS = 2

MEMORY = """
import mpi4py
mpi4py.rc.initialize = False
from pathlib import Path
from mpi4py import MPI

def resident():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])

before = resident()
MPI.Init()
MPI.COMM_WORLD.alltoall([0] * MPI.COMM_WORLD.size)
print(resident() - before, flush=True)
MPI.Finalize()
"""


def verify(
    mpi: str, nodes: int, environment: Mapping[str, str] = {}, *, hosts: int = HOSTS
) -> CompletedJob:
    """Every kind of message between all ranks, with checks of content, order and number."""
    program = CHECKOUT / "build/programs" / mpi / "verify"
    with EphemeralCluster(nodes=nodes) as cluster:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        job = Job(
            [str(program), "--max-size", "300000"],
            nodes,
            mpi=mpi,
            hosts=hosts,
            environment=environment,
        )
        return launch(job, cluster, timeout=GUARD_SECONDS)


def check(result: CompletedJob) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    checks = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(checks) > 10
    assert not [each for each in checks if each["errors"]]


@pytest.mark.parametrize(
    ("mpi", "nodes"),
    square(MPIS, [HOSTS, 2 * HOSTS], [("mpich", 2 * HOSTS), ("openmpi", HOSTS)]),
)
def test_answers_are_right_over_hosts(mpi: str, nodes: int) -> None:
    """With one rank a host, all messages use the network. With two, neighbours use their region."""
    result = verify(mpi, nodes)
    check(result)
    assert len(result.regions) == HOSTS
    for host, region in enumerate(result.regions):
        here = set(range(host * nodes // HOSTS, (host + 1) * nodes // HOSTS))
        assert {member.rank for member in region.members} == here
        talked = {
            (pair.sender, pair.receiver)
            for pair in pair_traffic(region)
            if pair.sender != pair.receiver
        }
        assert talked == {(one, other) for one in here for other in here if one != other}
    traffic = merge_traffic(map(job_traffic, result.regions))
    across = {(p.sender, p.receiver) for p in traffic.pairs if p.path == NETWORK_PATH}
    assert across
    assert all(HOSTS * one // nodes != HOSTS * other // nodes for one, other in across)
    assert not traffic.beyond


@pytest.mark.parametrize("hosts", [1, HOSTS])
def test_large_messages_are_right_by_mpich_s_own_pipeline(hosts: int) -> None:
    """MPICH sends each whole chunk with FI_MATCH_COMPLETE. It uses its pipeline only if asked."""
    pipeline = {
        "MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL": "pipeline",
        "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD": "16384",
        "MPIR_CVAR_CH4_OFI_PIPELINE_CHUNK_SZ": "65536",
    }
    check(verify("mpich", HOSTS, pipeline, hosts=hosts))


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_a_core_of_two_names_carries_a_job(mpi: str) -> None:
    core = {"VICINAL_NET": "tcp;ofi_rxm", "FI_LOG_LEVEL": "info", "FI_LOG_PROV": "vicinal"}
    result = verify(mpi, HOSTS, core)
    check(result)
    assert "peers beyond the region are reached by tcp;ofi_rxm on " in result.stderr


@pytest.mark.parametrize("mpi", MPIS)
def test_the_network_takes_a_rank_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    """MPI and messages take 2.5 to 3.5 MB together, and 16 MB more if tcp has its usual buffers."""
    monkeypatch.delenv("FI_TCP_MAX_RX_SIZE", raising=False)
    script = tmp_path / "memory.py"
    script.write_text(MEMORY)
    with EphemeralCluster(nodes=HOSTS) as cluster:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        job = Job([sys.executable, str(script)], HOSTS, mpi=mpi, hosts=HOSTS)
        result = launch(job, cluster, timeout=GUARD_SECONDS)
    assert result.returncode == 0, result.stderr
    kilobytes = [int(line) for line in result.stdout.splitlines()]
    assert len(kilobytes) == HOSTS
    assert all(1000 < each < 10_000 for each in kilobytes)


def test_without_a_network_hosts_do_not_reach_each_other() -> None:
    """This proves that the network carried the messages: without it, the job fails and says why."""
    result = verify("mpich", HOSTS, {"VICINAL_NET": "off", "FI_LOG_LEVEL": "warn"})
    assert result.returncode != 0
    assert "an address is of another region" in result.stderr


def test_hosts_have_regions_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(VicinalError, match="a new region for each host"):
        Job([str(tmp_path)], 2, hosts=2, region="file:/dev/shm/x")


@pytest.mark.parametrize(
    ("variable", "complaint"),
    [
        (
            "VICINAL_NET=nonsense",
            "VICINAL_NET=nonsense: libfabric has no such provider with reliable messages",
        ),
        ("VICINAL_NET=verbs", "vicinal: error: VICINAL_NET=verbs: "),
        ("VICINAL_NET_INTERFACE=nosuch0", "nosuch0"),
    ],
)
@pytest.mark.parametrize(
    "mpi", [pytest.param(mpi, marks=long_unless(mpi == "openmpi")) for mpi in MPIS]
)
def test_a_core_that_is_not_there_is_said_in_a_line(
    mpi: str, variable: str, complaint: str
) -> None:
    """Each rank prints the line, and the job ends."""
    name, _, text = variable.partition("=")
    result = verify(mpi, HOSTS, {name: text})
    assert result.returncode != 0
    said = [line for line in result.stderr.splitlines() if line.startswith("vicinal: error: ")]
    assert said
    assert all(complaint in line for line in said), said
