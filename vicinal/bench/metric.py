"""The two quantities that programs print, and what a reader has to know about them."""

from dataclasses import dataclass
from enum import StrEnum


class Metric(StrEnum):
    """A quantity; its name is that of the program that measures it."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"


@dataclass(frozen=True)
class MetricFacts:
    """How to read a metric."""

    field: str
    """The name of the value in the program's JSON lines."""
    unit: str
    title: str
    lower_is_better: bool


FACTS = {
    Metric.LATENCY: MetricFacts("microseconds", "µs", "Half a round trip", True),
    Metric.BANDWIDTH: MetricFacts("megabytes_per_second", "MB/s", "One-way bandwidth", False),
}

UNITS = {
    "latency": "microseconds, half a round trip",
    "bandwidth": "MB/s, one MB is 10^6 bytes, one way",
    "size": "bytes",
}
"""For the head of every result."""
