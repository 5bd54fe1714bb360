"""What is said of bandwidths whose messages come out of a cache.

Of Vicinal's own program `record` it is known which memory is used again and again: a message's of
each rank, and where a message has a place of its own, as of one-sided operations, so many of them.
What carries the messages takes room in the caches beside that, and is not counted.
"""

from collections.abc import Iterator, Sequence

from vicinal.labs.study.file.machine import MachineFacts
from vicinal.labs.study.file.model import Quantity, Study, Workload
from vicinal.labs.study.file.reading_sizes import show

_ENDS = 2
_BOTH_WAYS = ("bidirectional", "put-bidirectional")
_PLACED = ("put", "get", "accumulate", "put-bidirectional")
"""Operations of which each in flight has its own place."""
_MOST_IN_FLIGHT_BYTES = 32 << 20
"""That the program lets be on their way, and one message at least."""


def cache_notes(study: Study, machine: MachineFacts) -> Iterator[str]:
    """A sentence for each workload with a bandwidth that is one of the machine's caches."""
    cache = machine.cache_bytes
    if not cache:
        return
    for workload in study.workloads:
        used = _used_bytes(workload)
        fitting = [size for size in used if used[size] <= cache]
        if workload.name in study.unavailable or not fitting:
            continue
        largest = max(fitting)
        which = "all sizes" if len(fitting) == len(used) else f"up to {show(largest)}"
        yield (
            f"workload {workload.name}: the memory of messages of {which}, {show(used[largest])} "
            f"of all ranks together, fits in the last-level cache ({show(cache)}): these "
            "bandwidths are a cache's, and larger than those of data that come from memory"
        )


def _used_bytes(workload: Workload) -> dict[int, int]:
    """Bytes of all ranks together by size; none where they are not known, or no bandwidth's."""
    if workload.driver != "record" or workload.quantity is not Quantity.BANDWIDTH:
        return {}
    if workload.operation not in ("bandwidth", *_BOTH_WAYS, *_PLACED):
        return {}
    return {size: _messages(workload, size) * size for size in _positive(workload.sizes)}


def _messages(workload: Workload, size: int) -> int:
    """How many have a place of their own, at both ends and in all pairs."""
    ends = _ENDS * (workload.ranks // 2)
    if workload.operation in _BOTH_WAYS:
        ends *= 2
    if workload.operation not in _PLACED:
        return ends
    window = workload.options.get("window", 1)
    if type(window) is not int:
        return ends  # the driver refuses it
    return ends * max(1, min(window, _MOST_IN_FLIGHT_BYTES // size))


def _positive(sizes: Sequence[int]) -> list[int]:
    return [size for size in sizes if size > 0]
