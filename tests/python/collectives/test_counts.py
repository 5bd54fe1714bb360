"""`vicinal run --paths` counts the collectives and one-sided operations that need no messages."""

from pathlib import Path

import pytest
from command_support import Vicinal
from launch_support import MPIS, compile_for_each_mpi

from vicinal.base.sizes import show_size

RANKS = 3
REDUCTIONS = 100
BROADCASTS = 50
BROADCAST_BYTES = 40
PUTS = 30

CALLS = REDUCTIONS + BROADCASTS
"""On a communicator. Its first collective is a reduction, so all go through the region."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    source = Path(__file__).with_name("counted_collectives.c")
    return compile_for_each_mpi(source, tmp_path_factory.mktemp("counted"))


def calls(stderr: str) -> dict[tuple[str, int], tuple[int, str]]:
    """What the table says: by kind and rank, the number of calls and the volume."""
    rows = [line.replace("│", " ").split() for line in stderr.splitlines()]
    kinds = ("collectives", "one-sided")
    return {
        (row[4], int(row[0])): (int(row[5]), " ".join(row[7:]))
        for row in rows
        if len(row) > 7 and row[4] in kinds
    }


@pytest.mark.parametrize("mpi", MPIS)
def test_collectives_and_one_sided_operations_are_counted(
    vicinal: Vicinal, programs: dict[str, Path], mpi: str
) -> None:
    run = ("run", "-n", RANKS, "--mpi", mpi, "--paths")
    result = vicinal(*run, programs[mpi], VICINAL_WINDOWS="on")
    assert result.returncode == 0, result.stderr
    shown = calls(result.stderr)
    for rank in range(RANKS):
        number, volume = shown["collectives", rank]
        assert number == CALLS
        own = REDUCTIONS * 8 + (BROADCASTS * BROADCAST_BYTES if rank == 0 else 0)
        assert volume == show_size(own)
        assert shown["one-sided", rank] == (PUTS, show_size(PUTS * 4))


@pytest.mark.parametrize("mpi", MPIS)
def test_the_calls_of_all_threads_are_counted(
    vicinal: Vicinal, programs: dict[str, Path], mpi: str
) -> None:
    run = ("run", "-n", RANKS, "--mpi", mpi, "--paths")
    result = vicinal(*run, programs[mpi], "threads", VICINAL_WINDOWS="off")
    assert result.returncode == 0, result.stderr
    shown = calls(result.stderr)
    assert [shown["collectives", rank][0] for rank in range(RANKS)] == [2 * CALLS] * RANKS
    assert ("one-sided", 0) not in shown
