"""Collective operations from Fortran: tests/collectives/fortran.F90, by `use mpi` and mpif.h."""

from pathlib import Path

import pytest
from software_support import CHECKOUT, check_success, compile_program, vicinal_run

INTERFACES = {"use-mpi": [], "mpif.h": ["-DWITH_MPIF"]}


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("interface", INTERFACES)
def test_collectives_of_fortran(interface: str, ranks: int, directory: Path) -> None:
    program = directory / "fortran"
    source = CHECKOUT / "tests/collectives/fortran.F90"
    # One procedure takes arguments of different types in mpif.h, which knows no interfaces.
    options = ["-O1", "-fallow-argument-mismatch", "-J", directory, *INTERFACES[interface]]
    compile_program("mpif90.openmpi", *options, source, "-o", program)
    done = vicinal_run([program], ranks=ranks, directory=directory, name="fortran")
    check_success(done)
    good = [f"rank {rank}: good" for rank in range(ranks)]
    assert sorted(done.stdout.splitlines()) == good
