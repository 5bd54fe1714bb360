"""A study: what is compared, on which workloads, how often, and what was published.

The model does not know how a study is run. The names of its parts:

    environment   where ranks run and how their messages travel
    workload      a program that measures one operation, or an application
    cell          an environment, a workload and a size
    block         each environment once, in random order
    trial         one fresh launch of a workload in an environment: the unit of replication
    sample        one iteration's time within a trial
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from vicinal.mpi.environment import MessagePath, Progress
from vicinal.mpi.libraries import Mpi


class Quantity(StrEnum):
    """The quantity that a sample or figure measures, and the unit in which it is shown."""

    LATENCY = "latency"
    """µs for a message, or for a call of a collective operation."""
    BANDWIDTH = "bandwidth"
    """MB/s (10⁶ bytes), all pairs together."""
    MESSAGE_RATE = "message rate"
    """Million messages a second, all pairs together."""
    TIME = "time"
    """s, of a whole run."""
    PERFORMANCE = "performance"
    """GFLOPS, or traversed edges a second: the figure names the unit."""

    @property
    def lower_is_better(self) -> bool:
        """Whether a lower value is better, as for costs; higher rates are better."""
        return self in (Quantity.LATENCY, Quantity.TIME)

    @property
    def unit(self) -> str | None:
        """The unit in which the quantity is shown; None if each figure names its unit."""
        return _UNITS.get(self)


_UNITS = {
    Quantity.LATENCY: "µs",
    Quantity.BANDWIDTH: "MB/s",
    Quantity.MESSAGE_RATE: "M/s",
    Quantity.TIME: "s",
}


class Statistic(StrEnum):
    """A value computed from the samples of a trial."""

    MEAN = "mean"
    MEDIAN = "median"
    MINIMUM = "min"
    MAXIMUM = "max"
    P90 = "P90"
    P95 = "P95"
    P99 = "P99"
    P999 = "P99.9"


class Correction(StrEnum):
    """The correction of p values in a study with many tests."""

    HOLM = "holm"
    """The chance of a single false finding in the study stays below alpha."""
    BENJAMINI_HOCHBERG = "benjamini-hochberg"
    """The expected share of false findings among all findings stays below alpha: for sweeps."""


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
    """What waiting ranks do: poll, adaptive or block. None: the provider's default."""
    cma: bool = True
    """On the path shared-memory: whether ranks may copy directly from each other's memory."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables for the ranks: settings that make a comparison fair, such as of inlining."""
    unsupported: str | None = None
    """Why Vicinal supports the environment on no machine yet; None if it does."""
    stands_for: str | None = None
    """The environment that this one replaces on machines that cannot provide that environment.
    Machines that can provide it leave this one out."""

    @property
    def backends(self) -> set[str]:
        """The back ends of its nodes: host, container, vm."""
        return {node.get("backend", "container") for node in self.cluster["nodes"]}


@dataclass(frozen=True)
class Workload:
    """One operation or application, by one program."""

    name: str
    title: str
    driver: str
    """The driver that knows the program: a name in vicinal.labs.study.workloads.drivers()."""
    operation: str
    """The operation, named as the driver names it: latency, put, allreduce, HPL."""
    quantity: Quantity
    sizes: tuple[int, ...] = ()
    """Bytes; empty for a workload without sizes."""
    ranks: int = 2
    samples: int = 1000
    """Iterations of each size in a trial, at most."""
    seconds: float = 1.0
    """The approximate time that a size may take in a trial."""
    statistics: tuple[Statistic, ...] = (Statistic.MEDIAN, Statistic.P99)
    """The statistics of a trial that are compared; the first is shown in the summary."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the driver: window, synchronization, problem size."""
    unsupported: str | None = None
    """Why the workload runs on no machine yet; None if it does."""
    stands_for: str | None = None
    """The workload that this one replaces on machines that cannot run that workload."""


def control_name(environment: str) -> str:
    """The name of an environment's second measurement in the A/A control."""
    return f"{environment}+control"


@dataclass(frozen=True)
class Comparison:
    """A question: what does `test` cost or save compared with `base`?"""

    base: str
    test: str
    title: str = ""


@dataclass(frozen=True)
class Design:
    """How often and in which order to measure, and what counts as a difference."""

    comparisons: tuple[Comparison, ...]
    trials: int = 7
    """Blocks, at least; Wilcoxon's test needs 6 to reach 0.05."""
    most_trials: int | None = None
    """If set, blocks continue up to this number until the intervals are narrow enough
    (`precision`)."""
    precision: float = 0.05
    """Half the width of the ratio's interval at which blocks stop, as a part of the ratio."""
    alpha: float = 0.05
    margin: float = 0.03
    """Ratios within 1 ± margin count as equivalent."""
    correction: Correction = Correction.HOLM
    control: str | None = None
    """The environment that each block measures twice, as an A/A control. The default is the base of
    the first comparison."""


@dataclass(frozen=True)
class Published:
    """A figure of a paper, shown beside the measured values."""

    source: str
    """`P2 fig4a`, as docs/reference/study-file.md lists the papers."""
    workload: str
    quantity: Quantity
    value: float
    unit: str
    environment: str | None = None
    """The environment of the value; None for a ratio or a p value."""
    comparison: tuple[str, str] | None = None
    """Base and test, if `value` is the ratio test/base ("ratio") or the p value ("p")."""
    size: int | None = None
    statistic: Statistic = Statistic.MEAN
    note: str = ""
    """`at most`, `about`, read off a plot, ..."""


@dataclass(frozen=True)
class Adaptation:
    """A part that was reduced or left out because this machine is not the paper's."""

    what: str
    """`workload alltoall: 2 ranks instead of 15`"""
    why: str
    """The rule: `at most one rank for each core`."""


@dataclass(frozen=True)
class Study:
    """A complete study, as written, or as adapted to a machine."""

    name: str
    title: str
    question: str
    """One or two sentences: what the reader of the study wants to know."""
    source: str
    """The paper and its figure or table, or Vicinal."""
    environments: tuple[Environment, ...]
    workloads: tuple[Workload, ...]
    design: Design
    published: tuple[Published, ...] = ()
    notes: tuple[str, ...] = ()
    """What the paper did that no adaptation can reproduce, and other remarks for the report."""
    adaptations: tuple[Adaptation, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """By environment or workload: why this machine cannot provide it."""

    def environment(self, name: str) -> Environment:
        """The environment of this name, which must exist."""
        return next(each for each in self.environments if each.name == name)

    def workload(self, name: str) -> Workload:
        """The workload of this name, which must exist."""
        return next(each for each in self.workloads if each.name == name)
