"""The driver of the user's Graph500 reference code: breadth-first searches."""

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import Figure
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.installed import user_program
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.printed import agree, count, number, refused, single, whole_lines
from vicinal.mpi.libraries import Mpi

OPERATIONS = ("bfs",)
_PROGRAM = "graph500_reference_bfs"
_OPTIONS = ("scale", "edgefactor")
_SCALE = 16
_EDGES = 16
_NEAR = 0.02


class Graph500:
    """Means over all searches: of their times, and of traversed edges a second (harmonic mean)."""

    name = "graph500"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the user has the program, linked with this MPI library."""
        del workload
        try:
            user_program(tools, "graph500", (_PROGRAM,), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """A graph of 2^scale vertices with edgefactor times as many edges."""
        options = Options(workload, _OPTIONS)
        options.operation(OPERATIONS)
        options.no_sizes()
        ranks = options.ranks(1)
        if ranks & (ranks - 1):
            raise options.error(
                f"cannot run on {ranks} ranks", "use a power of two, as the reference code requires"
            )
        arguments = [str(options.number("scale", _SCALE, most=48))]
        arguments.append(str(options.number("edgefactor", _EDGES, most=1024)))
        program = str(user_program(tools, "graph500", (_PROGRAM,), mpi))
        return Program([program, *arguments], ranks)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """Read the lines NAME: VALUE at the end; since version 3 names begin with `bfs`."""
        options = Options(workload, _OPTIONS)
        found: dict[str, list[str]] = {}
        for line in whole_lines(stdout):
            name, colon, value = line.partition(":")
            if colon:
                found.setdefault(" ".join(name.split()), []).append(value.strip(" !"))

        def text(name: str) -> str:
            values = found.get(name) or found.get(name.removeprefix("bfs "), [])
            return single("Graph500", name, values, expected=f"one line '{name}: VALUE'")

        asked = {
            "SCALE": options.number("scale", _SCALE),
            "edgefactor": options.number("edgefactor", _EDGES),
            "num_mpi_processes": workload.ranks,
        }
        for name, wanted in asked.items():
            if count("Graph500", text(name)) != wanted:
                raise refused("Graph500", f"{name} is not {wanted}")
        seconds = number("Graph500", text("bfs mean_time"))
        rate = number("Graph500", text("bfs harmonic_mean_TEPS"))
        edges = [number("Graph500", text(f"{which}_nedge")) for which in ("min", "mean", "max")]
        if edges[2] - edges[0] < _NEAR * edges[1]:
            agree("Graph500", "time and rate", rate, edges[1] / seconds, _NEAR)
        figures = [Figure("mean", seconds, "s"), Figure("harmonic mean", rate, "TEPS")]
        facts: dict[str, object] = {
            "program": _PROGRAM,
            "clock": "MPI_Wtime",
            "searches": count("Graph500", text("NBFS")),
            "validated": not text("bfs max_validate").startswith("-"),
        }
        return Measured(figures=figures, facts=facts)
