"""SPEC MPI 2007, which Vicinal does not start. Studies that name it say so, and why."""

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.mpi.libraries import Mpi

_CAUSE = "SPEC MPI 2007 must be bought, and only its own runspec starts and checks its programs"
_REMEDY = "run it with `submit = vicinal run -n $ranks $command`, and compare its reports by hand"


class Spec:
    """SPEC MPI 2007 is always missing; the error says why."""

    name = "spec"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str:
        del workload, mpi, tools
        return f"{_CAUSE}: {_REMEDY}"

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        del workload, mpi, tools
        raise VicinalError(_CAUSE, _REMEDY)

    def read(self, workload: Workload, stdout: str) -> Measured:
        del workload, stdout
        raise VicinalError(_CAUSE, _REMEDY)
