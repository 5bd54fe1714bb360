"""The driver of HPC Challenge: HPL, a Fourier transform, random access, a transposition.

One program runs all tests, also if only one is wanted, and writes the results into a file. The
first rank's shell prints the file.
"""

import re
from math import isqrt

from vicinal.base.errors import VicinalError
from vicinal.labs.study.file.model import Workload
from vicinal.labs.study.result.layout import TOTAL_TIME, Figure
from vicinal.labs.study.workloads.driver import Measured, Program, Tools
from vicinal.labs.study.workloads.installed import check_family, debian_program
from vicinal.labs.study.workloads.options import Options
from vicinal.labs.study.workloads.printed import agree, count, number, refused, single, whole_lines
from vicinal.mpi.libraries import Mpi, installation

OPERATIONS = ("HPL", "FFT", "RandomAccess", "PTRANS")

_SCRIPT = """
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}
[ "$rank" != 0 ] || rm -f hpccoutf.txt
LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$0" || exit
[ "$rank" != 0 ] || cat hpccoutf.txt
"""
_END = "End of HPC Challenge tests."
_TITLE = re.compile(r"This is the .{1,60} Benchmark version ([0-9][\w.]{0,20})\b.*")
_NEAR = 0.01
"""Relative difference up to which two figures agree that are computed from each other, as
printed."""

_LINES = (
    ("HPLinpack benchmark input file", ""),
    ("Vicinal", ""),
    ("HPL.out", "output file name (if any)"),
    ("8", "device out (6=stdout,7=stderr,file)"),
    ("1", "# of problem sizes (N)"),
    ("{size}", "Ns"),
    ("1", "# of NBs"),
    ("{block}", "NBs"),
    ("0", "PMAP (0=row-,1=column-major)"),
    ("1", "# of process grids (P x Q)"),
    ("{rows}", "Ps"),
    ("{columns}", "Qs"),
    ("16.0", "threshold"),
    ("1", "# of panel fact"),
    ("2", "PFACTs (0=left, 1=Crout, 2=Right)"),
    ("1", "# of recursive stopping criterium"),
    ("4", "NBMINs (>= 1)"),
    ("1", "# of panels in recursion"),
    ("2", "NDIVs"),
    ("1", "# of recursive panel fact."),
    ("1", "RFACTs (0=left, 1=Crout, 2=Right)"),
    ("1", "# of broadcast"),
    ("{broadcast}", "BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)"),
    ("1", "# of lookahead depth"),
    ("1", "DEPTHs (>=0)"),
    ("2", "SWAP (0=bin-exch,1=long,2=mix)"),
    ("64", "swapping threshold"),
    ("0", "L1 in (0=transposed,1=no-transposed) form"),
    ("0", "U  in (0=transposed,1=no-transposed) form"),
    ("1", "Equilibration (0=no,1=yes)"),
    ("8", "memory alignment in double (> 0)"),
    ("#", "this line is not read"),
    ("0", "Number of additional problem sizes for PTRANS"),
    ("1200", "values of N"),
    ("0", "number of additional blocking sizes for PTRANS"),
    ("40", "values of NB"),
)


