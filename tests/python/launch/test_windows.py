"""One-sided operations between isolated nodes, on windows whose memory lies in the region.

The program of tests/windows checks each result itself. A failure prints seed and step.
"""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from collectives_support import check_good, run_ranks
from command_support import CHECKOUT
from launch_support import GUARD_SECONDS, MPIS, compile_for_each_mpi, square, wait_for

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import RunningJob, launch
from vicinal.mpi.job import CompletedJob, Job
from vicinal.region.format import SlotState
from vicinal.region.geometry import slot_offset

SOURCES = CHECKOUT / "tests/windows"
NODES = 4
PUT_SECONDS = 2.0

STEPS = {"mpich": "steps", "openmpi": "sound"}
"""Open MPI 5.0.11 itself computes some accumulates wrong that are passed on to it."""
CONCURRENT = (
    *(("sums", 300), ("threads", 60, 3), ("locks", 100), ("order", 30), ("large", 3)),
    *(("mixed", 30), ("mixed-threads", 12, 3)),
    ("churn", 120),
)
COMMON_JOBS = (("mpich", 2), ("openmpi", 3))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    first, *more = sorted(SOURCES.glob("*.c"))
    return compile_for_each_mpi(first, tmp_path_factory.mktemp("windows"), *more)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=NODES) as nodes:
        yield nodes


def run_windows(
    cluster: EphemeralCluster,
    program: Path,
    *arguments: object,
    ranks: int = 2,
    windows: str | None = "on",
) -> CompletedJob:
    """Run a mode of the program. `windows` is VICINAL_WINDOWS; None leaves it unset."""
    variables = {} if windows is None else {"VICINAL_WINDOWS": windows}
    return run_ranks(cluster, program, *arguments, ranks=ranks, variables=variables)


@pytest.mark.parametrize(("mpi", "ranks"), square(MPIS, (2, 3, 4), COMMON_JOBS))
def test_drawn_operations(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, ranks: int
) -> None:
    done = run_windows(cluster, programs[mpi], STEPS[mpi], 27, 6, 80, ranks=ranks)
    assert check_good(done, ranks) == ""


@pytest.mark.long
@pytest.mark.parametrize("seed", [101, 102, 103])
@pytest.mark.parametrize("mpi", MPIS)
def test_many_drawn_operations(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, seed: int
) -> None:
    done = run_windows(cluster, programs[mpi], STEPS[mpi], seed, 30, 200)
    assert check_good(done, 2) == ""


@pytest.mark.parametrize("mode", CONCURRENT, ids=lambda mode: str(mode[0]))
@pytest.mark.parametrize(("mpi", "ranks"), square(MPIS, (2, 4), [("mpich", 2)]))
def test_concurrent_operations(
    programs: dict[str, Path],
    cluster: EphemeralCluster,
    mpi: str,
    ranks: int,
    mode: tuple[object, ...],
) -> None:
    assert check_good(run_windows(cluster, programs[mpi], *mode, ranks=ranks), ranks) == ""


@pytest.mark.parametrize("mpi", MPIS)
def test_a_put_needs_no_call_of_its_target(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str
) -> None:
    assert check_good(run_windows(cluster, programs[mpi], "direct"), 2) == "direct"
    assert check_good(run_windows(cluster, programs[mpi], "direct", windows=None), 2) == "direct"
    off = run_windows(cluster, programs[mpi], "direct", windows="off")
    assert check_good(off, 2) == "by messages"


def test_a_window_that_is_too_long_for_the_heap_is_told_once(
    programs: dict[str, Path], cluster: EphemeralCluster
) -> None:
    done = run_windows(cluster, programs["mpich"], "churn", 120)
    assert check_good(done, 2) == ""
    lines = [line for line in done.stderr.splitlines() if "no room for a window" in line]
    assert len(lines) == 2
    assert all("--heap region:SIZE" in line for line in lines)
    quiet = run_windows(cluster, programs["mpich"], "churn", 120, windows=None)
    assert check_good(quiet, 2) == ""
    assert "window" not in quiet.stderr


@pytest.mark.parametrize(("mpi", "ranks"), square(MPIS, (2, 3, 4), COMMON_JOBS))
def test_shared_windows(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, ranks: int
) -> None:
    """Isolated nodes have one memory: loads and stores, synchronisation, operations, queries."""
    done = run_windows(cluster, programs[mpi], "shared", 200, ranks=ranks)
    assert check_good(done, ranks) == f"groups of {ranks}"
    done = run_windows(cluster, programs[mpi], "halo", 300, ranks=ranks)
    assert check_good(done, ranks) == f"groups of {ranks}"


