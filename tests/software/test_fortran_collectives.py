"""Collectives from Fortran: tests/collectives/fortran*.F90, by each of the interfaces of MPI."""

from pathlib import Path

import pytest
from software_support import CHECKOUT, check_success, compile_program, vicinal_run

INTERFACES = {"use-mpi": [], "mpif.h": ["-DWITH_MPIF"], "mpi_f08": ["-DWITH_F08"]}


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("source", "interface"),
    [
        *(("fortran", interface) for interface in ("use-mpi", "mpif.h")),
        *(("fortran_varying", interface) for interface in INTERFACES),
    ],
)
def test_collectives_of_fortran(source: str, interface: str, ranks: int, directory: Path) -> None:
    program = directory / source
    # One procedure takes arguments of different types in mpif.h, which knows no interfaces.
    options = ["-O1", "-fallow-argument-mismatch", "-J", directory, *INTERFACES[interface]]
    text = CHECKOUT / f"tests/collectives/{source}.F90"
    compile_program("mpif90.openmpi", *options, text, "-o", program)
    done = vicinal_run([program], ranks=ranks, directory=directory, name=source)
    check_success(done)
    good = [f"rank {rank}: good" for rank in range(ranks)]
    assert sorted(done.stdout.splitlines()) == good
