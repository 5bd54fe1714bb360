"""The machine's own limits, to which other figures are compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vicinal.base.sizes import show_exact_size
from vicinal.labs.bench.metric import Trial
from vicinal.labs.bench.sides import PIPELINED_COPY, Limit
from vicinal.labs.programs import memory_program, run_program
from vicinal.labs.statistics.describe import median_estimate

_TIMEOUT_SECONDS = 300.0
_FIELDS = {"nanoseconds": "ns", "megabytes_per_second": "MB/s"}


def run_memory(cpus: Sequence[int], arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The records that programs/memory.c prints on two CPUs, one for each measurement.

    Raises VicinalError if the program fails.
    """
    command = [str(memory_program()), *map(str, cpus), *arguments]
    return run_program(
        command,
        _TIMEOUT_SECONDS,
        failed="the machine's limits could not be measured: {}",
        late="measuring the machine's limits took too long",
        remedy="see that both CPUs are usable",
    )


def line_nanoseconds(cpus: Sequence[int]) -> float:
    """The current time in ns of a cache line between two CPUs. The call takes some 20 ms."""
    (record,) = run_memory(cpus, ["--only", "line", "--repetitions", "1"])
    return float(record["nanoseconds"])


def pipelined_copy(cpus: Sequence[int], sizes: Sequence[int], repetitions: int) -> Trial:
    """Bandwidth of two cores that copy through shared chunks, with the best for each size."""
    arguments = ["--only", "pipeline", "--sizes", ",".join(map(str, sizes))]
    records = run_memory(cpus, [*arguments, "--repetitions", str(repetitions)])
    return Trial(hosts=[], mpi="", repetitions=_best_chunks(records))


def _best_chunks(records: Sequence[dict[str, Any]]) -> dict[int, list[float]]:
    """The repetitions of each size with its best chunk size."""
    found: dict[int, dict[tuple[int, str], list[float]]] = {}
    for record in records:
        if record["limit"] == PIPELINED_COPY:
            kinds = found.setdefault(record["size"], {})
            kind = record["chunk"], record["way"]
            kinds.setdefault(kind, []).append(record["megabytes_per_second"])
    return {
        size: max(kinds.values(), key=lambda values: float(np.median(values)))
        for size, kinds in found.items()
    }


def measure_limits(cpus: Sequence[int], repetitions: int) -> list[dict[str, Any]]:
    """The time of a cache line and the bandwidth of copies on two CPUs, by programs/memory.c."""
    values: dict[tuple[str, str, int | None], list[float]] = {}
    records = run_memory(cpus, ["--repetitions", str(repetitions)])
    for record in records:
        field = next(name for name in _FIELDS if name in record)
        key = (record["limit"], field, record.get("size"))
        if record["limit"] != PIPELINED_COPY:
            values.setdefault(key, []).append(record[field])
    for size, copies in _best_chunks(records).items():
        values[PIPELINED_COPY, "megabytes_per_second", size] = copies
    return [
        {
            "title": _title(limit, size),
            "unit": _FIELDS[field],
            "size": size,
            "median": median_estimate(repeated).to_dict(),
            "raw": [repeated],
        }
        for (limit, field, size), repeated in values.items()
    ]


def _title(limit: str, size: int | None) -> str:
    if size is None:
        return Limit(limit).title
    if limit == PIPELINED_COPY:
        return f"{Limit(limit).title}, {show_exact_size(size)}"
    return f"{limit} of {show_exact_size(size)} on one core"
