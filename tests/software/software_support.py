"""Run other projects' programs over a region, and check that their messages went through it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checks.leftovers import new_shared_path

from vicinal.labs.study.workloads.hpcc import hpcc_input
from vicinal.mpi.environment import Mpi, mpi_prefix
from vicinal.mpi.traffic import PairTraffic, pair_traffic
from vicinal.region import RegionState, create, inspect
from vicinal.region.creation import default_members

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
OUTPUT = CHECKOUT / "build" / "software"

MPI = Mpi.OPENMPI_DEBIAN
"""Debian's programs are linked with Debian's Open MPI."""

ONE_SIDED = {
    "rdma": {"OMPI_MCA_osc": "rdma"},
    "pt2pt": {"OMPI_MCA_osc": "pt2pt"},
}
"""Open MPI's two methods for one-sided operations over Vicinal. `rdma` uses the provider's reads,
writes and atomics. `pt2pt` uses messages; Open MPI 4 has it for networks without these operations,
and Debian's settings leave it out."""

GUARD_SECONDS = 240
"""A job that takes longer hangs: alone on two cores, none takes more than half a minute."""


@dataclass(frozen=True)
class Finished:
    """A job that ended: its output and, on the path region, the state of its region."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    region: RegionState | None

    def traffic(self) -> list[PairTraffic]:
        """The messages that each rank sent to each other rank through the region."""
        assert self.region is not None, "this job had no region"
        return [pair for pair in pair_traffic(self.region) if pair.sender != pair.receiver]

    @property
    def messages(self) -> int:
        return sum(pair.messages for pair in self.traffic())

    @property
    def bytes(self) -> int:
        return sum(pair.bytes for pair in self.traffic())


Record = Callable[[Finished, str], None]
"""Records a job and its answer for the table at the end."""


def vicinal_run(
    program: Sequence[object],
    *,
    ranks: int,
    directory: Path,
    name: str,
    nodes: int | None = None,
    path: str = "region",
    environment: Mapping[str, str] | None = None,
    preload: Path | None = None,
    timeout: float = GUARD_SECONDS,
) -> Finished:
    """Run a program with `vicinal run` in a directory, and keep its output there as NAME.out.

    Only the ranks get a library to preload. Variables of this process that would change an Open MPI
    are removed.
    """
    outer = {key: text for key, text in os.environ.items() if not key.startswith("OMPI_")}
    outer |= {"PYTHONPATH": str(CHECKOUT / "src"), "OMP_NUM_THREADS": "1", **(environment or {})}
    command = [sys.executable, "-m", "vicinal", "run", "--mpi", MPI.value, "-n", str(ranks)]
    command += ["--timeout", str(timeout), "--path", path]
    region = None
    if path == "region":
        region = new_shared_path()
        create(region, members=default_members(ranks), label=name)
        command += ["--region", f"file:{region}"]
    if nodes is not None:
        command += ["--nodes", str(nodes)]
    if preload is not None:
        command += ["/usr/bin/env", f"LD_PRELOAD={preload}"]
    command += map(str, program)
    began = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=outer,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout + 60,
            check=False,
        )
        state = inspect(region) if region is not None else None
    finally:
        if region is not None:
            region.unlink(missing_ok=True)
    (directory / f"{name}.out").write_text(
        f"$ {' '.join(command)}\n{done.stdout}\n--- standard error\n{done.stderr}\n"
        f"--- exit status {done.returncode}\n"
    )
    return Finished(done.returncode, done.stdout, done.stderr, time.monotonic() - began, state)


def check_success(done: Finished) -> None:
    """Fail the test, with the end of the output, unless the job succeeded."""
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def check_region(done: Finished, *, ranks: int, nodes: int, least_bytes: int) -> None:
    """Check that the messages of a job went through the region, between isolated nodes.

    Every rank must have sent to and received from other ranks, and together the ranks must have
    moved at least `least_bytes`, which the program is known to send. The messages had no other way,
    because Open MPI gets only one transport.
    """
    assert done.region is not None
    hosts = {member.rank: member.hostname for member in done.region.members}
    assert sorted(rank for rank in hosts if rank is not None) == list(range(ranks)), hosts
    assert len(set(hosts.values())) == nodes, hosts
    traffic = [pair for pair in done.traffic() if pair.messages > 0]
    assert {pair.sender for pair in traffic} == set(range(ranks)), traffic
    assert {pair.receiver for pair in traffic} == set(range(ranks)), traffic
    assert done.bytes >= least_bytes, f"{done.bytes} bytes went through the region"


def compile_program(compiler: str, *arguments: object) -> None:
    """Compile with one of the compilers of Debian's Open MPI."""
    command = [str(mpi_prefix(MPI) / "bin" / compiler), *map(str, arguments)]
    subprocess.run(command, check=True, timeout=GUARD_SECONDS)


def write_input(directory: Path, ranks: int) -> None:
    """Write hpccinf.txt for 2 or 4 ranks into the directory in which HPCC will run."""
    text = hpcc_input(size=1000, block=80, grid=(ranks // 2, 2), broadcast=1)
    (directory / "hpccinf.txt").write_text(text)
