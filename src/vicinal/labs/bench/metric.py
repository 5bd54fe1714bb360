"""The quantities that programs print, how to read them, and the values of one start: a trial."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from vicinal.base.errors import VicinalError
from vicinal.labs.programs import read_records


class Metric(StrEnum):
    """A quantity that one of the programs measures."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    MESSAGE_RATE = "message-rate"
    OVERHEAD = "overhead"
    PUT = "put"
    GET = "get"
    ACCUMULATE = "accumulate"
    FETCH_AND_OP = "fetch-and-op"
    BARRIER = "barrier"
    BCAST = "bcast"
    REDUCE = "reduce"
    REDUCE_SCATTER = "reduce-scatter"
    GATHER = "gather"
    SCATTER = "scatter"
    ALLGATHER = "allgather"
    ALLREDUCE = "allreduce"
    ALLTOALL = "alltoall"


ONE_SIDED = (Metric.PUT, Metric.GET, Metric.ACCUMULATE, Metric.FETCH_AND_OP)
COLLECTIVES = (
    *(Metric.BARRIER, Metric.BCAST, Metric.REDUCE, Metric.ALLREDUCE, Metric.REDUCE_SCATTER),
    *(Metric.GATHER, Metric.SCATTER, Metric.ALLGATHER, Metric.ALLTOALL),
)

DEMO_METRICS = (Metric.LATENCY, Metric.BANDWIDTH)
"""The metrics of the demonstration."""


@dataclass(frozen=True)
class MetricFacts:
    """How to read a metric."""

    program: str
    field: str
    """The name of the value in the program's JSON lines."""
    unit: str
    title: str
    lower_is_better: bool
    operation: str | None = None
    """The program's name of the metric, if one start measures several."""


def _time(program: str, title: str, operation: str | None = None) -> MetricFacts:
    return MetricFacts(program, "microseconds", "µs", title, True, operation)


FACTS = {
    Metric.LATENCY: _time("latency", "Half a round trip"),
    Metric.BANDWIDTH: MetricFacts(
        "bandwidth", "megabytes_per_second", "MB/s", "One-way bandwidth", False
    ),
    Metric.MESSAGE_RATE: MetricFacts(
        "bandwidth", "messages_per_second", "msg/s", "Messages a second", False
    ),
    Metric.OVERHEAD: _time("overhead", "A message to oneself"),
    **{
        metric: _time("onesided", f"{metric.value.capitalize()} and flush", metric.value)
        for metric in ONE_SIDED
    },
    **{
        metric: _time("collectives", metric.value.capitalize(), metric.value)
        for metric in COLLECTIVES
    },
}

UNITS = {
    "latency": "microseconds, half a round trip",
    "bandwidth": "MB/s, one MB is 10^6 bytes, one way",
    "message-rate": "messages a second, one way, 64 in flight",
    "overhead": "microseconds, one message from a rank to itself",
    ", ".join(ONE_SIDED): "microseconds, with the flush that ends it",
    ", ".join(COLLECTIVES): "microseconds a call, of the slowest rank",
    "line": "nanoseconds, one cache line from one of the two cores to the other",
    "size": "bytes",
}
"""The units in the head of every result."""


@dataclass(frozen=True)
class Trial:
    """One start of a measuring program, with every repetition of every size."""

    hosts: list[str]
    """Host name of each rank, which shows whether the ranks were on one node."""
    mpi: str
    """The MPI library's description of itself."""
    repetitions: dict[int, list[float]]
    """By size in bytes, a value for each repetition, in the metric's unit."""

    def value(self, size: int) -> float:
        """The trial's value for one size: the median of its repetitions."""
        return float(median(self.repetitions[size]))


def read_trial(text: str, metric: Metric, sizes: Iterable[int]) -> Trial:
    """Read the output of a measuring program. Raises VicinalError if a size is missing."""
    facts = FACTS[metric]
    records = read_records(text)
    head = next((record for record in records if "program" in record), None)
    repetitions: dict[int, list[float]] = {size: [] for size in sizes}
    for record in records:
        if "size" in record and record.get("operation") == facts.operation:
            repetitions.setdefault(record["size"], []).append(float(record[facts.field]))
    missing = [size for size, values in repetitions.items() if not values]
    if head is None or head["program"] != facts.program or missing:
        raise VicinalError(
            f"the program {facts.program} ended without all of its results",
            "run it again with fewer sizes; its output is incomplete",
        )
    return Trial(hosts=head["hosts"], mpi=head["mpi"], repetitions=repetitions)
