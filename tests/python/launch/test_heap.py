"""Memory of applications in the region: libvicinal-heap.so, and `vicinal run --heap`.

Only the release build is tested. A sanitizer has an allocator of its own, which must come first, so
nothing can be preloaded before it. The parts below, the allocator of blocks and their lifetime,
have unit tests that run with all sanitizers.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_support import Vicinal, error_line
from launch_support import (
    GUARD_SECONDS,
    MPIS,
    ONE_MPI,
    compile_for_each_mpi,
    scribble,
    square,
    wait_for,
)
from suite import Lists, fetch_suite, run_suite

from vicinal import region
from vicinal.base.errors import VicinalError
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch.running import RunningJob, launch
from vicinal.mpi.job import Job
from vicinal.mpi.job_region import check_heap
from vicinal.mpi.preloading import (
    HEAP_FILE,
    MPI_FILE,
    PAIRS_FILE,
    heap_library,
    parse_heap,
    preloading,
)
from vicinal.region.format import SlotState

MIB = 1 << 20

SCENARIOS = (
    *("place", "zeros", "reallocations", "alignments", "full", "own_memory", "threads"),
    *("forks", "forks_among_threads", "many_lives"),
)


@pytest.fixture
def release(checkout: Path) -> Path:
    return checkout / "build" / "release"


@pytest.fixture
def environment(region_path: Path, release: Path) -> dict[str, str]:
    region.create(region_path, members=4, heap_bytes=16 * MIB)
    return {name: value for name, value in os.environ.items() if name[:3] != "FI_"} | {
        "VICINAL_REGION": f"file:{region_path}",
        "FI_PROVIDER_PATH": str(release / "provider"),
        "LD_PRELOAD": str(release / "provider" / HEAP_FILE),
    }


def run_preloaded(
    release: Path, environment: dict[str, str], scenario: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [release / "tests/heap/preloaded", scenario],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_SECONDS,
    )


# --- programs without changes --------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_allocations(release: Path, environment: dict[str, str], scenario: str) -> None:
    result = run_preloaded(release, environment, scenario)
    assert (result.stdout, result.stderr) == (f"ok {scenario}\n", "")
    assert result.returncode == 0


def test_every_scenario_is_run(checkout: Path) -> None:
    source = (checkout / "tests/heap/preloaded.c").read_text()
    table = source[source.index("} scenarios[] = {") :].split("};")[0]
    named = {line.split('"')[1] for line in table.splitlines() if '"' in line}
    assert named == {*SCENARIOS, "heapless", "outlived", "scribbled", "twice_freed"}


def test_blocks_outlive_the_endpoint(
    release: Path, environment: dict[str, str], region_path: Path
) -> None:
    """The slot is held until the last block is freed or the process ends."""

    def member() -> region.Member:
        (found,) = [each for each in region.inspect(region_path).members if each.epoch == epoch]
        return found

    command = [str(release / "tests/heap/preloaded"), "outlived"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        epoch = 1
        for line, state, condition in (
            ("closed", SlotState.HELD, "holding"),
            ("one left", SlotState.HELD, "holding"),
            ("none left", SlotState.FREE, "left"),
        ):
            assert program.stdout.readline() == f"{line}\n"
            found = region.inspect(region_path).members[0]
            assert (found.state, found.condition) == (state, condition)
            program.stdin.write("\n")
            program.stdin.flush()
        assert program.stdout.readline() == "held\n"
        held = [m for m in region.inspect(region_path).members if m.state is SlotState.HELD]
        assert [each.condition for each in held] == ["holding"]
        with pytest.raises(VicinalError, match="living members"):
            region.remove(region_path)
        program.stdin.write("\n")
        program.stdin.close()
        assert program.stdout.readline() == "ok outlived\n"
    assert program.returncode == 0
    held = [m for m in region.inspect(region_path).members if m.state is SlotState.HELD]
    assert [each.condition for each in held] == ["left"]
    assert region.check(region_path) == []
    # All slots are available again.
    assert run_preloaded(release, environment, "many_lives").returncode == 0


def test_a_block_that_is_freed_twice_ends_the_program(
    release: Path, environment: dict[str, str]
) -> None:
    result = run_preloaded(release, environment, "twice_freed")
    assert result.returncode in (-6, 1)  # one of libfabric's libraries handles SIGABRT
    assert result.stderr.startswith("vicinal: error: free() of an address that is no block")


def test_a_region_without_heaps_is_told_once(
    release: Path, environment: dict[str, str], region_path: Path
) -> None:
    region_path.unlink()
    region.create(region_path, members=4)
    result = run_preloaded(release, environment, "heapless")
    assert (result.returncode, result.stdout) == (0, "ok heapless\n")
    (line,) = result.stderr.splitlines()
    assert line.startswith("vicinal: error: libvicinal-heap.so was preloaded, and region")
    assert "--heap" in line
    del environment["LD_PRELOAD"]
    result = run_preloaded(release, environment, "heapless")
    assert (result.stdout, result.stderr) == ("ok heapless\n", "")


def test_a_full_filesystem_is_a_full_heap(
    release: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """The region's tmpfs has room for a part of the heap: allocations go elsewhere, and no access
    faults."""
    script = """
