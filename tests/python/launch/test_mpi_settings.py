"""Spawning and shared windows behave as docs/reference/mpi-libraries.md says."""

import shutil
import sys
from pathlib import Path

import pytest
from command_support import CHECKOUT, Vicinal
from launch_support import MPIS, REGION, compile_for_each_mpi

SUPPORT = Path(__file__).resolve().parents[1] / "support"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compile_for_each_mpi(SUPPORT / "pair_ranks.c", tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("path", ["network", REGION])
def test_accumulated_pairs_are_right(
    vicinal: Vicinal, pairs: dict[str, Path], mpi: str, path: str
) -> None:
    """One pair and many, by accumulate, get_accumulate and fetch_and_op: osc rdma errs in some."""
    done = vicinal("run", "-n", 2, "--path", path, pairs[mpi])
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stderr


@pytest.mark.parametrize("mpi", MPIS)
def test_accumulated_pairs_of_a_python_program_are_right(vicinal: Vicinal, mpi: str) -> None:
    """Python loads libmpi only for mpi4py, so an earlier library finds no libmpi behind itself."""
    program = (sys.executable, SUPPORT / "pair_ranks.py")
    done = vicinal("run", "-n", 2, "--mpi", mpi, *program)
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stderr


@pytest.mark.parametrize("path", [REGION])
def test_accumulated_pairs_of_short_are_right_or_an_error(
    vicinal: Vicinal, pairs: dict[str, Path], path: str
) -> None:
    done = vicinal("run", "-n", 2, "--path", path, pairs["mpich"], "short")
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stderr
    refused = vicinal("run", "-n", 2, "--path", path, pairs["openmpi"], "short")
    assert refused.returncode != 0
    assert "Open MPI gets one-sided accumulates of MPI_SHORT_INT wrong" in refused.stderr
    assert "wrong" not in refused.stdout
    alone = vicinal("run", "-n", 2, "--path", "shared-memory", pairs["openmpi"], "short")
    assert (alone.returncode, alone.stdout) == (0, "0 wrong\n"), alone.stderr


def test_a_library_that_cannot_be_preloaded_is_said(vicinal: Vicinal, tmp_path: Path) -> None:
    """LD_PRELOAD cannot name this path. Sums may then be wrong, but a message says so."""
    spaced = tmp_path / "a directory"
    spaced.mkdir()
    for library in (CHECKOUT / "build/release/provider").glob("*.so"):
        shutil.copy(library, spaced)
    for mpi, told in (("openmpi", True), ("mpich", False)):
        done = vicinal("run", "-n", 1, "--mpi", mpi, "true", VICINAL_PROVIDER_DIR=str(spaced))
        assert done.returncode == 0, done.stderr
        printed = vicinal("env", "--mpi", mpi, VICINAL_PROVIDER_DIR=str(spaced))
        assert "LD_PRELOAD" not in printed.stdout
        for stderr in (done.stderr, printed.stderr):
            assert ("may be wrong in Open MPI: LD_PRELOAD cannot name" in stderr) is told


def test_open_mpi_starts_ranks_without_threads(vicinal: Vicinal) -> None:
    """Open MPI's daemon loses the end of a short process that its own thread started, and hangs."""
    status = "sed -n 's/^Threads:\\t//p' /proc/$PPID/status"
    run = ("run", "-n", 1, "--mpi", "openmpi", "sh", "-c", status)
    assert int(vicinal(*run).stdout) < 8
    assert int(vicinal(*run, PRTE_MCA_odls_base_max_threads="16").stdout) > 16


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compile_for_each_mpi(SUPPORT / "window_ranks.c", tmp_path_factory.mktemp("window"))


@pytest.mark.long
@pytest.mark.parametrize(
    "path",
    [["shared-memory"], ["region", "--nodes", 2], ["network", "--nodes", 2]],
    ids=lambda path: path[0],
)
def test_what_lets_open_mpi_5_spawn(
    vicinal: Vicinal, tmp_path_factory: pytest.TempPathFactory, path: list[str | int]
) -> None:
    """One spawn in a job works. After several, Open MPI 5.0.11 may fail, over its own TCP too."""
    programs = compile_for_each_mpi(SUPPORT / "spawn_ranks.c", tmp_path_factory.mktemp("spawn"))
    run = ("run", "-n", 2, "--path", *path, "--timeout", 60)
    allowed = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    for mpi, variables in (("mpich", {}), ("openmpi", allowed)):
        done = vicinal(*run, programs[mpi], **variables)
        if "MPIDI_UCX_insert_upid" in done.stderr:  # see below
            done = vicinal(*run, programs[mpi], **variables)
        # MPICH's shared memory is UCX's here. If another process ended before UCX opened that
        # process's memory, UCX writes to a rank's output (one of four runs) or fails (once,
        # on a busy machine).
        lines = [line for line in done.stdout.splitlines() if " UCX " not in line]
        assert lines == ["spawned 2"], done.stderr


@pytest.mark.parametrize(
    ("mpi", "variables", "shared"),
    [
        ("mpich", {}, 1),
        ("mpich", {"MPIR_CVAR_NOLOCAL": "0"}, 2),
        ("mpich", {"VICINAL_WINDOWS": "on"}, 2),
        ("openmpi", {}, 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", [REGION])
def test_shared_windows_within_a_node(
    vicinal: Vicinal,
    window: dict[str, Path],
    path: str,
    mpi: str,
    variables: dict[str, str],
    shared: int,
) -> None:
    """Beside the region, MPICH has none of its own, and a message says so. The user decides."""
    done = vicinal("run", "-n", 2, "--nodes", 1, "--path", path, window[mpi], **variables)
    assert done.returncode == 0, done.stderr
    first = [0, 0] if shared == 2 else [0, 1]
    wanted = [f"{rank} shares with {shared} from {first[rank]}" for rank in range(2)]
    assert sorted(done.stdout.splitlines()) == wanted
    assert ("get no shared windows" in done.stderr) == (shared == 1)
