"""What the tests of workload drivers share."""

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
    """One with a name of its own; times are in the test's hands."""
    given: dict[str, Any] = {"quantity": Quantity.LATENCY, "samples": 50, "seconds": 0.2}
    return Workload(
        name=f"a-{operation}", title=operation, driver=driver, operation=operation, **given | values
    )


def recorded(name: str) -> str:
    """What a real program printed, as the README beside it says."""
    return (RECORDED / name).read_text()


def composed(name: str) -> str:
    """What a program might print that is not to be had here, as the README beside it says."""
    return (COMPOSED / name).read_text()


def read(asked: Workload, text: str) -> Measured:
    """By the workload's driver."""
    return drivers()[asked.driver].read(asked, text)


def same(left: Measured, right: Measured) -> bool:
    """Whether both say the same."""
    return tuple(left.figures) == tuple(right.figures) and [
        (each.size, each.messages, each.nanoseconds.tolist()) for each in left.series
    ] == [(each.size, each.messages, each.nanoseconds.tolist()) for each in right.series]


def figures(measured: Measured) -> dict[tuple[str, int | None, str], float]:
    """Values by name, size and unit."""
    return {(each.name, each.size, each.unit): each.value for each in measured.figures}


def stand_in(directory: Path, name: str, mpi: Mpi) -> Path:
    """A program that is none but in what it is linked with."""
    source = directory / f"{name}.c"
    source.write_text("#include <mpi.h>\nint main(void) { return MPI_Finalize(); }\n")
    compiler = installation(mpi).prefix / "bin" / "mpicc"
    subprocess.run([compiler, "-o", directory / name, source], check=True)
    return directory / name
