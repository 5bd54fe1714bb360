"""Helper VFs of the tests of workload drivers."""

import subprocess
from pathlib import Path
from typing import Any

from vicinal.labs.study.file.model import Quantity, Workload
from vicinal.labs.study.workloads import drivers
from vicinal.labs.study.workloads.driver import Measured
from vicinal.mpi.libraries import Mpi, installation

RECORDED = Path(__file__).parents[1] / "recorded"
COMPOSED = Path(__file__).with_name("composed")


def workload(driver: str, operation: str, **values: Any) -> Workload:
    """A workload with a generated name and short defaults."""
    given: dict[str, Any] = {"quantity": Quantity.LATENCY, "samples": 50, "seconds": 0.2}
    return Workload(
        name=f"a-{operation}", title=operation, driver=driver, operation=operation, **given | values
    )


def recorded(name: str) -> str:
    """The output of a real program; the README beside it says how it was recorded."""
    return (RECORDED / name).read_text()


def composed(name: str) -> str:
    """Composed output of a program that the tests do not have; the README names its source."""
    return (COMPOSED / name).read_text()


def read(asked: Workload, text: str) -> Measured:
    """Read a program's output with the workload's driver."""
    return drivers()[asked.driver].read(asked, text)


def same(left: Measured, right: Measured) -> bool:
    """Whether both have the same figures and samples."""
    return tuple(left.figures) == tuple(right.figures) and [
        (each.size, each.messages, each.nanoseconds.tolist()) for each in left.series
    ] == [(each.size, each.messages, each.nanoseconds.tolist()) for each in right.series]


def figures(measured: Measured) -> dict[tuple[str, int | None, str], float]:
    """Values by name, size and unit."""
    return {(each.name, each.size, each.unit): each.value for each in measured.figures}


def stand_in(directory: Path, name: str, mpi: Mpi) -> Path:
    """A stand-in for a program, linked with the MPI library and without any VF."""
    source = directory / f"{name}.c"
    source.write_text("#include <mpi.h>\nint main(void) { return MPI_Finalize(); }\n")
    compiler = installation(mpi).prefix / "bin" / "mpicc"
    subprocess.run([compiler, "-o", directory / name, source], check=True)
    return directory / name
