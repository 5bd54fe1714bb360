"""What came out of a study: all that a report shows, and nothing that it has to compute."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from vicinal.labs.statistics.describe import Description
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.split import SplitChange
from vicinal.labs.study.file.model import Comparison, Published, Quantity, Statistic, Study


class Verdict(StrEnum):
    """What a comparison says, after correction."""

    BETTER = "better"
    """The test environment is."""
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    """Within the margin."""
    OPEN = "open"
    """Neither a difference nor equivalence was established."""
    TOO_FEW = "too few trials"
    """For any test: the figures are shown, and no claim."""


@dataclass(frozen=True)
class Cell:
    """One environment, workload and size, over all of its trials, in the quantity's unit."""

    environment: str
    workload: str
    size: int | None
    quantity: Quantity
    unit: str
    trials: int
    """That gave values."""
    failures: tuple[str, ...]
    """Why the others gave none."""
    across: Mapping[Statistic, Estimate]
    """Of each trial's value: their median (of costs) with its interval; what is compared."""
    values: Mapping[Statistic, tuple[float, ...]]
    """Of each trial, in the order of blocks."""
    pooled: Description | None
    """All samples together; None where the workload gives none."""
    tail: tuple[tuple[float, float], ...] = ()
    """Quantiles for a plot: part of the samples, value; rare ones finer."""
    parts: Mapping[str, Estimate] = field(default_factory=dict)
    """Of an application's time, in s, in its own order: `communication`, `computation`, ...; none
    where it does not say. Means over trials, since parts of means add up."""


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
    """test/base of pairs; None where there are too few."""
    gain: float
    """How much better the test is, as a part: of latency 1 - ratio, of bandwidth ratio - 1."""
    efficiency: float
    """Of the test beside the base: base/test where lower is better, else test/base."""
    pairs: int
    p_t: float | None
    """Of the paired t-test, of logarithms, two-tailed, uncorrected."""
    p_signed_rank: float | None
    """Of Wilcoxon's, uncorrected."""
    p_corrected: float | None
    """Of Wilcoxon's, by the study's correction over all of its comparisons."""
    verdict: Verdict
    split: SplitChange | None = None
    """Of an application's time in communication and the rest, test beside base; None where the
    application does not say."""


@dataclass(frozen=True)
class ControlFound:
    """What the A/A control showed: an environment beside itself."""

    environment: str
    tests: int
    different: tuple[str, ...]
    """The cells in which it differed from itself, after correction, in words."""
    widest: float
    """The largest |ratio - 1| of all cells: below it, differences are the machine's noise."""
    untested: int = 0
    """Cells that had too few blocks for the control's test."""


@dataclass(frozen=True)
class Beside:
    """A published figure, and what was measured."""

    published: Published
    measured: Estimate | None
    why_not: str = ""
    """Where nothing was measured."""
    adapted: bool = False
    """Whether it was measured under other conditions than the study file asks for."""
    at: int | None = None
    """Of a figure that names no size: that with the ratio furthest in the published direction."""


@dataclass(frozen=True)
class RuleChecked:
    """One of the rules of benchmarking, and whether this result keeps it."""

    name: str
    text: str
    broken: tuple[str, ...]
    """Where, in words; none where it is kept."""


@dataclass(frozen=True)
class Summary:
    """Cells, comparisons, control, published figures and warnings of one result."""

    study: Study
    cells: tuple[Cell, ...]
    compared: tuple[Compared, ...]
    control: ControlFound | None
    published: tuple[Beside, ...]
    rules: tuple[RuleChecked, ...]
    warnings: tuple[str, ...]
    """For people: what they should know before they believe a figure."""
    emulated: tuple[str, ...] = ()
    """Environments whose processors QEMU emulated: their times are emulation's."""
