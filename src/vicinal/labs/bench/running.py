"""`vicinal bench`: measures the bars and the limits of the machine, and decides which are met."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.base.errors import VicinalError
from vicinal.base.progress import Steps, show_steps
from vicinal.base.sizes import show_exact_size
from vicinal.labs.bench.bars import Bar, Group
from vicinal.labs.bench.compare import Rounds, alternate, decide, unmeasured_row
from vicinal.labs.bench.jobs import Amount, Stage
from vicinal.labs.bench.metric import Metric, Trial
from vicinal.labs.bench.own_figures import measure_own
from vicinal.labs.bench.result import result_head
from vicinal.labs.bench.setup import is_setup, measure_setup
from vicinal.labs.bench.sides import CACHE_LINE, PIPELINED_COPY, Limit, Scenario
from vicinal.labs.programs import memory_program, run_program
from vicinal.labs.provenance import changes
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.study.result.whole import write_json
from vicinal.mpi.libraries import Mpi

PRIORITY = 50
_TIMEOUT_SECONDS = 300.0
_FIELDS = {"nanoseconds": "ns", "megabytes_per_second": "MB/s"}


@dataclass
class Partial:
    """The finished groups in a directory, with a file for each.

    Rows are only comparable with rows that were measured under the same conditions. So each file
    contains its conditions, and only files with equal conditions are used again.
    """

    directory: Path
    conditions: Mapping[str, Any]
    """Versions, cores and amounts, which must be equal."""
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The rows that were found, by name."""
    differences: list[str] = field(default_factory=list)
    """The reasons why files were not used, as phrases."""

    def load(self) -> None:
        """Load the groups that can be used again. `differences` gets the reasons for others."""
        for path in sorted(self.directory.glob("*.json")):
            try:
                kept = json.loads(path.read_text())
                before, rows = kept["conditions"], kept["rows"]
            except (OSError, ValueError, KeyError, TypeError):
                self.differences.append(f"{path.name} cannot be read")
                continue
            names = sorted({*before, *self.conditions})
            reasons = changes(
                ((each, before.get(each), self.conditions.get(each)) for each in names), "unknown"
            )
            # Whoever goes on has mended what went wrong, or wants to see it again.
            reasons += [f"{row['name']} failed" for row in rows if row.get("failed")]
            if reasons:
                self.differences += [f"{path.stem}: {each}" for each in reasons]
            else:
                self.rows |= {row["name"]: row for row in rows}

    def clear(self) -> None:
        """Remove the kept groups of the directory."""
        for path in self.directory.glob("*.json"):
            path.unlink(missing_ok=True)

    def keep(self, group: str, rows: list[dict[str, Any]]) -> None:
        """Store the rows of a finished group. Raises VicinalError if they cannot be written."""
        kept = {"conditions": dict(self.conditions), "rows": rows}
        write_json(self.directory / f"{group}.json", kept)


@dataclass(frozen=True)
class BenchPlan:
    """What a bench measures, how much, and how."""

    groups: Sequence[Group]
    amount: Amount
    partial: Path
    """The directory of finished groups."""
    resume: bool = False
    """Whether to use finished groups of the directory."""
    realtime: bool = False

    @property
    def nodes(self) -> int:
        """The number of nodes of the widest scenario."""
        return max([2, *(each.nodes for each in self._scenarios if not each.guests)])

    @property
    def mpis(self) -> list[Mpi]:
        """The MPI libraries that can be measured."""
        return sorted({each.mpi for each in self._scenarios if not each.unavailable()})

    def steps(self, group: Group) -> int:
        """The approximate number of starts of a program for a group."""
        runs = len(_runnable(group).sides) * self.amount.trials
        return runs + sum(not bar.theirs for bar in group.bars)

    @property
    def _scenarios(self) -> list[Scenario]:
        sides = [side for group in self.groups for side in group.sides.values()]
        return [side for side in sides if isinstance(side, Scenario)]


