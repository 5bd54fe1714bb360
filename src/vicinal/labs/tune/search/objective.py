"""The figures that a search improves, and their costs, which can be added.

A cost is a logarithm, so a difference of costs is a ratio of values: 3 % is the same difference for
any value. A better setting has a lower cost, for rates too.
"""

from enum import StrEnum
from math import exp, log


class Objective(StrEnum):
    """One figure of a trial, by its name in tuning files."""

    P50 = "p50"
    """The median of the trial's samples, in µs."""
    P99 = "p99"
    """The 99th percentile of the trial's samples, in µs."""
    BANDWIDTH = "bandwidth"
    """In MB/s (10⁶ bytes)."""
    APPLICATION = "application"
    """The application's duration, in s."""
    CPU = "cpu"
    """Processor time that the trial used, in s."""

    @property
    def lower_is_better(self) -> bool:
        """Whether lower values are better: for all objectives except rates."""
        return self is not Objective.BANDWIDTH

    @property
    def unit(self) -> str:
        """The unit of the values."""
        return _UNITS[self]

    @property
    def label(self) -> str:
        """The name in tables."""
        return _LABELS[self]

    def cost(self, value: float) -> float:
        """The cost of a value. Raises ValueError if the value is not above zero."""
        return log(value) if self.lower_is_better else -log(value)

    def ratio(self, difference: float) -> float:
        """The ratio of values, of times or of rates, of a difference of costs."""
        return exp(difference if self.lower_is_better else -difference)


_UNITS = {
    Objective.P50: "µs",
    Objective.P99: "µs",
    Objective.BANDWIDTH: "MB/s",
    Objective.APPLICATION: "s",
    Objective.CPU: "s",
}
_LABELS = {
    Objective.P50: "P50",
    Objective.P99: "P99",
    Objective.BANDWIDTH: "bandwidth",
    Objective.APPLICATION: "application time",
    Objective.CPU: "CPU time",
}