import subprocess, sys
from vicinal import region
made = region.create(sys.argv[1], members=4, heap_bytes=64 << 20)
done = subprocess.run([sys.argv[2], "full"], check=False)
print(done.returncode, region.inspect(sys.argv[1]).reserved_bytes - made.first_bytes < 1 << 20)
"""
    enter = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        enter += ["--user", "--map-root-user"]
    mount = 'mount -t tmpfs -o size=20M vicinal-test "$1" && exec "$2" -c "$3" "$1/region" "$4"'
    file = tmp_path / "region"
    program = release / "tests/heap/preloaded"
    result = subprocess.run(
        [*enter, *("sh", "-c", mount, "sh", tmp_path, sys.executable, script, program)],
        env=environment | {"VICINAL_REGION": f"file:{file}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_SECONDS,
    )
    assert result.stdout.splitlines() == ["ok full", "0 True"], result
    (line,) = result.stderr.splitlines()
    assert "warning: there is no room for" in line
    assert str(file) in line
    assert "remove files" in line


@pytest.mark.parametrize(
    ("value", "good"), [("65536", True), ("64k", True), ("0", False), ("-1", False), ("1T", False)]
)
def test_the_threshold(release: Path, environment: dict[str, str], value: str, good: bool) -> None:
    """An invalid value is reported, and the default is used. The scenario expects the default."""
    result = run_preloaded(release, environment | {"VICINAL_HEAP_THRESHOLD": value}, "place")
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith(f"vicinal: error: VICINAL_HEAP_THRESHOLD={value} ") is not good


def test_another_threshold(release: Path, environment: dict[str, str]) -> None:
    result = run_preloaded(release, environment | {"VICINAL_HEAP_THRESHOLD": "1M"}, "place")
    assert result.returncode == 1
    assert "in_region(large)" in result.stderr


def test_another_allocator_that_comes_first_is_told(
    release: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    source = tmp_path / "other.c"
    source.write_text(
        "#include <stddef.h>\n"
        "void *__libc_malloc(size_t bytes);\n"
        "void *malloc(size_t bytes) { return __libc_malloc(bytes); }\n"
    )
    other = tmp_path / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source], check=True)
    environment["LD_PRELOAD"] = f"{other}:{environment['LD_PRELOAD']}"
    result = run_preloaded(release, environment, "place")
    assert result.returncode == 1
    assert "this program uses another malloc()" in result.stderr


def test_programs_without_the_provider_run_as_ever(environment: dict[str, str]) -> None:
    script = "x = bytearray(10_000_000); x += bytes(10_000_000); print(len(x))"
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == ("20000000\n", "")


# --- jobs ----------------------------------------------------------------------------------

WHERE = """
import sys
from mpi4py import MPI
import numpy as np

def is_in_region(array):
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= array.ctypes.data < end:
                return "/region-" in line
    return False

world = MPI.COMM_WORLD
mine, total = np.full(1 << 18, world.rank + 1.0), np.zeros(1 << 18)
for _ in range(3):
    world.Allreduce(mine, total)
    assert (total == world.size * (world.size + 1) / 2).all()
    mine[:] = world.rank + 1
    peer = (world.rank + 1) % world.size
    world.Sendrecv_replace(mine, peer, source=(world.rank - 1) % world.size)
    assert (mine == (world.rank - 1) % world.size + 1).all()
    mine[:] = world.rank + 1
