"""Ranks in several regions, and two jobs in one region: which ranks meet, and where."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
from command_support import CHECKOUT
from launch_support import GUARD_SECONDS, MPIS, ONE_MPI, in_regions, long_unless
from process_support import named, signal_all

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch.running import launch
from vicinal.mpi.environment import check_region_names, mpi_environment, mpi_prefix
from vicinal.mpi.job import Job
from vicinal.mpi.traffic import NETWORK_PATH, REGION_PATH, job_traffic, merge_traffic, pair_traffic
from vicinal.region import RegionState

FIRST, SECOND = "first", "second"
SEED = 20262
MESSAGES = 200
"""Each of two jobs sends more messages than this while the other job runs."""


def talked(state: RegionState) -> set[tuple[int, int]]:
    """Pairs of ranks that sent messages to each other through a region."""
    return {
        (pair.sender, pair.receiver)
        for pair in pair_traffic(state)
        if pair.messages > 0 and pair.sender != pair.receiver
    }


def both_ways(pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    return {*pairs} | {(other, one) for one, other in pairs}


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_a_rank_in_two_regions_reaches_those_of_both(mpi: str) -> None:
    """Ranks that share no region reach each other over the network."""
    program = CHECKOUT / "build/programs" / mpi / "verify"
    with EphemeralCluster(nodes=3) as cluster:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        for name in (FIRST, SECOND):
            region.create(cluster.exchange / name, members=8)
        first, second = (f"file:{EXCHANGE}/{name}" for name in (FIRST, SECOND))
        both = f"{first},{second}"
        command = in_regions(
            {"node0": first, "node1": both, "node2": second},
            [str(program), "--max-size", "300000"],
        )
        job = Job(command, 3, mpi=mpi, region=both)
        result = launch(job, cluster, timeout=GUARD_SECONDS)
        for name in (FIRST, SECOND):
            assert not [each for each in region.check(cluster.exchange / name) if each.fault]
    assert result.returncode == 0, result.stdout + result.stderr
    checks = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(checks) > 10
    assert not [each for each in checks if each["errors"]]
    at_first, at_second = result.regions
    assert {member.rank for member in at_first.members} == {0, 1}
    assert {member.rank for member in at_second.members} == {1, 2}
    assert talked(at_first) == both_ways([(0, 1)])
    assert talked(at_second) == both_ways([(1, 2)])
    paths = {
        (pair.sender, pair.receiver): pair.path
        for pair in merge_traffic(map(job_traffic, result.regions)).pairs
        if pair.sender != pair.receiver
    }
    assert paths == {
        pair: NETWORK_PATH if pair in both_ways([(0, 2)]) else REGION_PATH
        for pair in both_ways([(0, 1), (1, 2), (0, 2)])
    }
    # In the second region, the rank that is in both records its first region. It is the same
    # endpoint.
    homes = {member.nonce: member for member in at_first.members if member.rank == 1}
    assert all(member.home is None for member in at_first.members)
    for member in at_second.members:
        if member.rank == 2:
            assert member.home is None
            continue
        at_home = homes.pop(member.nonce)
        assert member.home == region.Home(at_first.header.id, at_home.slot, at_home.epoch)
    assert not homes


def connected(state: RegionState) -> list[set[int]]:
    """Groups of slots that are connected with each other, directly or over other slots."""
    groups: list[set[int]] = []
    for each in state.connections:
        pair = {each.sender, each.receiver}
        joined = [group for group in groups if group & pair]
        groups = [group for group in groups if not group & pair] + [pair.union(*joined)]
    return groups


def exchanged(state: RegionState, group: set[int]) -> int:
    """How many messages the slots of a group have sent to each other."""
    return sum(
        each.messages
        for each in state.connections
        if each.sender in group and each.sender != each.receiver
    )


@pytest.mark.parametrize(
    "mpi", [pytest.param(mpi, marks=long_unless(mpi == "openmpi")) for mpi in MPIS]
)
def test_two_jobs_in_one_region_never_meet(region_path: Path, mpi: str) -> None:
    """Both run the same program with the same seed, and receive from any source."""
    made = region.create(region_path, members=16)
    environment = {name: text for name, text in os.environ.items() if name[:3] != "FI_"}
    environment |= mpi_environment(mpi, region=made.name)
    environment["MPIR_CVAR_NOLOCAL"] = "1"  # otherwise MPICH uses its own memory within a host
    for package in ("OMPI", "PRTE"):
        environment[f"{package}_ALLOW_RUN_AS_ROOT"] = "1"
        environment[f"{package}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    program = CHECKOUT / "build/programs" / mpi / "soak"
    command: list[str | Path] = [
        mpi_prefix(mpi) / "bin/mpiexec",
        "-n",
        "2",
        program,
        str(4 * GUARD_SECONDS),
        str(SEED),
    ]
    jobs = [
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        deadline = time.monotonic() + GUARD_SECONDS
        while True:
            state = region.inspect(region_path)
            talking = [group for group in connected(state) if exchanged(state, group) > MESSAGES]
            if len(talking) >= 2:
                break
            assert time.monotonic() < deadline, "the jobs do not run at the same time"
            time.sleep(0.05)
        for job in jobs:
            signal_all(
                named(psutil.Process(job.pid).children(recursive=True), "soak"), signal.SIGUSR2
            )
        said = [job.communicate(timeout=GUARD_SECONDS) for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    assert [job.returncode for job in jobs] == [0, 0], said
    for output, _ in said:
        (line,) = [each for each in output.splitlines() if '"soak"' in each]
        result = json.loads(line)
        assert result["errors"] == 0
        assert result["sent"] == result["received"] > 100
    state = region.inspect(region_path)
    endpoints = [(member.rank, member.endpoint) for member in state.members]
    assert len(endpoints) == 2 * len({*endpoints})
    for group in connected(state):
        ranks = [(state.member(slot).rank, state.member(slot).endpoint) for slot in group]  # type: ignore[union-attr]
        assert len(ranks) == len({*ranks}), "ranks of two jobs are connected"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("file:{0},", "VICINAL_REGION has an empty entry in its list"),
        ("file:{0},file:{0}", "VICINAL_REGION names one region twice"),
        ("file:{0},file:{1}", "VICINAL_REGION names one region twice"),
        ("file:{0},/dev/shm/x", "VICINAL_REGION=/dev/shm/x is not understood"),
        ("file:{0},file:/nonexistent/x", "region /nonexistent/x does not exist"),
        (",".join(["file:{0}"] * 5), "VICINAL_REGION names more than 4 regions"),
    ],
)
def test_lists_that_cannot_be_are_said_in_a_line(
    region_path: Path, value: str, complaint: str
) -> None:
    """If two names lead to one file, the region itself shows that it is one region."""
    region.create(region_path)
    other = region_path.with_name(f"{region_path.name}-copy")
    os.link(region_path, other)
    try:
        done = subprocess.run(
            [CHECKOUT / "build/release/tests/api/api", "address", "names"],
            env=os.environ
            | {
                "FI_PROVIDER_PATH": str(CHECKOUT / "build/release/provider"),
                "VICINAL_REGION": value.format(region_path, other),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        other.unlink()
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("vicinal: error: ")]
    assert said
    assert all(complaint in line for line in said), done.stderr


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("file:/a,b", "'b' does not name a region"),
        ("file:/a,", "'' does not name a region"),
        ("file:/a,file:/a", "the region file:/a is named twice"),
        ("file:/a,file:/b,file:/c,file:/d,file:/e", "cannot be in 5 regions"),
    ],
)
def test_lists_are_checked_before_a_job_starts(value: str, complaint: str) -> None:
    with pytest.raises(VicinalError, match=re.escape(complaint)):
        check_region_names(value)
    assert check_region_names("file:/a,pci:0000:00:04.0") == "file:/a,pci:0000:00:04.0"
