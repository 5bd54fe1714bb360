"""What a setting is to make better, and how far it is better: costs that add up.

A cost is a logarithm, so that a difference of costs is a ratio of values: 3 % of any value are the
same. It is lower where a setting is better, of rates too.
"""

from enum import StrEnum
from math import exp, log


class Objective(StrEnum):
    """One figure of a trial."""

    P50 = "p50"
    """The median of the trial's samples, in µs."""
    P99 = "p99"
    """Their 99th percentile, in µs."""
    BANDWIDTH = "bandwidth"
    """In MB/s (10⁶ bytes)."""
    APPLICATION = "application"
    """What an application took, in s."""
    CPU = "cpu"
    """Processor time that the trial used, in s."""

    @property
    def lower_is_better(self) -> bool:
        """Of all but rates."""
        return self is not Objective.BANDWIDTH

    @property
    def unit(self) -> str:
        """The unit of its values."""
        return _UNITS[self]

    @property
    def label(self) -> str:
        """The name in tables, for people."""
        return _LABELS[self]

    def cost(self, value: float) -> float:
        """The logarithm of what a value costs. Raises ValueError if it is not above zero."""
        return log(value) if self.lower_is_better else -log(value)

    def ratio(self, difference: float) -> float:
        """A difference of costs as a ratio of values: of times or of rates."""
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
