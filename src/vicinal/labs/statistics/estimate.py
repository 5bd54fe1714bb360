"""A figure and its confidence interval."""

from dataclasses import asdict, dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure, with an interval that holds the true value with a known probability."""

    value: float
    low: float
    high: float
    confidence: float
    """Probability that such an interval holds the true value. 0 if there is no interval."""

    to_dict = asdict

    def holds(self, value: float) -> bool:
        """Whether the interval contains a value."""
        return self.low <= value <= self.high
