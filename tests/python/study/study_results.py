"""Results of studies that never ran, as folders: a simulated machine with a known truth.

    study_results.py FOLDER

writes the example there: three environments and an A/A control, latency, bandwidth, a broadcast, an
HPL and a LAMMPS. And

    study_results.py --small FOLDER SEED

writes a small result of two environments. Nothing in the results was measured, and their manifests
say so.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.labs.study.analysis.units import can_be
from vicinal.labs.study.file.json_form import study_to_json
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
    control_name,
)
from vicinal.labs.study.result.layout import (
    COMMUNICATION_TIME,
    SCHEMA,
    TOTAL_TIME,
    UNITS,
    Condition,
    Figure,
    ProgramFact,
    SeriesFacts,
    StoredTrial,
    Trial,
)
from vicinal.labs.study.result.reading import Result, open_result
from vicinal.labs.study.result.samples import Series
from vicinal.labs.study.result.writing import ResultWriter
from vicinal.mpi.environment import MessagePath

STARTED = "2026-11-23T00:00:00+00:00"

CONDITIONS = {
    Condition.LOAD.value: 0.1,
    Condition.PROGRAM.value: {ProgramFact.CLOCK.value: "counter"},
}
"""Conditions of a handmade trial, which the rules of benchmarking require."""

NATIVE = Environment(
    "native",
    "native, MPI's own shared memory",
    {"nodes": [{"name": "host", "backend": "host"}], "region": "none"},
    path=MessagePath.SHARED_MEMORY,
)
NETWORK = Environment(
    "containers-network",
    "two containers, their network",
    {"nodes": [{"name": "node", "count": 2}], "region": "none"},
    path=MessagePath.NETWORK,
)
REGION = Environment(
    "containers-region",
    "two containers, a region",
    {"nodes": [{"name": "node", "count": 2}], "region": {"members": 4}},
)
GUESTS = Environment(
    "guests",
    "two virtual machines, a region",
    {"nodes": [{"name": "vm", "backend": "vm", "count": 2}], "region": {"members": 4}},
)

LATENCY = Workload(
    "latency",
    "Latency",
    "record",
    "latency",
    Quantity.LATENCY,
    sizes=tuple(4**power for power in range(1, 11)),
    samples=400,
)
BANDWIDTH = Workload(
    "bandwidth",
    "Bandwidth",
    "record",
    "bandwidth",
    Quantity.BANDWIDTH,
    sizes=tuple(4**power for power in range(1, 11)),
    samples=200,
    statistics=(Statistic.MEDIAN,),
)
BCAST = Workload(
    "bcast",
    "Broadcast",
    "record",
    "bcast",
    Quantity.LATENCY,
    sizes=(8, 128, 2048, 32768),
    ranks=4,
    samples=400,
)
HPL = Workload(
    "hpl", "HPL", "hpcc", "hpl", Quantity.PERFORMANCE, ranks=4, statistics=(Statistic.MEDIAN,)
)
LAMMPS = Workload(
    "lammps-chain",
    "LAMMPS, chain",
    "lammps",
    "chain",
    Quantity.TIME,
    ranks=4,
    statistics=(Statistic.MEAN,),
)

EXAMPLE = Study(
    name="example",
    title="An example that nobody measured",
    question="What does a result look like from which everything can be computed?",
    source="simulated",
    environments=(NATIVE, NETWORK, REGION, GUESTS),
    workloads=(LATENCY, BANDWIDTH, BCAST, HPL, LAMMPS),
    design=Design(
        comparisons=(
            Comparison(NETWORK.name, REGION.name, "what a region saves"),
            Comparison(NATIVE.name, REGION.name, "what containers cost"),
        ),
        trials=12,
        control=REGION.name,
    ),
    published=(
        Published("P2 fig4", "latency", Quantity.LATENCY, 0.22, "µs", REGION.name, size=4),
        Published(
            "P2 fig4",
            "latency",
            Quantity.LATENCY,
            0.18,
            "ratio",
            comparison=(NETWORK.name, REGION.name),
            size=4,
        ),
        Published(
            "P2 fig7", "hpl", Quantity.PERFORMANCE, 45.2, "GFLOPS", "guests", note="read off"
        ),
    ),
    notes=("Simulated: nothing here was measured.",),
    adaptations=(Adaptation("workload bcast: 4 ranks instead of 15", "at most a rank a core"),),
    unavailable={"guests": "no /dev/kvm that works"},
)

SMALL = replace(
    EXAMPLE,
    name="small",
    environments=(NATIVE, REGION),
    workloads=(replace(LATENCY, sizes=(8, 64), samples=500),),
    design=Design(
        comparisons=(Comparison(NATIVE.name, REGION.name),), trials=9, control=NATIVE.name
    ),
    published=(),
    adaptations=(),
    unavailable={},
)
"""One workload, and one question."""

COSTS: Mapping[str, float] = {NATIVE.name: 1.0, NETWORK.name: 12.0, REGION.name: 1.1}
"""Times of the environments, relative to native."""


@dataclass(frozen=True)
class SimulatedHost:
    """Disturbances of trials: factors of their times that change nothing on average."""

    trial: float = 0.02
    """The scatter of fresh starts."""
    block: float = 0.02
    """The drift of the machine from block to block."""
    sample: float = 0.05
    hit: float = 0.0
    """The share of trials that are interrupted, which costs up to twice the trial's time."""
    conditions: Mapping[str, Any] = field(
        default_factory=lambda: {Condition.LOAD: 0.4, Condition.STEAL: 0.0}
    )
    program: Mapping[str, Any] = field(
        default_factory=lambda: {
            ProgramFact.CLOCK: "counter",
            ProgramFact.RECORDING: 10.0,
            ProgramFact.APART: True,
        }
    )