class Hpcc:
    """Values that the program computed: GFLOPS, updates a second."""

    name = "hpcc"

    def missing(self, workload: Workload, mpi: Mpi, tools: Tools) -> str | None:
        """Whether the program exists, and is linked with this MPI library."""
        del workload
        try:
            check_family(debian_program(tools, "hpcc", "hpcc", "hpcc"), mpi)
        except VicinalError as error:
            return str(error)
        return None

    def program(self, workload: Workload, mpi: Mpi, tools: Tools) -> Program:
        """Start the program through a shell on each rank, because then no launcher examines its MPI
        library.
        """
        options = Options(workload, ("size", "block", "grid", "broadcast"))
        options.operation(OPERATIONS)
        options.no_sizes()
        ranks = options.ranks(1)
        text = hpcc_input(
            size=options.number("size", 1000, least=1, most=1_000_000),
            block=options.number("block", 80, most=1024),
            grid=_grid(options, ranks),
            broadcast=options.number("broadcast", 1, least=0, most=5),
        )
        program = debian_program(tools, "hpcc", "hpcc", "hpcc")
        return Program(
            ["/bin/sh", "-c", _SCRIPT, str(program), str(installation(mpi).library.parent)],
            ranks,
            variables={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            files={"hpccinf.txt": text},
        )

    def read(self, workload: Workload, stdout: str) -> Measured:
        """The figures of the wanted operation, from the summary at the end."""
        lines = whole_lines(stdout)
        if _END not in lines:
            raise refused("hpcc", "it did not finish")
        values = _Values(lines)
        if values.count("CommWorldProcs") != workload.ranks:
            raise refused("hpcc", f"it did not run on {workload.ranks} ranks")
        if values.text("Success") != "1":
            raise refused("hpcc", "it reports that a test failed")
        figures = _READERS[workload.operation](values, lines)
        facts: dict[str, object] = {
            "program": "hpcc",
            "clock": "MPI_Wtime",
            "hpl_size": values.count("HPL_N"),
            "hpl_grid": f"{values.count('HPL_nprow')}x{values.count('HPL_npcol')}",
        }
        titles = [found[1] for line in lines if (found := _TITLE.fullmatch(line))]
        if titles:
            facts["version"] = titles[0]
        return Measured(figures=figures, facts=facts)


class _Values:
    """The lines NAME=VALUE of the summary."""

    def __init__(self, lines: list[str]) -> None:
        self._found: dict[str, list[str]] = {}
        for line in lines:
            name, equals, value = line.partition("=")
            if equals and name.isidentifier():
                self._found.setdefault(name, []).append(value)

    def text(self, name: str) -> str:
        found = self._found.get(name, [])
        return single("hpcc", name, found, expected=f"one line '{name}=VALUE' in its summary")

    def number(self, name: str, *, zero: bool = False) -> float:
        return number("hpcc", self.text(name), zero=zero)

    def count(self, name: str) -> int:
        return count("hpcc", self.text(name))


def _hpl(values: _Values, lines: list[str]) -> list[Figure]:
    size, seconds = values.count("HPL_N"), values.number("HPL_time")
    gflops = values.number("HPL_Tflops") * 1000
    agree(
        "hpcc", "HPL's time and rate", (2 / 3 * size + 1.5) * size**2 / seconds / 1e9, gflops, _NEAR
    )
    verdicts = [line.split()[-1] for line in lines if line.startswith("||Ax-b||_oo")]
    if not verdicts or set(verdicts) != {"PASSED"}:
        raise refused("hpcc", "HPL's solution did not pass its check")
    return [Figure("HPL", gflops, "GFLOPS"), Figure(TOTAL_TIME, seconds, "s")]


def _fft(values: _Values, lines: list[str]) -> list[Figure]:
    del lines
    if not values.number("MPIFFT_maxErr", zero=True) < 1e-10:
        raise refused("hpcc", "the Fourier transform's error is too large")
    parts = [values.number(f"MPIFFT_time{part}", zero=True) for part in range(7)]
    gflops = values.number("MPIFFT_Gflops")
    return [Figure("FFT", gflops, "GFLOPS"), Figure(TOTAL_TIME, sum(parts), "s")]


def _random_access(values: _Values, lines: list[str]) -> list[Figure]:
    del lines
    if values.number("MPIRandomAccess_ErrorsFraction", zero=True) > 0.01:
        raise refused("hpcc", "RandomAccess lost more updates than its rules allow")
    updates, seconds = values.number("MPIRandomAccess_GUPs"), values.number("MPIRandomAccess_time")
    made = values.count("MPIRandomAccess_ExeUpdates") / seconds / 1e9
    agree("hpcc", "RandomAccess' time and rate", made, updates, _NEAR)
    return [Figure("RandomAccess", updates, "GUP/s"), Figure(TOTAL_TIME, seconds, "s")]


def _ptrans(values: _Values, lines: list[str]) -> list[Figure]:
    del lines
    if not values.number("PTRANS_residual", zero=True) < 16:
        raise refused("hpcc", "the transposition's residual is too large")
    seconds = values.number("PTRANS_time")
    return [
        Figure("PTRANS", values.number("PTRANS_GBs"), "GB/s"),
        Figure(TOTAL_TIME, seconds, "s"),
    ]


_READERS = {"HPL": _hpl, "FFT": _fft, "RandomAccess": _random_access, "PTRANS": _ptrans}


def _grid(options: Options, ranks: int) -> tuple[int, int]:
    """Rows and columns of processes: as the workload says, or as square as possible."""
    given = options.workload.options.get("grid")
    if given is None:
        rows = next(rows for rows in range(isqrt(ranks), 0, -1) if ranks % rows == 0)
        return rows, ranks // rows
    found = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", str(given), re.ASCII)
    if found is None or int(found[1]) * int(found[2]) != ranks:
        raise options.error(
            f"has grid: {given!r}", f"write rows x columns of {ranks} ranks, such as 1x{ranks}"
        )
    return int(found[1]), int(found[2])


def hpcc_input(*, size: int, block: int, grid: tuple[int, int], broadcast: int) -> str:
    """The input file for HPL's matrix of `size` rows, in blocks of `block`, over a grid of
    processes.

    The other tests use problems of about the same size.
    """
    text = "\n".join(f"{value:<12} {meaning}".rstrip() for value, meaning in _LINES) + "\n"
    return text.format(size=size, block=block, rows=grid[0], columns=grid[1], broadcast=broadcast)
