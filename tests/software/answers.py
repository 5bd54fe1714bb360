"""Read the programs' answers: each function raises WrongAnswerError unless all is right.

A missing answer counts as wrong, so output that ends early cannot pass.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

DOUBLE_EPSILON = 2.0**-52


class WrongAnswerError(AssertionError):
    """A program's own check failed, or the program ended before the check."""


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise WrongAnswerError(reason)


_NETPIPE_LINE = re.compile(r"^\s*(\d+):\s+(\d+) bytes\s+(\d+) times -->\s+(.*?)\s*$", re.MULTILINE)
_NETPIPE_MODE = re.compile(
    r"(?:Using synchronous sends|Preposting asynchronous receives"
    r"|Receive using the ANY_SOURCE flag)\n"
)


def _netpipe_rows(output: str) -> list[tuple[str, ...]]:
    """The number, size, times and result of each test, as rank 0 wrote them.

    Every rank prints its mode, and another rank's line may interrupt a line of rank 0.
    """
    return _NETPIPE_LINE.findall(_NETPIPE_MODE.sub("", output))


def netpipe_integrity(output: str, upper: int) -> int:
    """Check a run of NetPIPE with -i up to about `upper` bytes. Returns the bytes each way."""
    rows = _netpipe_rows(output)
    _require(bool(rows), "NetPIPE tested no size")
    for number, (count, size, _, verdict) in enumerate(rows):
        _require(int(count) == number, f"NetPIPE left out test {number}")
        _require(verdict == "Integrity check passed", f"NetPIPE: {size} bytes: {verdict}")
    sizes = [int(size) for _, size, _, _ in rows]
    _require(sizes[0] < 16, f"NetPIPE began at {sizes[0]} bytes")
    _require(sizes[-1] >= upper // 2, f"NetPIPE ended at {sizes[-1]} bytes")
    return sum(int(size) * int(times) for _, size, times, _ in rows)


@dataclass(frozen=True)
class NetpipeTimes:
    """NetPIPE's results: smallest time in microseconds, and highest rate in Mbit/s."""

    latency: float
    bandwidth: float
    bytes: int
    """At least these bytes went each way."""


def netpipe_times(output: str, upper: int) -> NetpipeTimes:
    """Read a measuring run of NetPIPE, and check that its values are plausible."""
    rows = _netpipe_rows(output)
    _require(bool(rows), "NetPIPE measured nothing")
    measured = []
    for _, size, times, verdict in rows:
        found = re.fullmatch(r"([\d.]+) Mbps in\s+([\d.]+) usec", verdict)
        _require(found is not None, f"NetPIPE: {size} bytes: {verdict}")
        assert found is not None
        rate, microseconds = float(found[1]), float(found[2])
        _require(rate > 0 and microseconds > 0, f"NetPIPE: {size} bytes: {verdict}")
        # NetPIPE divides by 2^20, and prints two decimal places.
        bits = int(size) * 8 / 2**20
        _require(
            abs(rate - bits / microseconds * 1e6) <= 0.006 + rate * (0.006 / microseconds + 0.001),
            f"NetPIPE: {size} bytes: rate and time do not agree: {verdict}",
        )
        measured.append((int(size), int(times), rate, microseconds))
    _require(measured[-1][0] >= upper // 2, f"NetPIPE ended at {measured[-1][0]} bytes")
    return NetpipeTimes(
        min(row[3] for row in measured),
        max(row[2] for row in measured),
        sum(row[0] * row[1] for row in measured),
    )


HPCC_SECTIONS = (
    *("MPIRandomAccess", "StarRandomAccess", "SingleRandomAccess"),
    *("MPIRandomAccess_LCG", "StarRandomAccess_LCG", "SingleRandomAccess_LCG"),
    *("PTRANS", "StarDGEMM", "SingleDGEMM", "StarSTREAM", "SingleSTREAM"),
    *("MPIFFT", "StarFFT", "SingleFFT", "LatencyBandwidth", "HPL", "Summary"),
)
"""All tests of HPCC 1.5.0."""

HPCC_RESIDUAL = 16.0
"""Threshold for the scaled residuals of HPL and of the other tests, from hpccinf.txt."""

RANDOM_ACCESS_RUNS = ("MPIRandomAccess", "MPIRandomAccess_LCG")


def hpcc_complete(output: str, ranks: int) -> None:
    """Check that HPCC ran all its tests on `ranks` ranks without a complaint."""
    for section in HPCC_SECTIONS:
        _require(f"End of {section} section." in output, f"HPCC did not come to {section}")
    _require("End of HPC Challenge tests." in output, "HPCC did not come to its end")
    found = _hpcc_number(output, "CommWorldProcs")
    _require(found == ranks, f"HPCC ran on {found:g} ranks")
    _require(_hpcc_number(output, "Success") == 1, "HPCC says that a test failed")
    for errors in re.findall(r"^Node\(s\) with error (.*)$", output, re.MULTILINE):
        _require(errors == "0", f"HPCC: nodes with error: {errors}")


def hpcc_hpl(output: str) -> float:
    """Check HPL's solution of linear equations. Returns the largest scaled residual."""
    rows = re.findall(r"^\|\|Ax-b\|\|_oo.*=\s*(\S+) \.+ (\w+)$", output, re.MULTILINE)
    _require(bool(rows), "HPL checked no residual")
    for residual, verdict in rows:
        passed = verdict == "PASSED" and 0 <= float(residual) < HPCC_RESIDUAL
        _require(passed, f"HPL: residual {residual}: {verdict}")
    return max(float(residual) for residual, _ in rows)


def hpcc_ptrans(output: str) -> float:
    """Check the transposition of matrices. Returns the scaled residual."""
    rows = re.findall(r"^(?:WALL|CPU)(?: +\S+){7} +(\S+) +\S+ +(\S+)$", output, re.MULTILINE)
    _require(bool(rows), "PTRANS checked nothing")
    for verdict, residual in rows:
        passed = verdict == "PASSED" and 0 <= float(residual) < HPCC_RESIDUAL
        _require(passed, f"PTRANS: residual {residual}: {verdict}")
    residual = _hpcc_number(output, "PTRANS_residual")
    _require(0 <= residual < HPCC_RESIDUAL, f"PTRANS: residual {residual}")
    return residual


def hpcc_fft(output: str) -> float:
    """Check the Fourier transform over all ranks; returns the largest error of an element."""
    # Rounding errors add up over the log2(N) stages.
    allowed = HPCC_RESIDUAL * DOUBLE_EPSILON * log2(_hpcc_number(output, "MPIFFT_N"))
    error = _hpcc_number(output, "MPIFFT_maxErr")
    _require(0 <= error < allowed, f"MPIFFT: error {error}, of at most {allowed}")
    return error


def hpcc_random_access(output: str) -> int:
    """Check that no update of the distributed tables was lost. Returns the words of the tables.

    The benchmark's rules allow a loss of one in a hundred. But here only one rank updates each part
    of a table, with updates from messages, so none may be lost.
    """
    words = 0
    for name in RANDOM_ACCESS_RUNS:
        errors, size = _hpcc_number(output, f"{name}_Errors"), _hpcc_number(output, f"{name}_N")
        _require(size > 0, f"{name}: there was no table")
        _require(errors == 0, f"{name}: {errors:g} of {size:g} words are wrong")
        words += int(size)
    rows = re.findall(r"^Found (\d+) errors in (\d+) locations \((\w+)\)", output, re.MULTILINE)
    _require(len(rows) >= 2 * len(RANDOM_ACCESS_RUNS), "RandomAccess: too few tables")
    for errors, size, verdict in rows:
        _require(verdict == "passed", f"RandomAccess: {errors} of {size} words are wrong")
    return words


def _hpcc_number(output: str, name: str) -> float:
    found = re.search(rf"^{name}=(\S+)$", output, re.MULTILINE)
    _require(found is not None, f"HPCC says nothing of {name}")
    assert found is not None
    return float(found[1])


def lammps_thermo(output: str, last_step: int) -> list[str]:
    """The lines of LAMMPS's thermodynamic output, as printed, up to the last step."""
    _require("ERROR" not in output, "LAMMPS reports an error")
    _require("Total wall time:" in output, "LAMMPS did not come to its end")
    lines: list[str] = []
    inside = False
    for line in output.splitlines():
        if line.startswith("Step "):
            inside = True
        elif line.startswith("Loop time of "):
            inside = False
        if inside:
            lines.append(line.strip())
    _require(len(lines) >= 3, "LAMMPS printed no thermodynamic output")
    _require(int(lines[-1].split()[0]) == last_step, f"LAMMPS ended at {lines[-1]}")
    for line in lines[1:]:
        for text in line.split():
            _require(abs(float(text)) < 1e30, f"LAMMPS: this is no number: {line}")
    return lines


def lammps_same(first: Sequence[str], second: Sequence[str]) -> None:
    """Check that two runs printed the same digits."""
    _require(len(first) == len(second), f"{len(first)} and {len(second)} lines")
    for one, other in zip(first, second, strict=True):
        _require(one == other, f"thermodynamic output differs:\n{one}\n{other}")


def lammps_difference(first: Sequence[str], second: Sequence[str]) -> float:
    """The largest relative difference between the numbers of two runs."""
    _require(len(first) == len(second), f"{len(first)} and {len(second)} lines")
    _require(first[0] == second[0], "the columns differ")
    worst = 0.0
    for one, other in zip(first[1:], second[1:], strict=True):
        for left, right in zip(map(float, one.split()), map(float, other.split()), strict=True):
            worst = max(worst, abs(left - right) / max(abs(left), abs(right), 1.0))
    return worst


def fft_errors(output: str, ranks: int, allowed: float) -> float:
    """Check the errors that fft3d prints. Returns the largest."""
    rows = re.findall(
        r"^(\w+) [\dx ]+ on (\d+) ranks: forward (\S+) back (\S+)$", output, re.MULTILINE
    )
    _require([row[0] for row in rows] == ["complex", "transposed", "real"], f"transforms: {rows}")
    worst = 0.0
    for kind, count, *errors in rows:
        _require(int(count) == ranks, f"{kind}: on {count} ranks")
        for error in map(float, errors):
            # This comparison is also false for NaN.
            _require(0 <= error <= allowed, f"{kind}: relative error {error}, of at most {allowed}")
            worst = max(worst, error)
    return worst


COARRAY_PARTS = (
    *("put", "get", "sections", "ring", "atomic", "swap", "event", "lock", "critical"),
    *("allocated", "collective"),
)


def coarray(output: str) -> int:
    """Check the output of the program coarray; returns the number of checked elements."""
    rows = re.findall(r"^(\w+) elements (\d+) wrong (\d+) agreed ([TF])\s*$", output, re.MULTILINE)
    _require([row[0] for row in rows] == list(COARRAY_PARTS), f"parts: {[r[0] for r in rows]}")
    for part, elements, wrong, agreed in rows:
        _require(int(elements) > 0, f"{part}: nothing was checked")
        _require(int(wrong) == 0, f"{part}: {wrong} of {elements} elements are wrong")
        _require(agreed == "T", f"{part}: co_sum and the sum of what was written differ")
    _require("\ndone" in output, "the program did not come to its end")
    return sum(int(elements) for _, elements, _, _ in rows)


def opencoarrays(output: str) -> None:
    """Check the output of one of OpenCoarrays' own tests, by the words that all of them use."""
    text = output.lower()
    _require("test passed" in text, "it does not say that the test passed")
    for word in ("test failed", "error stop"):
        _require(word not in text, f"it says {word}")