def run_bench(plan: BenchPlan) -> dict[str, Any]:
    """Measure a plan and return the result, which has a row for each bar in the plan's order.

    Finished groups are stored while the plan runs. Raises VicinalError if nothing can be measured.
    """
    with Stage(plan.nodes) as stage, show_steps(1 + sum(map(plan.steps, plan.groups))) as steps:
        steps.begin("the limits of this machine")
        head = result_head(
            plan.mpis,
            cpus=stage.cpus,
            amount=plan.amount,
            limitations=stage.limitations,
            realtime=plan.realtime,
        )
        partial = Partial(plan.partial, _conditions(head))
        if plan.resume:
            partial.load()
        else:
            partial.clear()
        for difference in partial.differences:
            steps.say(f"measured anew: {difference}")
        with realtime(plan.realtime):
            limits = measure_limits(stage.cpus, plan.amount.repetitions)
        steps.finish()
        rows = partial.rows
        for group in plan.groups:
            if all(bar.name in rows for bar in group.bars):
                steps.skip(plan.steps(group))
                continue
            measured = _measure_group(stage, group, plan, steps)
            partial.keep(group.name, measured)
            rows |= {row["name"]: row for row in measured}
    return head | {
        "format": "vicinal-bench-2",
        "limits": limits,
        "groups": [{"name": group.name, "title": group.title} for group in plan.groups],
        "rows": [rows[bar.name] for group in plan.groups for bar in group.bars],
    }


def _conditions(head: Mapping[str, Any]) -> dict[str, Any]:
    host = {name: value for name, value in head["host"].items() if name != "load"}
    return {**head["versions"], **head["conditions"], **host}


def _runnable(group: Group) -> Group:
    """The group without bars that cannot be measured, and without unavailable sides."""
    bars = [
        bar
        for bar in group.bars
        if bar.theirs and not bar.waits_for and group.sides[bar.ours].unavailable() is None
    ]
    kept = group.only(bars)
    sides = {name: side for name, side in kept.sides.items() if side.unavailable() is None}
    return Group(kept.name, kept.title, kept.bars, sides)


def _measure_group(
    stage: Stage, group: Group, plan: BenchPlan, steps: Steps
) -> list[dict[str, Any]]:
    runnable = _runnable(group)
    oversubscribed = any(
        isinstance(side, Scenario) and side.ranks > len(stage.cpus)
        for side in runnable.sides.values()
    )
    # Ranks that share a core need the scheduler that ordinary programs have.
    with realtime(plan.realtime and not oversubscribed):

        def run(name: str) -> Mapping[Metric, Trial]:
            steps.begin(f"{group.title}: {runnable.sides[name].title}")
            try:
                return _run_side(stage, runnable, name, plan.amount)
            finally:
                steps.finish()

        rounds = Rounds()
        if runnable.sides:
            rounds = alternate(
                list(runnable.sides), plan.amount.trials, run, lambda: line_nanoseconds(stage.cpus)
            )
        for name, side in group.sides.items():
            reason = side.unavailable()
            if reason is not None:
                rounds.missing[name] = reason
        rows = []
        for bar in group.bars:
            if bar.theirs:
                rows.append(_decide(stage, bar, group, rounds))
            else:
                steps.begin(bar.title)
                rows.append(_measure_alone(stage, bar, group, plan.amount))
                steps.finish()
    return rows


def _decide(stage: Stage, bar: Bar, group: Group, rounds: Rounds) -> dict[str, Any]:
    row = decide(bar, group, rounds)
    ours = group.sides[bar.ours]
    if isinstance(ours, Scenario):
        row["notes"] += stage.notes(ours)
    return row


def _run_side(stage: Stage, group: Group, name: str, amount: Amount) -> Mapping[Metric, Trial]:
    """Run one trial of a side."""
    side, wanted = group.sides[name], group.sizes(name)
    if isinstance(side, Scenario):
        return stage.measure(side, wanted, amount)
    ((metric, sizes),) = wanted.items()
    assert isinstance(side, Limit), "a cluster that is made is compared with nothing"
    if side.kind == CACHE_LINE:
        microseconds = line_nanoseconds(stage.cpus) / 1000
        return {metric: Trial([], "", {size: [microseconds] for size in sizes})}
    return {metric: pipelined_copy(stage.cpus, sizes, amount.repetitions)}


