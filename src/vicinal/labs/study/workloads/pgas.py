"""The driver of PGAS languages: the user's OSU programs for UPC and OpenSHMEM.

They start as MPI programs, with GASNet's MPI conduit or an OpenSHMEM that is built on MPI. Neither
of Vicinal's MPI libraries includes OpenSHMEM, and Debian's OpenSHMEM does not use libfabric.
"""

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.installed import user_program
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.osu import osu_sizes, read_osu
from vicinal.mpi.libraries import Mpi

_PROGRAMS = {
    "upc-memget": "osu_upc_memget",
    "upc-memput": "osu_upc_memput",
    "shmem-get": "osu_oshm_get",
    "shmem-put": "osu_oshm_put",
}
OPERATIONS = tuple(_PROGRAMS)


class Pgas:
    """Means over all iterations."""

    name = "pgas"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the user has the program, linked with this MPI library or with none."""
        try:
            if workload.operation in _PROGRAMS:
                user_program(tools, "osu", (_PROGRAMS[workload.operation],), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """Start on two ranks for all sizes, because the program has no switch for sizes.

        OpenSHMEM programs take their memory from the heap.
        """
        options = Options(workload)
        operation = options.operation(OPERATIONS)
        ranks = options.ranks(2, 2)
        osu_sizes(options)
        arguments = ["heap"] if operation.startswith("shmem") else []
        program = str(user_program(tools, "osu", (_PROGRAMS[operation],), mpi))
        return Program([program, *arguments], ranks)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """Read a table, which has the form of OSU's MPI programs."""
        return read_osu(_PROGRAMS[workload.operation], workload, stdout)
