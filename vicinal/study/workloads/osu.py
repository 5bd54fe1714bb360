"""The driver of the OSU micro-benchmarks, where the user has them: means, the programs' own.

What they print as least and greatest are those of the ranks' means; of single iterations they keep
nothing, but for the percentiles that newer ones can print.
"""

import re

from vicinal.errors import VicinalError
from vicinal.mpi.libraries import Mpi
from vicinal.study.file.model import Workload
from vicinal.study.result.layout import Figure
from vicinal.study.workloads.driver import Measured, Program, Tools
from vicinal.study.workloads.installed import user_program
from vicinal.study.workloads.options import Options
from vicinal.study.workloads.printed import count, number, refused, same_sizes, single, whole_lines

_PAIRS = {"latency": "osu_latency", "bandwidth": "osu_bw", "bidirectional": "osu_bibw"}
_MANY = {"multi-latency": "osu_multi_lat", "multi-bandwidth": "osu_mbw_mr"}
_REMOTE = {
    "put": "osu_put_latency",
    "get": "osu_get_latency",
    "accumulate": "osu_acc_latency",
    "put-bandwidth": "osu_put_bw",
    "get-bandwidth": "osu_get_bw",
    "put-bidirectional": "osu_put_bibw",
}
_COLLECTIVES = {
    name: f"osu_{name}" for name in ("barrier", "bcast", "allgather", "allreduce", "alltoall")
}
_PROGRAMS = {**_PAIRS, **_MANY, **_REMOTE, **_COLLECTIVES}
OPERATIONS = tuple(_PROGRAMS)

_COLUMN = re.compile(
    r"Size|Avg Latency\(us\)|Min Latency\(us\)|Max Latency\(us\)|Latency \(us\)"
    r"|P[0-9]+ Tail Lat\(us\)|P[0-9]+ Tail BW\(MB/s\)|Bandwidth \(MB/s\)|MB/s|Messages/s"
    r"|Iterations"
)
_MEANING = {
    "Latency (us)": ("mean", "µs", 1.0),
    "Avg Latency(us)": ("mean", "µs", 1.0),
    "P50 Tail Lat(us)": ("median", "µs", 1.0),
    "P90 Tail Lat(us)": ("P90", "µs", 1.0),
    "P99 Tail Lat(us)": ("P99", "µs", 1.0),
    "Bandwidth (MB/s)": ("mean", "MB/s", 1.0),
    "MB/s": ("mean", "MB/s", 1.0),
    "Messages/s": ("mean", "M/s", 1e-6),
}
"""Name and unit of a column's figures, and what they are multiplied by. Its MB are 10^6 bytes."""
_TITLE = re.compile(r"# OSU .{1,80} Test v[0-9][\w.]{0,20}\s*")


class Osu:
    """Means over all iterations."""

    name = "osu"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the user has the program, linked with that MPI."""
        try:
            if workload.operation in _PROGRAMS:
                user_program(tools, "osu", (_PROGRAMS[workload.operation],), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """One start for all sizes from the least to the greatest, of which those between count."""
        options = Options(workload, ("window", "synchronization", "percentiles"))
        operation = options.operation(OPERATIONS)
        collective = operation in _COLLECTIVES
        most = None if collective or operation in _MANY else 2
        ranks = options.ranks(2, most, multiple=1 if collective else 2)
        arguments = ["-i", str(workload.samples), "-x", str(max(1, workload.samples // 10))]
        if operation == "barrier":
            options.no_sizes()
        arguments += osu_sizes(options)
        if options.flag("percentiles"):
            arguments.append("-z")
        arguments += _switches(options, operation)
        program = str(user_program(tools, "osu", (_PROGRAMS[operation],), mpi))
        return Program([program, *arguments], ranks)

    def read(self, workload: Workload, stdout: str) -> Measured:
        """Its table."""
        return read_osu(_PROGRAMS[workload.operation], workload, stdout)


def osu_sizes(options: Options) -> list[str]:
    """The switch for the least and the greatest size: the programs go through powers of two."""
    sizes = options.workload.sizes
    if any(size < 1 or size & (size - 1) for size in sizes):
        raise options.error(
            "has a size that is no power of two", "the OSU programs measure powers of two only"
        )
    return ["-m", f"{min(sizes)}:{max(sizes)}"] if sizes else []


def _switches(options: Options, operation: str) -> list[str]:
    found: list[str] = []
    if options.given("window"):
        if "bandwidth" not in operation and "bidirectional" not in operation:
            raise options.error(f"has the option window, and {operation} has none", "leave it out")
        found += ["-W", str(options.number("window", 64, most=65536))]
    if options.given("synchronization"):
        if operation not in _REMOTE:
            raise options.error(
                f"has the option synchronization, and {operation} has none", "leave it out"
            )
        ways = ("flush", "lock", "pscw", "fence")
        found += ["-s", options.choice("synchronization", ways, "flush")]
    return found


def read_osu(program: str, workload: Workload, stdout: str) -> Measured:
    """The table that all OSU programs print, with the title over it.

    Raises VicinalError where it is not whole, or lacks a size that was asked for.
    """
    lines = whole_lines(stdout)
    titles = {line.strip() for line in lines if _TITLE.fullmatch(line)}
    title = single(program, "what it is", sorted(titles)).removeprefix("# ")
    heads = {at: _COLUMN.findall(line) for at, line in enumerate(lines) if _is_head(line)}
    at = int(single(program, "its columns", [str(head) for head in heads]))
    columns = heads[at]
    rows = [line.split() for line in lines[at + 1 :] if line[:1].isdigit() or line[:1] == " "]
    rows = [row for row in rows if row]
    figures = [figure for row in rows for figure in _figures(program, columns, row)]
    if columns[0] == "Size":
        same_sizes(program, workload, [count(program, row[0]) for row in rows])
    elif len(rows) != 1:
        raise refused(program, f"it has {len(rows)} lines of one figure")
    wanted = set(workload.sizes)
    figures = [each for each in figures if not wanted or each.size in wanted]
    if not figures:
        raise refused(program, "it has no figures")
    return Measured(figures=figures, facts={"program": title, "clock": "MPI_Wtime"})


def _is_head(line: str) -> bool:
    """Known columns and nothing else."""
    return (
        line.startswith("# ")
        and _COLUMN.search(line) is not None
        and not (_COLUMN.sub("", line[1:]).strip())
    )


def _figures(program: str, columns: list[str], row: list[str]) -> list[Figure]:
    if len(row) != len(columns):
        raise refused(program, f"a line of {len(columns)} columns has {len(row)}")
    size = count(program, row[0]) if columns[0] == "Size" else None
    found = []
    for column, cell in zip(columns, row, strict=True):
        if column in _MEANING:
            name, unit, factor = _MEANING[column]
            found.append(Figure(name, number(program, cell) * factor, unit, size))
    return found
