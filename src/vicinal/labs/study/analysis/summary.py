"""The outcome of a study: all that a report shows, without anything left to compute."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from vicinal.labs.statistics.describe import Description
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.split import SplitChange
from vicinal.labs.study.file.model import Comparison, Published, Quantity, Statistic, Study


class Verdict(StrEnum):
    """The outcome of a comparison, after correction."""

    BETTER = "better"
    """The test environment is better."""
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    """Within the margin."""
    OPEN = "open"
    """Neither a difference nor equivalence was established."""
    TOO_FEW = "too few trials"
    """Too few for any test: the values are shown without a claim."""


@dataclass(frozen=True)
class Cell:
    """One environment, workload and size, over all its trials, in the quantity's unit."""

    environment: str
    workload: str
    size: int | None
    quantity: Quantity
    unit: str
    trials: int
    """Trials with values."""
    failures: tuple[str, ...]
    """Why the other trials have no values."""
    across: Mapping[Statistic, Estimate]
    """The median of the trials' values for each statistic, with its interval; this is compared."""
    values: Mapping[Statistic, tuple[float, ...]]
    """The value of each trial, in the order of blocks."""
    pooled: Description | None
    """All samples together; None for a workload without samples."""
    tail: tuple[tuple[float, float], ...] = ()
    """Quantiles for a plot: share of the samples, value; finer for rare values."""
    parts: Mapping[str, Estimate] = field(default_factory=dict)
    """Parts of an application's time, in s, in the application's order: `communication`,
    `computation`, ...; empty if not reported. Means over trials, because means of parts add up."""


@dataclass(frozen=True)
class Compared:
    """Two environments in one workload, size and statistic, over blocks that have both."""

    comparison: Comparison
    workload: str
    size: int | None
    statistic: Statistic
    quantity: Quantity
    unit: str
    base: Estimate
    test: Estimate
    ratio: Estimate | None
    """test/base of pairs; None if there are too few."""
    gain: float
    """How much better the test is, as a part: for latency 1 - ratio, for bandwidth ratio - 1."""
    efficiency: float
    """Efficiency of the test: base/test if lower is better, otherwise test/base."""
    pairs: int
    p_t: float | None
    """By the paired t-test of logarithms, two-tailed, uncorrected."""
    p_signed_rank: float | None
    """By Wilcoxon's test, uncorrected."""
    p_corrected: float | None
    """By Wilcoxon's test, with the study's correction over all its comparisons."""
    verdict: Verdict
    split: SplitChange | None = None
    """Changes of an application's time in communication and of the other time, test against base;
    None if not reported."""


@dataclass(frozen=True)
class ControlFound:
    """The outcome of the A/A control, which compares an environment with itself."""

    environment: str
    tests: int
    different: tuple[str, ...]
    """The cells in which the environment differed from itself, after correction, in words."""
    widest: float
    """The largest |ratio - 1| of all cells: smaller differences are the machine's noise."""
    untested: int = 0
    """Cells with too few blocks for the control's test."""


@dataclass(frozen=True)
class PublishedComparison:
    """A published figure, and the measured value."""

    published: Published
    measured: Estimate | None
    why_not: str = ""
    """Why nothing was measured."""
    adapted: bool = False
    """Whether the conditions of the measurement differ from the study file's."""
    at: int | None = None
    """For a figure without a size: the size with the most extreme ratio in the published
    direction."""


@dataclass(frozen=True)
class RuleChecked:
    """A rule of benchmarking, and whether this result keeps it."""

    name: str
    text: str
    broken: tuple[str, ...]
    """Where the rule is broken, in words; empty if it is kept."""


@dataclass(frozen=True)
class Summary:
    """Cells, comparisons, control, published figures and warnings of one result."""

    study: Study
    cells: tuple[Cell, ...]
    compared: tuple[Compared, ...]
    control: ControlFound | None
    published: tuple[PublishedComparison, ...]
    rules: tuple[RuleChecked, ...]
    warnings: tuple[str, ...]
    """What readers should know before they rely on a figure."""
    emulated: tuple[str, ...] = ()
    """Environments whose processors QEMU emulated; their times are those of emulation."""

    def emulates(self, compared: Compared) -> bool:
        """Whether a side of a comparison was emulated."""
        return not {compared.comparison.base, compared.comparison.test}.isdisjoint(self.emulated)
