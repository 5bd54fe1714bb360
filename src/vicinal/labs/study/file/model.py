"""A study: what is compared with what, on which workloads, how often, and what was published.

It knows nothing of how it is run. What its parts are called:

    environment   where ranks run and how their messages travel
    workload      a program that measures one operation, or an application
    cell          an environment, a workload and a size
    block         each environment once, in random order
    trial         one fresh launch of a workload in an environment: what is replicated
    sample        one iteration's time within a trial
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.libraries import Mpi


class Quantity(StrEnum):
    """What a sample or a figure says, and in which unit it is shown."""

    LATENCY = "latency"
    """µs a message, or a call of a collective operation."""
    BANDWIDTH = "bandwidth"
    """MB/s (10⁶ bytes) of all pairs together."""
    MESSAGE_RATE = "message rate"
    """Million messages a second, of all pairs together."""
    TIME = "time"
    """s, of a whole run."""
    PERFORMANCE = "performance"
    """GFLOPS, or traversed edges a second: the unit is the figure's own."""

    @property
    def lower_is_better(self) -> bool:
        """Of costs; rates are better where they are higher."""
        return self in (Quantity.LATENCY, Quantity.TIME)

    @property
    def unit(self) -> str | None:
        """In which it is shown; None: that of the figure."""
        return _UNITS.get(self)


_UNITS = {
    Quantity.LATENCY: "µs",
    Quantity.BANDWIDTH: "MB/s",
    Quantity.MESSAGE_RATE: "M/s",
    Quantity.TIME: "s",
}


class Statistic(StrEnum):
    """One value of the samples of a trial."""

    MEAN = "mean"
    MEDIAN = "median"
    MINIMUM = "min"
    MAXIMUM = "max"
    P90 = "P90"
    P95 = "P95"
    P99 = "P99"
    P999 = "P99.9"


class Correction(StrEnum):
    """Of p values, where a study makes many tests."""

    HOLM = "holm"
    """The chance of even one false finding in the study stays below alpha."""
    BENJAMINI_HOCHBERG = "benjamini-hochberg"
    """The share of false ones among the findings does: for sweeps."""


@dataclass(frozen=True)
class Environment:
    """Where ranks run, and how their messages travel."""

    name: str
    title: str
    cluster: Mapping[str, Any]
    """A cluster file without its name (docs/reference/cluster-file.md): `nodes`, `region`, ..."""
    mpi: Mpi = Mpi.MPICH
    path: MessagePath = MessagePath.REGION
    progress: Progress | None = None
    """What ranks do that wait: poll, adaptive or block; None is the default."""
    cma: bool = True
    """On the path shared-memory: whether ranks may copy straight out of each other."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """For the ranks: switches that make a comparison fair, of inlining or shared memory."""
    unsupported: str | None = None
    """Why no machine can give it yet: what Vicinal does not do."""
    stands_for: str | None = None
    """The environment in whose place it is measured on machines that cannot give that one; where
    they can, it is left out."""

    @property
    def backends(self) -> set[str]:
        """Of its nodes: native, container, vm."""
        return {node.get("backend", "container") for node in self.cluster["nodes"]}


@dataclass(frozen=True)
class Workload:
    """One operation or application, by one program."""

    name: str
    title: str
    driver: str
    """Who knows the program: a name in vicinal.labs.study.workloads.drivers()."""
    operation: str
    """In the driver's own words: latency, put, allreduce, HPL."""
    quantity: Quantity
    sizes: tuple[int, ...] = ()
    """Bytes; none where the workload has no sizes."""
    ranks: int = 2
    samples: int = 1000
    """Iterations of each size in a trial, at most."""
    seconds: float = 1.0
    """That a size may take in a trial, about."""
    statistics: tuple[Statistic, ...] = (Statistic.MEDIAN, Statistic.P99)
    """Which values of a trial are compared; the first is that of the summary."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the driver: window, synchronization, problem size."""
    unsupported: str | None = None
    """Why it cannot be run anywhere yet."""
    stands_for: str | None = None
    """The workload in whose place it is measured on machines that cannot run that one."""


def control_name(environment: str) -> str:
    """What trials of the A/A control call the environment that they measure a second time."""
    return f"{environment}+control"


@dataclass(frozen=True)
class Comparison:
    """A question: what does `test` cost or save beside `base`?"""

    base: str
    test: str
    title: str = ""


@dataclass(frozen=True)
class Design:
    """How often, in which order, and what counts as a difference."""

    comparisons: tuple[Comparison, ...]
    trials: int = 7
    """Blocks, at least; Wilcoxon's test needs 6 to reach 0.05."""
    most_trials: int | None = None
    """With it, blocks go on until the intervals are narrow enough (`precision`), up to so many."""
    precision: float = 0.05
    """Half the width of the ratio's interval at which blocks stop, as a part of the ratio."""
    alpha: float = 0.05
    margin: float = 0.03
    """Ratios within 1 ± margin count as equivalent."""
    correction: Correction = Correction.HOLM
    control: str | None = None
    """The environment that is measured twice in each block, as an A/A control; by default the
    base of the first comparison."""


@dataclass(frozen=True)
class Published:
    """A figure of a paper, to be shown beside what was measured."""

    source: str
    """`P2 fig4a`, as docs/reference/study-file.md lists the papers."""
    workload: str
    quantity: Quantity
    value: float
    unit: str
    environment: str | None = None
    """Whose value it is; or, of a ratio or a p value, None."""
    comparison: tuple[str, str] | None = None
    """Base and test, where `value` is test/base ("ratio"), or the p value ("p")."""
    size: int | None = None
    statistic: Statistic = Statistic.MEAN
    note: str = ""
    """`at most`, `about`, read off a plot, ..."""


@dataclass(frozen=True)
class Adaptation:
    """What was made smaller or left out because this machine is not the paper's."""

    what: str
    """`workload alltoall: 2 ranks instead of 15`"""
    why: str
    """The rule: `at most one rank for each core`."""


@dataclass(frozen=True)
class Study:
    """All of it, as written, or as adapted to a machine."""

    name: str
    title: str
    question: str
    """One or two sentences: what its reader wants to know."""
    source: str
    """The paper and its figure or table, or Vicinal."""
    environments: tuple[Environment, ...]
    workloads: tuple[Workload, ...]
    design: Design
    published: tuple[Published, ...] = ()
    notes: tuple[str, ...] = ()
    """What the paper did that no adaptation can give, and other words for the report."""
    adaptations: tuple[Adaptation, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """By environment or workload: why this machine cannot give it."""

    def environment(self, name: str) -> Environment:
        """The one of that name, which must be there."""
        return next(each for each in self.environments if each.name == name)

    def workload(self, name: str) -> Workload:
        """The one of that name, which must be there."""
        return next(each for each in self.workloads if each.name == name)
