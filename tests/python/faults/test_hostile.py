"""A member of a region that writes nonsense into it: errors, but no crash and no hang.

A peer can also lie about its messages, so messages can be lost or wrong here. But no other process
may die, access memory beside its buffers (the sanitizers would report that), or stay in a call for
ever.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_support import made
from launch_support import (
    GUARD_SECONDS,
    MPIS,
    REGION,
    SCRIBBLE_SECONDS,
    SEED,
    compile_for_each_mpi,
    scribble,
    wait_for,
)

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch.running import RunningJob
from vicinal.mpi.job import Job

PARTS = ("everything", "header", "members", "tables", "rings", "arenas", "cut")
MPI_PARTS = ("members", "tables", "cut")
"""Parts that forge messages are left out, because an MPI library trusts what its ranks send."""

MPI_DIAGONAL = (("mpich", "members"), ("openmpi", "cut"))

RANKS = 3
VICTIM_SECONDS = 2.0
MEMBERS = 24

CRASHES = {128 + number: name for number, name in ((11, "SEGV"), (7, "BUS"), (6, "ABRT"))}


@pytest.fixture(params=["release", pytest.param("asan", marks=pytest.mark.long)])
def build(request: pytest.FixtureRequest) -> Path:
    return made(request.param)


@pytest.mark.parametrize("part", PARTS)
def test_endpoints_outlive_a_scribbler(build: Path, region_path: Path, part: str) -> None:
    region.create(region_path, members=MEMBERS)
    environment = {name: value for name, value in os.environ.items() if name[:3] != "FI_"} | {
        "FI_PROVIDER_PATH": str(build / "provider"),
        "VICINAL_REGION": f"file:{region_path}",
        "VICINAL_PEER_TIMEOUT": "0.2",
        "ASAN_OPTIONS": "detect_leaks=0",  # other providers of libfabric leak
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    command = [str(build / "tests/hostile/victim"), str(RANKS), str(VICTIM_SECONDS), str(SEED)]
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "ready\n"
            scribble(build, region_path, part)
            output, errors = victim.communicate(timeout=GUARD_SECONDS)
        finally:
            victim.kill()
    # The provider may report each fault in one line. The victim and the sanitizers must print
    # nothing.
    ours = ("vicinal: error: ", "vicinal: warning: ")
    said = [line for line in errors.splitlines() if not line.startswith(ours)]
    assert said == []
    assert victim.returncode == 0
    assert len(re.findall(r"rank=\d messages=[1-9]\d* ", output)) == RANKS, output


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=2) as opened:
        yield opened


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compile_for_each_mpi(
        Path(__file__).with_name("hostile_ranks.c"), tmp_path_factory.mktemp("hostile")
    )


@pytest.fixture(scope="module")
def teller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that runs another program and prints its exit status."""
    script = tmp_path_factory.mktemp("teller") / "teller"
    script.write_text('#!/bin/sh\n"$@"\nstatus=$?\necho "status=$status"\nexit $status\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("path", [REGION])
@pytest.mark.parametrize(
    ("mpi", "part"),
    [
        pytest.param(mpi, part, marks=() if (mpi, part) in MPI_DIAGONAL else pytest.mark.long)
        for mpi in MPIS
        for part in MPI_PARTS
    ],
)
def test_an_mpi_job_outlives_a_scribbler(
    cluster: EphemeralCluster,
    programs: dict[str, Path],
    teller: Path,
    tmp_path: Path,
    checkout: Path,
    mpi: str,
    part: str,
    path: str,
) -> None:
    file = cluster.exchange / f"hostile-{mpi}-{part}"
    region.create(file, members=MEMBERS)
    output = tmp_path / "output"
    job = Job(
        [str(teller), str(programs[mpi]), str(SCRIBBLE_SECONDS + 2)],
        ranks=RANKS,
        mpi=mpi,
        path=path,
        region=f"file:{EXCHANGE}/{file.name}",
        environment={"VICINAL_PEER_TIMEOUT": "1"},
    )
    try:
        with output.open("wb") as stream, RunningJob(job, cluster, stdout=stream) as running:
            wait_for(output, "ready", RANKS)
            scribble(checkout / "build/release", file, part)
            running.wait(GUARD_SECONDS)  # raises if the job does not end
    finally:
        file.unlink(missing_ok=True)
    said = output.read_text()
    statuses = [int(status) for status in re.findall(r"status=(\d+)", said)]
    assert [CRASHES[status] for status in statuses if status in CRASHES] == [], said
