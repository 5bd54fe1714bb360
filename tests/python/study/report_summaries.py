"""Handmade summaries of random values, for tests of the report: nothing is measured.

    report_summaries.py FOLDER

writes the example's report there, for people to look at.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.labs.report.content import Source
from vicinal.labs.statistics.describe import describe, mean_estimate, median_estimate
from vicinal.labs.statistics.estimate import Estimate
from vicinal.labs.statistics.split import SplitChange, compare_splits
from vicinal.labs.study.analysis.summary import (
    Cell,
    Compared,
    ControlFound,
    PublishedComparison,
    RuleChecked,
    Summary,
    Verdict,
)
from vicinal.labs.study.file.model import (
    Adaptation,
    Comparison,
    Design,
    Environment,
    Published,
    Quantity,
    Statistic,
    Study,
    Workload,
)
from vicinal.mpi.environment import MessagePath

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>|`[a](javascript:b)"
SIZES = tuple(1 << power for power in range(0, 23, 2))
SHARES = (*np.linspace(0, 0.98, 99), 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999, 1)
TRIALS = 9
UNITS = {
    Quantity.LATENCY: "µs",
    Quantity.BANDWIDTH: "MB/s",
    Quantity.TIME: "s",
    Quantity.PERFORMANCE: "GFLOPS",
}


def environments() -> tuple[Environment, ...]:
    two = {"nodes": [{"backend": "container", "count": 2}]}
    guests = {"nodes": [{"backend": "vm", "count": 2}], "region": {"size": "64 MiB"}}
    native = {"nodes": [{"backend": "host", "count": 1}]}
    return (
        Environment("native", "Native, own shared memory", native, path=MessagePath.SHARED_MEMORY),
        Environment("region", "Containers with the region", two),
        Environment("network", "Containers over TCP", two, path=MessagePath.NETWORK),
        Environment("guests", "Two guests (emulated) with the region", guests),
    )


def study(name: str = "quick") -> Study:
    latency, bandwidth = Quantity.LATENCY, Quantity.BANDWIDTH
    both = (Statistic.MEDIAN, Statistic.P99)
    return Study(
        name=name,
        title="What containers and guests cost, with the region and without",
        question="What do containers and virtual machines on one host cost or save in messages of "
        "MPI, beside the same program on the host itself, and does the shared region change that?",
        source="Vicinal",
        environments=environments(),
        workloads=(
            Workload(
                "latency", "MPI latency", "record", "latency", latency, SIZES, statistics=both
            ),
            Workload(
                "bandwidth",
                "MPI bandwidth",
                "record",
                "bandwidth",
                bandwidth,
                SIZES,
                statistics=(Statistic.MEAN,),
                options={"window": 64},
            ),
            Workload(
                "put",
                "Put, passive",
                "record",
                "put",
                latency,
                (8, 1024, 65536),
                statistics=both[1:],
            ),
            Workload(
                "barrier", "Barrier", "record", "barrier", latency, ranks=4, statistics=both[:1]
            ),
            Workload(
                "allreduce",
                "Allreduce",
                "record",
                "allreduce",
                latency,
                SIZES[:8],
                ranks=4,
                statistics=both[:1],
            ),
            Workload(
                "hpl", "HPL", "hpcc", "HPL", Quantity.PERFORMANCE, statistics=(Statistic.MEAN,)
            ),
            Workload(
                "lammps",
                "LAMMPS, chain",
                "lammps",
                "chain",
                Quantity.TIME,
                statistics=(Statistic.MEAN,),
            ),
            Workload("graph500", "Graph500", "graph500", "bfs", Quantity.TIME),
        ),
        design=Design(
            comparisons=(
                Comparison("native", "region"),
                Comparison("native", "network"),
                Comparison("native", "guests"),
            ),
            trials=TRIALS,
        ),
        notes=("The published figures came from a machine of 2013 with 16 cores.",),
        adaptations=(
            Adaptation("workload allreduce: 4 ranks instead of 15", "at most two for each core"),
        ),
        unavailable={"graph500": "its program is not here: give it with --with-graph500 PATH"},
    )


def summary(chosen: Study | None = None, seed: int = 1) -> Summary:
    """A summary of plausible shape: costs grow with size, tails are long, guests are slow."""
    chance = np.random.default_rng(seed)
    about = chosen or study()
    cells = [
        _cell(chance, workload, environment.name, size, index)
        for workload in about.workloads
        if workload.name not in about.unavailable
        for index, environment in enumerate(about.environments)
        for size in workload.sizes or (None,)
        if (workload.name, environment.name) != ("hpl", "guests")
    ]
    cells += [_failed(workload) for workload in about.workloads if workload.name == "hpl"]
    compared = [
        _compared(comparison, base, test, statistic)
        for comparison in about.design.comparisons
        for test in cells
        if test.environment == comparison.test
        for base in cells
        if (base.environment, base.workload, base.size)
        == (comparison.base, test.workload, test.size)
        for statistic in test.across
    ]
    return Summary(
        study=about,
        cells=tuple(cells),
        compared=tuple(compared),
        control=ControlFound("native", 38, ("latency at 4 KiB, median: 4.1 %",), 0.041),
        published=published(),
        rules=(
            RuleChecked("Absolute values", "Beside every ratio stand both absolutes.", ()),
            RuleChecked(
                "Intervals",
                "What varies has a confidence interval.",
                ("native, put: 5 trials enclose a median with 94 % instead of 95 %",),
            ),
        ),
        warnings=(
            "Guests are emulated (QEMU's TCG, no KVM): their times say nothing of real machines.",
            "The machine differed from itself in latency at 4 KiB.",
        ),
    )


def published() -> tuple[PublishedComparison, ...]:
    """Published figures: two statistics, absolute values and ratios, with sizes and without."""
    latency, performance = Quantity.LATENCY, Quantity.PERFORMANCE
    measured = Estimate(0.31, 0.3, 0.33, 0.95)
    median = Statistic.MEDIAN
    both = ("native", "region")
    return (
        PublishedComparison(
            Published(
                "P2 fig4a", "latency", latency, 0.22, "µs", "region", size=4, statistic=median
            ),
            measured,
            adapted=True,
        ),
        PublishedComparison(
            Published(
                "P2 fig4a", "latency", latency, 12.5, "us", "network", size=4096, statistic=median
            ),
            measured,
        ),
        PublishedComparison(
            Published("P9 fig1", "latency", latency, 77.0, "µs", "region", size=4),  # the mean
            measured,
        ),
        PublishedComparison(
            Published(
                "P9 fig2",
                "latency",
                latency,
                0.61,
                "ratio",
                comparison=both,
                size=64,
                statistic=median,
            ),
            measured,
        ),
        PublishedComparison(
            Published(
                "P9 fig2",
                "latency",
                latency,
                0.035,
                "ratio",
                comparison=("network", "region"),
                size=64,
                statistic=median,
            ),
            None,
            why_not="this pair of environments is no comparison of the study",
        ),
        PublishedComparison(
            Published(
                "P2 fig4b",
                "bandwidth",
                Quantity.BANDWIDTH,
                2.58,
                "ratio",
                comparison=("network", "region"),
                note="up to",
            ),
            None,
            why_not="this pair of environments is no comparison of the study",
        ),
        PublishedComparison(
            Published("P3 fig9", "barrier", latency, 0.009, "ms", "guests", statistic=median),
            measured,
        ),
        PublishedComparison(
            Published("P2 fig7", "hpl", performance, 1.11, "ratio", comparison=both, note="up to"),
            measured,
        ),
        PublishedComparison(
            Published("P2 fig7", "hpl", performance, 45.2, "GFLOPS", "guests"),
            None,
            why_not="all trials failed",
        ),
    )


def manifest() -> dict[str, Any]:
    return {
        "schema": 1,
        "created": "2026-11-23T03:00:00+00:00",
        "seed": 20261123,
        "study": {"name": "quick"},
        "host": {
            "cpu": "Example processor @ 2.6 GHz",
            "cores": 2,
            "threads": 2,
            "memory_bytes": 24 << 30,
            "virtual": True,
            "load": 0.4,
            "network": [{"name": "eth0", "kind": "net", "driver": "virtio_net", "state": "up"}],
            "hypervisor": {"under": "kvm", "qemu": "QEMU emulator version 10.0", "libvirt": None},
        },
        "versions": {"vicinal": "0.1.0", "kernel": "6.12.0", "python": "3.11.2", "commit": "abc+"},
        "variables": {"FI_PROVIDER": "vicinal"},
        "units": {},
    }


def source(name: str = "build/studies/quick", seed: int = 1) -> Source:
    """A whole study, whose guests were emulated."""
    return Source(replace(summary(seed=seed), emulated=("guests",)), manifest(), name)


def small() -> Study:
    """A study of two workloads, and one that is unavailable."""
    about = study()
    chosen = (about.workload("latency"), about.workload("hpl"), about.workload("graph500"))
    latency = replace(chosen[0], sizes=SIZES[:3], statistics=(Statistic.MEDIAN,))
    return replace(about, workloads=(latency, *chosen[1:]))


def small_source(name: str, seed: int = 1) -> Source:
    return Source(summary(small(), seed), manifest(), name)


def hostile() -> Source:
    """A result in which every text from outside tries to be markup."""
    made = summary(small())
    about = made.study
    changed = replace(
        about,
        title=HOSTILE,
        question=HOSTILE,
        source=HOSTILE,
        environments=tuple(replace(each, title=HOSTILE) for each in about.environments),
        workloads=tuple(replace(each, title=HOSTILE) for each in about.workloads),
        notes=(HOSTILE,),
        adaptations=(Adaptation(HOSTILE, HOSTILE),),
        unavailable={"graph500": HOSTILE},
    )
    cells = tuple(replace(each, failures=(HOSTILE,)) for each in made.cells)
    facts = manifest()
    facts["host"]["cpu"] = HOSTILE
    facts["versions"]["kernel"] = HOSTILE
    facts["variables"] = {"FI_PROVIDER": HOSTILE}
    rules = (RuleChecked(HOSTILE, HOSTILE, (f"native, latency: {HOSTILE}",)),)
    hostile_summary = replace(
        made,
        study=changed,
        cells=cells,
        rules=rules,
        warnings=(HOSTILE,),
        control=ControlFound("native", 3, (HOSTILE,), 0.1),
    )
    return Source(hostile_summary, facts, HOSTILE)


def _cell(
    chance: np.random.Generator, workload: Workload, environment: str, size: int | None, index: int
) -> Cell:
    quantity = workload.quantity
    slower = (1.0, 0.72 if (size or 0) < 65536 else 1.01, 9.0, 38.0)[index]
    base = 0.3 + (size or 0) / 9000
    if quantity is Quantity.BANDWIDTH:
        base = 1e-6 * (size or 1) / (2e-7 + (size or 1) / 9e9)
    elif quantity is Quantity.TIME:
        base, slower = 42.0, (1.0, 0.95, 1.3, 11.0)[index]
    elif quantity is Quantity.PERFORMANCE:
        base, slower = 61.0, (1.0, 1.002, 1.2, 1.0)[index]
    factor = slower if quantity.lower_is_better else 1 / slower
    trials = [
        base * factor * chance.lognormal(0, 0.03) * chance.lognormal(0, 0.25, 4000)
        for _ in range(TRIALS)
    ]
    for trial in trials:
        trial[chance.random(4000) < 0.002] *= 8
    of: dict[Statistic, Callable[[NDArray[np.float64]], Any]] = {
        Statistic.MEDIAN: np.median,
        Statistic.MEAN: np.mean,
        Statistic.P99: lambda values: np.percentile(values, 99),
    }
    values = {
        statistic: tuple(float(of[statistic](trial)) for trial in trials)
        for statistic in workload.statistics
    }
    sampled = quantity in (Quantity.LATENCY, Quantity.BANDWIDTH)
    pooled = np.concatenate(trials)
    return Cell(
        environment=environment,
        workload=workload.name,
        size=size,
        quantity=quantity,
        unit=UNITS[quantity],
        trials=TRIALS,
        failures=(),
        across={statistic: median_estimate(each) for statistic, each in values.items()},
        values=values,
        pooled=describe(pooled) if sampled else None,
        tail=_tail(pooled) if sampled else (),
        parts=_parts(chance, base * factor) if workload.name == "lammps" else {},
    )


def _tail(values: "np.ndarray[Any, Any]") -> tuple[tuple[float, float], ...]:
    return tuple(zip(map(float, SHARES), map(float, np.quantile(values, SHARES)), strict=True))


def _parts(chance: np.random.Generator, total: float) -> Mapping[str, Estimate]:
    parts = {"communication": 0.24, "computation": 0.7, "other": 0.06}
    return {
        name: mean_estimate(total * part * chance.lognormal(0, 0.05, TRIALS))
        for name, part in parts.items()
    }


def _failed(workload: Workload) -> Cell:
    return Cell(
        "guests",
        workload.name,
        None,
        workload.quantity,
        "GFLOPS",
        0,
        ("rank 1 ended with signal 9 (out of memory)",),
        {},
        {},
        None,
    )


def _compared(comparison: Comparison, base: Cell, test: Cell, statistic: Statistic) -> Compared:
    ours, theirs = np.array(test.values[statistic]), np.array(base.values[statistic])
    ratio = median_estimate(ours / theirs)
    lower = base.quantity.lower_is_better
    verdict = Verdict.OPEN
    if ratio.low > 1 or ratio.high < 1:
        verdict = Verdict.BETTER if (ratio.value < 1) == lower else Verdict.WORSE
    elif abs(ratio.value - 1) < 0.02:
        verdict = Verdict.EQUIVALENT
    return Compared(
        comparison=comparison,
        workload=base.workload,
        size=base.size,
        statistic=statistic,
        quantity=base.quantity,
        unit=base.unit,
        base=base.across[statistic],
        test=test.across[statistic],
        ratio=ratio,
        gain=1 - ratio.value if lower else ratio.value - 1,
        efficiency=1 / ratio.value if lower else ratio.value,
        pairs=TRIALS,
        p_t=0.0004,
        p_signed_rank=0.0039,
        p_corrected=0.03,
        verdict=verdict,
        split=_split(base, test),
    )


def _split(base: Cell, test: Cell) -> SplitChange | None:
    if not base.parts:
        return None
    chance = np.random.default_rng(4)
    return compare_splits(_times(chance, test), _times(chance, base))


def _times(
    chance: np.random.Generator, cell: Cell
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    communication = cell.parts["communication"].value * chance.lognormal(0, 0.03, TRIALS)
    rest = sum(part.value for name, part in cell.parts.items() if name != "communication")
    return communication + rest, communication


if __name__ == "__main__":
    from vicinal.labs.report.making import write_report

    write_report([source()], Path(sys.argv[1]))
