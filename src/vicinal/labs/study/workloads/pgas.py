"""The driver of PGAS languages: OSU's programs for UPC and OpenSHMEM, where the user has them.

They are started as MPI programs are: with GASNet's MPI conduit, or an OpenSHMEM that is built on
MPI. Neither library that Vicinal installs has OpenSHMEM, and Debian's goes past libfabric.
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
        """Whether the user has the program, linked with that MPI or none."""
        try:
            if workload.operation in _PROGRAMS:
                user_program(tools, "osu", (_PROGRAMS[workload.operation],), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """On two ranks, for all of its sizes: it takes no switch for them.

        OpenSHMEM's take their memory from the heap.
        """
        options = Options(workload)
        operation = options.operation(OPERATIONS)
        ranks = options.ranks(2, 2)
        osu_sizes(options)
        arguments = ["heap"] if operation.startswith("shmem") else []
        program = str(user_program(tools, "osu", (_PROGRAMS[operation],), mpi))
        return Program([program, *arguments], ranks)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """A table as that of OSU's MPI programs."""
        return read_osu(_PROGRAMS[workload.operation], workload, stdout)