def _measure_alone(stage: Stage, bar: Bar, group: Group, amount: Amount) -> dict[str, Any]:
    """The row of a bar on a figure that only Vicinal has."""
    reason = f"waits for {bar.waits_for}" if bar.waits_for else group.sides[bar.ours].unavailable()
    if reason is not None:
        return unmeasured_row(bar, group, reason)
    try:
        if is_setup(bar):
            return measure_setup(bar, group, amount.trials)
        return measure_own(stage, bar, group)
    except VicinalError as error:
        return unmeasured_row(bar, group, error.message, failed=True)


@contextmanager
def realtime(wanted: bool) -> Iterator[None]:
    """Run processes that are started within this context before all others on their cores.

    The policy is round robin and not first in, first out, because two ranks that wait for each
    other on one core would wait for ever. The kernel leaves a twentieth of each second to other
    processes. Raises VicinalError if this process lacks the permission.
    """
    if not wanted:
        yield
        return
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    except PermissionError as error:
        raise VicinalError(
            "this process may not use real-time priority",
            "be root, raise `ulimit -r` to 50, or leave out --realtime",
        ) from error
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def run_memory(cpus: Sequence[int], arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The records that programs/memory.c prints on two CPUs, one for each measurement.

    Raises VicinalError if the program fails.
    """
    command = [str(memory_program()), *map(str, cpus), *arguments]
    return run_program(
        command,
        _TIMEOUT_SECONDS,
        failed="the machine's limits could not be measured: {}",
        late="measuring the machine's limits took too long",
        remedy="see that both CPUs are usable",
    )


def line_nanoseconds(cpus: Sequence[int]) -> float:
    """The current time in ns of a cache line between two CPUs. The call takes some 20 ms."""
    (record,) = run_memory(cpus, ["--only", "line", "--repetitions", "1"])
    return float(record["nanoseconds"])


def pipelined_copy(cpus: Sequence[int], sizes: Sequence[int], repetitions: int) -> Trial:
    """Bandwidth of two cores that copy through shared chunks, with the best for each size."""
    arguments = ["--only", "pipeline", "--sizes", ",".join(map(str, sizes))]
    records = run_memory(cpus, [*arguments, "--repetitions", str(repetitions)])
    return Trial(hosts=[], mpi="", repetitions=_best_chunks(records))


def _best_chunks(records: Sequence[dict[str, Any]]) -> dict[int, list[float]]:
    """The repetitions of each size with its best chunk size."""
    found: dict[int, dict[tuple[int, str], list[float]]] = {}
    for record in records:
        if record["limit"] == PIPELINED_COPY:
            kinds = found.setdefault(record["size"], {})
            kind = record["chunk"], record["way"]
            kinds.setdefault(kind, []).append(record["megabytes_per_second"])
    return {
        size: max(kinds.values(), key=lambda values: float(np.median(values)))
        for size, kinds in found.items()
    }


def measure_limits(cpus: Sequence[int], repetitions: int) -> list[dict[str, Any]]:
    """The time of a cache line and the bandwidth of copies on two CPUs, by programs/memory.c."""
    values: dict[tuple[str, str, int | None], list[float]] = {}
    records = run_memory(cpus, ["--repetitions", str(repetitions)])
    for record in records:
        field = next(name for name in _FIELDS if name in record)
        key = (record["limit"], field, record.get("size"))
        if record["limit"] != PIPELINED_COPY:
            values.setdefault(key, []).append(record[field])
    for size, copies in _best_chunks(records).items():
        values[PIPELINED_COPY, "megabytes_per_second", size] = copies
    return [
        {
            "title": _title(limit, size),
            "unit": _FIELDS[field],
            "size": size,
            "median": median_estimate(repeated).to_dict(),
            "raw": [repeated],
        }
        for (limit, field, size), repeated in values.items()
    ]


def _title(limit: str, size: int | None) -> str:
    if size is None:
        return Limit(limit).title
    if limit == PIPELINED_COPY:
        return f"{Limit(limit).title}, {show_exact_size(size)}"
    return f"{limit} of {show_exact_size(size)} on one core"