small = np.zeros(100)
found = [is_in_region(array) for array in (mine, total, small)]
sys.stdout.write(f"{world.rank} {found}\\n")
MPI.Finalize()
mine += total  # still there
"""


@pytest.mark.parametrize(("mpi", "ranks"), square(MPIS, [2, 3], [("mpich", 3), ("openmpi", 2)]))
def test_arrays_of_numpy_lie_in_the_region(
    vicinal: Vicinal, tmp_path: Path, mpi: str, ranks: int
) -> None:
    script = tmp_path / "where.py"
    script.write_text(WHERE)
    options = ["-n", ranks, "--nodes", 2, "--mpi", mpi, "--heap", "region:32M"]
    result = vicinal("run", *options, sys.executable, script)
    assert result.returncode == 0, result.stderr
    expected = [f"{rank} [True, True, False]" for rank in range(ranks)]
    assert sorted(result.stdout.splitlines()) == expected


@pytest.mark.parametrize("heap", [False, True])
def test_heaps_of_a_job_take_no_memory_at_first(heap: bool) -> None:
    """Every job's region has heaps; --heap only sets their size. Its tmpfs is mounted elsewhere."""
    job = Job(["/bin/sleep", "600"], ranks=2, mpi="mpich", heap=heap, heap_bytes=1 << 40)
    with EphemeralCluster(2) as nodes, RunningJob(job, nodes):
        (file,) = nodes.exchange.glob("region*")
        state = region.inspect(file)
    assert state.header.heap_bytes == (1 << 40 if heap else 64 * MIB)
    assert state.header.sparse_heaps
    assert state.reserved_bytes < state.header.first_bytes + MIB


def test_without_the_option_nothing_is_preloaded(vicinal: Vicinal, tmp_path: Path) -> None:
    script = tmp_path / "where.py"
    script.write_text(WHERE)
    result = vicinal("run", "-n", 2, "--mpi", "mpich", sys.executable, script)
    assert result.returncode == 0, result.stderr
    assert "True" not in result.stdout


def test_what_was_preloaded_stays(vicinal: Vicinal, release: Path) -> None:
    other = "/lib/x86_64-linux-gnu/libdl.so.2"
    result = vicinal(
        *("run", "-n", 1, "--heap", "region:1M", "/bin/sh", "-c", 'echo "$LD_PRELOAD"'),
        LD_PRELOAD=other,
        VICINAL_PROVIDER_DIR=str(release / "provider"),
    )
    ours = ":".join(str(release / "provider" / each) for each in (MPI_FILE, HEAP_FILE))
    assert result.stdout == f"{other}:{ours}\n", result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--heap", "here"), "region or region:64M"),
        (("--heap", "region:"), "region or region:64M"),
        (("--heap", "region:much"), "not a size"),
        (("--heap", "region:0"), "0 bytes"),
        (("--heap", "region:5000"), "such as 8 KiB"),
        (("--heap", "region:1025G"), "up to 1024G"),
        (("--heap", "region", "--path", "network"), "no region for a heap"),
    ],
)
def test_what_cannot_be(vicinal: Vicinal, options: tuple[str, ...], words: str) -> None:
    line = error_line(vicinal("run", "-n", 2, *options, "/bin/true"))
    assert words in line


