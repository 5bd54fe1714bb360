"""A figure with the interval that it was found with."""

from dataclasses import asdict, dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure, with an interval that holds the true one."""

    value: float
    low: float
    high: float
    confidence: float
    """Probability that such an interval holds the true value; 0 where a single trial gives none."""

    to_dict = asdict

    def holds(self, value: float) -> bool:
        """Whether a value lies in the interval."""
        return self.low <= value <= self.high