Drawn = tuple[Trial, list[Series]]


def trials_of(
    study: Study,
    seed: int = 1,
    *,
    costs: Mapping[str, float] = COSTS,
    host: SimulatedHost | None = None,
) -> Iterator[Drawn]:
    """The trials of a study, block by block, each block in random order."""
    chance = np.random.default_rng(seed)
    host = host or SimulatedHost()
    names = [each.name for each in study.environments if each.name not in study.unavailable]
    controlled = study.design.control
    if controlled is not None:
        names.append(control_name(controlled))
    drift = 0.0
    for block in range(study.design.trials):
        drift += float(chance.normal(0, host.block))
        for name in chance.permutation(names):
            cost = costs[str(name).removesuffix(control_name(""))]
            for workload in study.workloads:
                factor = cost * np.exp(drift + chance.normal(0, host.trial))
                if chance.random() < host.hit:
                    factor *= np.exp(chance.exponential(0.25))
                yield _trial(str(name), workload, block, factor, host, chance)


def _trial(
    name: str,
    workload: Workload,
    block: int,
    factor: float,
    host: SimulatedHost,
    chance: np.random.Generator,
) -> Drawn:
    series: list[Series] = []
    figures: tuple[Figure, ...] = ()
    if workload.driver == "record":
        series = _series(workload, factor, host, chance)
    else:
        figures = _figures(workload, factor)
    conditions = {str(key): value for key, value in host.conditions.items()}
    conditions[Condition.PROGRAM.value] = {str(key): value for key, value in host.program.items()}
    return Trial(name, workload.name, block, STARTED, 1.5, conditions, figures), series