def test_a_given_region_must_have_heaps(vicinal: Vicinal, region_path: Path) -> None:
    given = ("run", "-n", 2, "--region", f"file:{region_path}")
    region.create(region_path)
    line = error_line(vicinal(*given, "--heap", "region", "/bin/true"))
    assert "has no heap" in line
    assert f"vicinal region create {region_path} --heap" in line
    region_path.unlink()
    # What guests' regions have by default is too small for a program's allocations.
    region.create(region_path, heap_bytes=MIB // 2, for_guests=True)
    with pytest.raises(VicinalError, match=r"has heaps of only 512.0 KiB: set region.heap"):
        check_heap(region_path, None, of_cluster=True)
    region_path.unlink()
    region.create(region_path, heap_bytes=MIB)
    assert "has heaps of 1.0 MiB" in error_line(vicinal(*given, "--heap", "region:2M", "/bin/true"))
    assert vicinal(*given, "--heap", "region", "/bin/true").returncode == 0
    assert vicinal(*given, "--heap", "region:1M", "/bin/true").returncode == 0


def test_env_prints_it(vicinal: Vicinal, release: Path) -> None:
    ours = f"{release / 'provider' / HEAP_FILE}"
    printed = vicinal(
        "env", "--mpi", "mpich", "--heap", LD_PRELOAD="/lib/x86_64-linux-gnu/libdl.so.2"
    )
    collectives = f"{release / 'provider' / MPI_FILE}"
    users = "/lib/x86_64-linux-gnu/libdl.so.2"
    assert f"export LD_PRELOAD={users}:{collectives}:{ours}\n" in printed.stdout
    assert f"export LD_PRELOAD={collectives}\n" in vicinal("env", "--mpi", "mpich").stdout
    off = {"VICINAL_COLLECTIVES": "off"}
    assert f"export LD_PRELOAD={collectives}\n" in vicinal("env", "--mpi", "mpich", **off).stdout
    off["VICINAL_WINDOWS"] = "off"
    assert "LD_PRELOAD" not in vicinal("env", "--mpi", "mpich", **off).stdout
    open_mpi = vicinal("env", "--mpi", "openmpi").stdout
    pairs = f"{release / 'provider' / PAIRS_FILE}"
    assert f"export LD_PRELOAD={pairs}:{collectives}\n" in open_mpi
    line = error_line(vicinal("env", "--mpi", "mpich", "--path", "network", "--heap"))
    assert "no region for a heap" in line


def test_names_that_cannot_be_preloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "with a space"
    directory.mkdir()
    (directory / "libvicinal-fi.so").touch()
    monkeypatch.setenv("VICINAL_PROVIDER_DIR", str(directory))
    with pytest.raises(VicinalError, match=f"no {HEAP_FILE}"):
        heap_library()
    (directory / HEAP_FILE).touch()
    with pytest.raises(VicinalError, match="space or a colon"):
        heap_library()
    monkeypatch.setenv("VICINAL_PROVIDER_DIR", str(directory.rename(tmp_path / "plain")))
    ours = str(tmp_path / "plain" / HEAP_FILE)
    set_before = {"LD_PRELOAD": f"a.so b.so:{ours}::c.so"}
    assert preloading([heap_library()], set_before) == f"a.so:b.so:c.so:{ours}"
    assert parse_heap("region") is None
    assert parse_heap("region:3M") == 3 * MIB


# --- software of other projects ------------------------------------------------------------

SUITE = ["test_p2p_buf.*", "test_cco_buf.TestCCOBufWorld.*"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(nodes=2) as opened:
        yield opened


@pytest.mark.long
@pytest.mark.timeout(2 * 400)
@pytest.mark.parametrize("mpi", MPIS)
def test_mpi4pys_tests(cluster: EphemeralCluster, checkout: Path, tmp_path: Path, mpi: str) -> None:
    """Some tests of mpi4py, with a threshold that puts nearly all buffers into the region."""
    job: dict[str, Any] = {
        "ranks": 2,
        "mpi": mpi,
        "heap": True,
        "heap_bytes": 64 * MIB,
        "environment": {"VICINAL_HEAP_THRESHOLD": "4K"},
        "only": SUITE,
        "without": Lists.load(mpi).excluded,
    }
    suite = fetch_suite(checkout / "build" / "mpi4py")
    results = run_suite(job, cluster, suite, tmp_path / "results", 400)
    assert results.trouble == ""
    assert results.having("failed") == set(), results.describe(results.having("failed"))
    assert len(results.having("passed")) > 40


# --- a process that overwrites heaps -------------------------------------------------------


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compile_for_each_mpi(
        Path(__file__).with_name("heap_ranks.c"), tmp_path_factory.mktemp("heap")
    )


def test_a_job_outlives_a_scribbler_over_its_heaps(
    cluster: EphemeralCluster, release: Path, tmp_path: Path
) -> None:
    """Data is corrupted, as expected. Allocation goes on, and nothing crashes or hangs.

    The test uses no MPI library, because MPI libraries keep pointers in large blocks and trust
    them.
    """
    file = cluster.exchange / "heap-scribbled"
    region.create(file, members=6, heap_bytes=4 * MIB)
    output = tmp_path / "output"
    job = Job(
        [str(release / "tests/heap/preloaded"), "scribbled"],
        ranks=3,
        mpi="mpich",
        region=f"file:{EXCHANGE}/{file.name}",
        heap=True,
    )
    try:
        with output.open("wb") as stream, RunningJob(job, cluster, stdout=stream) as running:
            wait_for(output, "ready", 3)
            written = scribble(release, file, "heaps")
            status = running.wait(GUARD_SECONDS)
    finally:
        file.unlink(missing_ok=True)
    assert written > 1000
    said = output.read_text()
    assert status == 0, said
    assert said.count("ok scribbled") == 3
    assert "spoilt=1" in said, said


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_a_job_that_allocates_without_end(
    cluster: EphemeralCluster, programs: dict[str, Path], mpi: str
) -> None:
    """Blocks of all sizes are kept, grown and freed, in a heap that cannot hold all of them."""
    job = Job([str(programs[mpi]), "3"], ranks=3, mpi=mpi, heap=True, heap_bytes=2 * MIB)
    began = time.monotonic()
    done = launch(job, cluster, timeout=GUARD_SECONDS)
    assert time.monotonic() - began >= 3
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("spoilt=0 ") == 3, done.stdout
