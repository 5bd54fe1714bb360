"""The machine's own limits, without which no figure means much."""

import subprocess
from collections.abc import Sequence
from typing import Any

from vicinal.bench.output import read_records
from vicinal.bench.programs import memory_program
from vicinal.bench.sizes import format_size
from vicinal.bench.statistics import median_estimate
from vicinal.errors import VicinalError

_TIMEOUT_SECONDS = 300.0
_FIELDS = {"nanoseconds": "ns", "megabytes_per_second": "MB/s"}


def measure_limits(cpus: Sequence[int], repetitions: int = 5) -> list[dict[str, Any]]:
    """Run programs/memory.c on two CPUs: the time of a cache line, and memcpy's bandwidth."""
    command = [str(memory_program()), *map(str, cpus), str(repetitions)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        raise VicinalError(
            f"the machine's limits could not be measured: {error.stderr.strip()}",
            "see that both CPUs are usable",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise VicinalError(
            "measuring the machine's limits took too long", "free the machine and try again"
        ) from error
    values: dict[tuple[str, str, int | None], list[float]] = {}
    for record in read_records(done.stdout):
        field = next(name for name in _FIELDS if name in record)
        key = (record["limit"], field, record.get("size"))
        values.setdefault(key, []).append(record[field])
    return [
        {
            "title": "one cache line from core to core"
            if size is None
            else f"{limit} of {format_size(size)} on one core",
            "unit": _FIELDS[field],
            "size": size,
            "median": median_estimate(repeated).to_dict(),
            "raw": [repeated],
        }
        for (limit, field, size), repeated in values.items()
    ]