def _series(
    workload: Workload, factor: float, host: SimulatedHost, chance: np.random.Generator
) -> list[Series]:
    collective = workload.operation == "bcast"
    messages = {"latency": 2, "bandwidth": 64}.get(workload.operation, 1)
    found = []
    for size in workload.sizes or (0,):
        common = np.exp(chance.normal(0, host.sample, workload.samples))
        for rank in range(workload.ranks if collective else max(1, workload.ranks // 2)):
            own = chance.gamma(1, host.sample, workload.samples)
            times = messages * factor * (200 + size / 8) * common * (1 + own)
            found.append(Series(size, rank, messages, times.round().astype(np.int64)))
    return found


def _figures(workload: Workload, factor: float) -> tuple[Figure, ...]:
    communication, total = 0.4 * factor, 0.4 * factor + 6.0
    times = (
        Figure(TOTAL_TIME, total, "s"),
        Figure(COMMUNICATION_TIME, communication, "s"),
    )
    if can_be("GFLOPS", workload.quantity):
        return (Figure("GFLOPS", 400 / total, "GFLOPS"), *times)
    return times


def manifest_of(study: Study, seed: int = 1) -> dict[str, Any]:
    """The manifest of a machine that does not exist."""
    return {
        "schema": SCHEMA,
        "study": study_to_json(study),
        "created": STARTED,
        "seed": seed,
        "host": {
            "cpu": "simulated",
            "cores": 4,
            "threads": 8,
            "memory_bytes": 1 << 34,
            "virtual": False,
            "load": 0.4,
            "network": [],
            "hypervisor": {"under": None, "qemu": None, "libvirt": None},
        },
        "versions": {"vicinal": "0.1.0", "kernel": "6.12.0", "python": "3.11.2", "commit": "abc"},
        "variables": {},
        "units": UNITS,
    }


def write_result(
    folder: Path,
    study: Study = EXAMPLE,
    seed: int = 1,
    *,
    costs: Mapping[str, float] = COSTS,
    host: SimulatedHost | None = None,
    failing: Mapping[tuple[str, str], str] | None = None,
) -> Result:
    """Write a result of simulated trials; `failing` maps (environment, workload) to a failure."""
    with ResultWriter.create(folder, manifest_of(study, seed)) as writer:
        for trial, series in trials_of(study, seed, costs=costs, host=host):
            reason = (failing or {}).get((trial.environment, trial.workload))
            if reason is None:
                writer.add(trial, series)
            else:
                writer.add_failure(replace(trial, figures=()), reason, {"stderr": b"it broke\n"})
    return open_result(folder)


class InMemory(Result):
    """A result without a folder."""

    kept: dict[int, list[Series]]

    def series(
        self,
        stored: StoredTrial,
        *,
        sizes: Any = None,
        ranks: Any = None,
    ) -> Iterator[Series]:
        del sizes, ranks
        yield from self.kept[stored.number]


def in_memory(
    study: Study,
    seed: int = 1,
    *,
    drawn: Sequence[Drawn] | None = None,
    costs: Mapping[str, float] = COSTS,
    host: SimulatedHost | None = None,
    change: Callable[[StoredTrial], StoredTrial] = lambda stored: stored,
) -> InMemory:
    """Like write_result(), but much faster, for many studies; `change` may change each trial."""
    stored, kept = [], {}
    trials = drawn or list(trials_of(study, seed, costs=costs, host=host))
    for number, (trial, series) in enumerate(trials, 1):
        facts = tuple(
            SeriesFacts(each.size, each.rank, each.messages, len(each.nanoseconds))
            for each in series
        )
        stored.append(change(StoredTrial(number, trial, series=facts)))
        kept[number] = series
    result = InMemory(Path("nowhere"), manifest_of(study, seed), stored)
    object.__setattr__(result, "kept", kept)
    return result


def times(*nanoseconds: float) -> NDArray[np.int64]:
    """Handmade samples."""
    return np.array(nanoseconds, dtype=np.int64)


if __name__ == "__main__":
    if sys.argv[1] == "--small":
        made = write_result(Path(sys.argv[2]), SMALL, int(sys.argv[3]))
    else:
        made = write_result(Path(sys.argv[1]))
    print(made.folder)
