"""The driver of the Intel MPI benchmarks, where the user has them: means, the programs' own."""

from vicinal.errors import VicinalError
from vicinal.mpi.libraries import Mpi
from vicinal.study.file.model import Workload
from vicinal.study.result.layout import Figure
from vicinal.study.workloads.driver import Measured, Program, Tools
from vicinal.study.workloads.installed import user_program
from vicinal.study.workloads.options import Options
from vicinal.study.workloads.printed import count, number, refused, same_sizes, single, whole_lines

_BENCHMARKS = {
    "latency": "PingPong",
    "bandwidth": "Uniband",
    "bidirectional": "Biband",
    "barrier": "Barrier",
    "bcast": "Bcast",
    "allgather": "Allgather",
    "allreduce": "Allreduce",
    "alltoall": "Alltoall",
}
OPERATIONS = tuple(_BENCHMARKS)
_PAIRS = ("latency", "bandwidth", "bidirectional")
_SIZES_FILE = "imb-sizes.txt"

_MEANING = {
    "t[usec]": ("mean", "µs", 1.0),
    "t_avg[usec]": ("mean", "µs", 1.0),
    "Msg/sec": ("mean", "M/s", 1e-6),
}
"""Its least and greatest times are ranks' means, too, and are not read; nor are its MB, which are
2^20 bytes in older versions: bandwidth comes from the rate of messages."""
_COUNTS = ("#bytes", "#repetitions")


class Imb:
    """Means over all iterations."""

    name = "imb"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the user has the program, linked with that MPI."""
        del workload
        try:
            user_program(tools, "imb", ("IMB-MPI1",), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """One start for all sizes, which it reads from a file."""
        options = Options(workload)
        operation = options.operation(OPERATIONS)
        ranks = options.ranks(
            2, 2 if operation == "latency" else None, multiple=2 if operation in _PAIRS else 1
        )
        arguments = [_BENCHMARKS[operation], "-npmin", str(ranks)]
        arguments += ["-iter", str(workload.samples), "-time", f"{workload.seconds:g}"]
        files: dict[str, str] = {}
        if operation == "barrier":
            options.no_sizes()
        elif workload.sizes:
            files[_SIZES_FILE] = "".join(f"{size}\n" for size in workload.sizes)
            arguments += ["-msglen", _SIZES_FILE]
        program = str(user_program(tools, "imb", ("IMB-MPI1",), mpi))
        return Program([program, *arguments], ranks, files=files)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """The table under the benchmark's name."""
        lines = [" ".join(line.split()) for line in whole_lines(stdout)]
        wanted = f"# Benchmarking {_BENCHMARKS[workload.operation]}"
        at = int(single("IMB", wanted, [str(at) for at, e in enumerate(lines) if e == wanted]))
        if f"# #processes = {workload.ranks}" not in lines[at:]:
            raise refused("IMB", f"it did not run on {workload.ranks} ranks")
        head = next((n for n in range(at, len(lines)) if "#repetitions" in lines[n].split()), None)
        if head is None or "# All processes entering MPI_Finalize" not in lines[head:]:
            raise refused("IMB", "it did not come to its end")
        columns = lines[head].split()
        figures: list[Figure] = []
        sizes: list[int] = []
        for line in lines[head + 1 :]:
            if not line or line.startswith("#"):
                break
            row = line.split()
            if len(row) != len(columns):
                raise refused("IMB", f"a line of {len(columns)} columns has {len(row)}")
            cells = dict(zip(columns, row, strict=True))
            size = count("IMB", cells["#bytes"]) if "#bytes" in cells else None
            sizes += [] if size is None else [size]
            if size is None or not workload.sizes or size in workload.sizes:
                figures += _figures(cells, size)
        if columns[0] == "#bytes":
            same_sizes("IMB", workload, sizes)
        if not figures:
            raise refused("IMB", "it has no figures")
        suite = next((line.strip("# ") for line in lines if "MPI Benchmarks" in line), "IMB")
        return Measured(figures=figures, facts={"program": suite, "clock": "MPI_Wtime"})


def _figures(cells: dict[str, str], size: int | None) -> list[Figure]:
    found = []
    for column, cell in cells.items():
        if column in _COUNTS:
            count("IMB", cell)
        elif column in _MEANING:
            name, unit, factor = _MEANING[column]
            found.append(Figure(name, number("IMB", cell) * factor, unit, size))
    if "Msg/sec" in cells and size is not None:
        rate = number("IMB", cells["Msg/sec"])
        found.append(Figure("mean", rate * size / 1e6, "MB/s", size))
    return found