@pytest.mark.parametrize("windows", ["off", None])
@pytest.mark.parametrize("mpi", MPIS)
def test_shared_windows_are_the_mpi_librarys_unless_asked_for(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str, windows: str | None
) -> None:
    for mode in ("shared", "halo"):
        done = run_windows(cluster, programs[mpi], mode, 40, windows=windows)
        assert check_good(done, 2) == "groups of 1 1"


@pytest.mark.parametrize("mpi", MPIS)
def test_shared_windows_over_two_regions(
    programs: dict[str, Path], cluster: EphemeralCluster, mpi: str
) -> None:
    """Each host's ranks share memory, and get no window over both hosts."""
    refused = "too long: no memory\nall: not shared"
    for mode, more in (("shared 20", ""), ("halo 50", ""), ("refused", f"\n{refused}")):
        words = [str(programs[mpi]), *mode.split()]
        job = Job(words, ranks=NODES, hosts=2, environment={"VICINAL_WINDOWS": "on"})
        done = launch(job, cluster, timeout=GUARD_SECONDS)
        assert check_good(done, NODES) == f"groups of 2 2{more}"
    assert "no heap of the region has room for a shared window of" in done.stderr
    assert "the ranks of a shared window are not all in one region" in done.stderr


@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_of_one_node_share_windows(programs: dict[str, Path], mpi: str) -> None:
    """MPICH's own groups have one rank each beside the region, and Open MPI's have all."""
    with EphemeralCluster(nodes=1) as node:
        done = run_windows(node, programs[mpi], "shared", 40, ranks=3)
    assert check_good(done, 3) == "groups of 3"


def test_windows_that_keep_a_rank_in_its_region_are_counted(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    """Rank 1 has two windows without bytes, and a block of MPI_Alloc_mem."""
    release, end, output = tmp_path / "release", tmp_path / "end", tmp_path / "output"
    with EphemeralCluster(nodes=3) as nodes, output.open("wb") as stream:
        if not nodes.network:
            pytest.skip("the nodes have no network of their own here")
        job = Job([str(programs["mpich"]), "hold", str(release), str(end)], 3)
        with RunningJob(job, nodes, stdout=stream, stderr=stream) as started:
            until = time.monotonic() + GUARD_SECONDS
            while "holding" not in output.read_text() and time.monotonic() < until:
                time.sleep(0.05)
            path = Path(started.region_states()[0].path)
            slots = [each.slot for each in region.inspect(path).members if each.rank == 1]
            said = ""
            # On a busy machine, the member may not have counted them before the time is over.
            while "windows" not in said and time.monotonic() < until:
                said = "\n".join(region.leave(path, slots, timeout=2).troubles)
            assert "3 windows of MPI, or as many blocks of MPI_Alloc_mem, lie there" in said
            assert "VICINAL_WINDOWS=off" in said
            release.touch()
            assert region.leave(path, slots, timeout=GUARD_SECONDS).troubles == ()
            members = region.inspect(path).members
            assert not [
                each for each in members if each.slot in slots and each.state is SlotState.JOINED
            ]
            end.touch()
            assert started.wait(GUARD_SECONDS) == 0, output.read_text()
    assert output.read_text().count("good") == 3


@pytest.fixture(scope="module")
def one_put(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    source = Path(__file__).with_name("one_put.c")
    return compile_for_each_mpi(source, tmp_path_factory.mktemp("one-put"))


@pytest.mark.parametrize("mpi", MPIS)
def test_nothing_is_put_into_a_successors_heap(
    one_put: dict[str, Path], tmp_path: Path, mpi: str
) -> None:
    """The slot of a rank that died may get another owner, here only by its claim word."""
    go = tmp_path / "go"
    with EphemeralCluster(nodes=2) as cluster, (tmp_path / "output").open("w+b") as output:
        job = Job([str(one_put[mpi]), str(go)], 2)
        with RunningJob(job, cluster, stdout=output, stderr=output) as started:
            path = Path(started.region_states()[0].path)
            wait_for(Path(output.name), "put 0")
            assert direct_puts(path) == 1
            members = region.inspect(path).members
            (target,) = (each for each in members if each.rank == 1 and each.endpoint == 0)
            with path.open("r+b") as file:
                file.seek(slot_offset(target.slot))
                file.write(struct.pack("<Q", target.epoch + 1 << 32 | SlotState.JOINED))
            go.touch()
            time.sleep(PUT_SECONDS)
            assert direct_puts(path) == 1


def direct_puts(path: Path) -> int:
    """One-sided operations of rank 0 that needed no messages."""
    members = region.inspect(path, patience=0).members
    return sum(each.direct.one_sided for each in members if each.rank == 0)
