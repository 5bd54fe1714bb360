"""Fits workloads to a machine: fewer ranks, and then a smaller problem.

With emulated virtual machines a study measures less, so that it takes minutes instead of hours: a
window of 64 messages takes such a machine a second over its virtio card. The operations and
environments stay the same. Every second power of two is measured, in as many blocks as claims need.

`cache_notes` names the bandwidths whose messages come from a cache. For Vicinal's own program
`record` the reused memory is known: the memory of one message in each rank, and for one-sided
operations a place for each message in flight. The transport's own memory also takes room in the
caches, and is not counted.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from vicinal.labs.study.file.adapt_nodes import Unavailable, count_of, hosts_of
from vicinal.labs.study.file.host_facts import HostFacts
from vicinal.labs.study.file.model import Adaptation, Environment, Quantity, Study, Workload
from vicinal.labs.study.file.reading_sizes import show
from vicinal.labs.study.file.trials import trials_needed
from vicinal.mpi.environment import MessagePath, Progress

_WAITING = 4
"""Ranks for each core, if ranks give the core away while they wait."""

_ONE_A_CORE = "at most one rank for each core if ranks poll, four if they do not, and at least 2"
_GRID = "a grid has as many places as there are ranks, and as many rows as before if possible"
_SMALLER = "each rank has as much to do as in the study"
_EMULATED = "emulated VMs are some twenty times slower"

_PAIRS = ("latency", "bandwidth", "bidirectional", "put", "get", "accumulate", "put-bidirectional")
_SQUARES = ("BT", "SP")
_CLASSES = "SWABCDE"
_ROUNDING = 1e-9

_SIZES = 8
"""Up to this many sizes are left unchanged."""
_APART = 4
_WINDOW = 8
_BLOCKS = 8

_WHY = "emulated VMs are slow: fewer sizes, messages in flight and blocks of each"
_IN_FLIGHT = ("bandwidth", "bidirectional")
"""Operations with 64 messages in flight unless the workload sets another window."""
_USUAL_WINDOW = 64

_ENDS = 2
_BOTH_WAYS = ("bidirectional", "put-bidirectional")
_PLACED = ("put", "get", "accumulate", "put-bidirectional")
"""Operations in which each message in flight has its own place."""
_MOST_IN_FLIGHT_BYTES = 32 << 20
"""Bytes that the program allows in flight, with at least one message."""


def ranks_of_host(asked: Environment, fitted: Environment, facts: HostFacts) -> int:
    """The number of ranks for which an environment, fitted to the machine, has room."""
    polls = fitted.path is not MessagePath.REGION or fitted.progress not in (
        Progress.ADAPTIVE,
        Progress.BLOCK,
    )
    cores = facts.cores * hosts_of(fitted.cluster)
    if _processors(fitted) < _processors(asked):
        cores = min(cores, _processors(fitted))
    return max(cores * (1 if polls else _WAITING), 2)


def _processors(environment: Environment) -> int:
    """The processors of an environment's virtual machines."""
    groups = [each for each in environment.cluster["nodes"] if each.get("backend") == "vm"]
    return sum(count_of(group) * int(group.get("cpus", 1)) for group in groups)


def fit_workload(
    workload: Workload,
    facts: HostFacts,
    most: int,
    emulated: bool,
    adaptations: list[Adaptation],
) -> Workload:
    """The workload on at most `most` ranks; appends the changes to `adaptations`.

    Raises Unavailable if the machine lacks something that the workload needs.
    """
    if workload.unsupported is not None:
        raise Unavailable(workload.unsupported)
    if workload.driver == "perftest" and not facts.rdma:
        raise Unavailable(
            "verbs need an RDMA device with an active port, and this machine has none"
        )
    ranks = _ranks(workload, most)
    changes: list[tuple[str, str]] = []
    if ranks != workload.ranks:
        changes.append((f"{ranks} ranks instead of {workload.ranks}", _ONE_A_CORE))
    options = _problem(workload, workload.ranks / ranks, emulated, changes)
    grid = _grid(ranks, options)
    if grid is not None:
        changes.append((f"grid {grid} instead of {options['grid']}", _GRID))
        options["grid"] = grid
    adaptations += [Adaptation(f"workload {workload.name}: {what}", why) for what, why in changes]
    return replace(workload, ranks=ranks, options=options)


def _ranks(workload: Workload, most: int) -> int:
    if workload.ranks <= most:
        return workload.ranks
    fits = _shape(workload)
    for ranks in range(most, 1, -1):
        if fits(ranks):
            return ranks
    raise Unavailable(
        f"{workload.operation} needs a number of ranks that is {fits.__doc__}, and there is room "
        f"only for {most}"
    )


def _shape(workload: Workload) -> Callable[[int], bool]:
    """A function that says whether a workload runs on a number of ranks; its docstring names the
    rule.
    """

    def square(ranks: int) -> bool:
        """a square"""
        return math.isqrt(ranks) ** 2 == ranks

    def power(ranks: int) -> bool:
        """a power of two"""
        return ranks & (ranks - 1) == 0

    def even(ranks: int) -> bool:
        """even"""
        return ranks % 2 == 0

    def free(ranks: int) -> bool:
        """any"""
        return ranks > 0

    if workload.driver == "npb":
        return square if workload.operation.upper() in _SQUARES else power
    if workload.driver == "graph500":
        return power
    return even if workload.operation in _PAIRS else free


def _problem(
    workload: Workload, fewer: float, emulated: bool, changes: list[tuple[str, str]]
) -> dict[str, Any]:
    """The options with a smaller problem; `fewer` is the factor by which ranks were reduced."""
    options = dict(workload.options)
    name = _PROBLEMS.get(workload.driver, "")
    for factor, slow, why in ((fewer, False, _SMALLER), (1.0, emulated, _EMULATED)):
        # The driver refuses invalid values.
        if type(options.get(name)) is int and options[name] > 0:
            new: int | str = _smaller_number(workload.driver, options[name], factor, slow)
        elif options.get(name) in tuple(_CLASSES):
            new = _smaller_class(options[name], factor, slow)
        else:
            break
        if new != options[name]:
            changes.append((f"{name} {new} instead of {options[name]}", why))
            options[name] = new
    return options


_PROBLEMS = {
    "npb": "class",
    "hpcc": "size",
    "graph500": "scale",
    "transform": "size",
    "lammps": "steps",
}
"""Each driver's option for the size of its problem."""


def _smaller_class(letter: str, fewer: float, slow: bool) -> str:
    """A smaller class of NPB: work grows about fourfold from class to class."""
    index = _CLASSES.index(letter) - math.ceil(math.log(fewer, 4) - _ROUNDING)
    return _CLASSES[max(index - (2 if slow else 0), 0)]


def _smaller_number(driver: str, number: int, fewer: float, slow: bool) -> int:
    match driver:
        case "hpcc":  # order of a matrix: the same memory for each rank
            if fewer == 1 and not slow:
                return number
            less = int(number / math.sqrt(fewer)) // (8 if slow else 1)
            return _at_least(128, number, less // 100 * 100)
        case "graph500":  # 2^scale vertices
            halves = math.ceil(math.log2(fewer) - _ROUNDING) + (4 if slow else 0)
            return _at_least(8, number, number - halves)
        case "transform":  # side of a cube: half of it for each factor of eight
            return _at_least(16, number, number >> round(math.log2(fewer) / 3) + (1 if slow else 0))
        case _:  # time steps, for an unchanged number of atoms
            return _at_least(10, number, number // (10 if slow else 1))


def _at_least(least: int, asked: int, fewer: int) -> int:
    return max(fewer, min(asked, least))


def _grid(ranks: int, options: dict[str, Any]) -> str | None:
    """HPL's grid of processes, rows x columns, for this number of ranks; None if it need not
    change.
    """
    found = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", str(options.get("grid", "")), re.ASCII)
    if found is None or int(found[1]) * int(found[2]) == ranks:
        return None
    rows = max(each for each in range(1, min(int(found[1]), ranks) + 1) if ranks % each == 0)
    return f"{rows}x{ranks // rows}"


def less_of_workload(workload: Workload, adaptations: list[Adaptation]) -> Workload:
    """The workload with fewer sizes and a smaller window, if Vicinal's own program runs it."""
    if workload.driver != "record":
        return workload
    options: dict[str, Any] = dict(workload.options)
    said = []
    sizes = _some(workload.sizes)
    if len(sizes) < len(workload.sizes):
        said.append(f"{len(sizes)} sizes instead of {len(workload.sizes)}")
    usual = _USUAL_WINDOW if workload.operation in _IN_FLIGHT else 0
    window = options.get("window", usual)
    if type(window) is int and window > _WINDOW:
        said.append(f"window {_WINDOW} instead of {window}")
        options["window"] = _WINDOW
    adaptations += [Adaptation(f"workload {workload.name}: {what}", _WHY) for what in said]
    return replace(workload, sizes=sizes, options=options)


def less_blocks(study: Study, adaptations: list[Adaptation]) -> Study:
    """The study with as many blocks as its claims need, at least eight."""
    design = study.design
    most = design.most_trials or design.trials
    fewer = max(_BLOCKS, trials_needed(study))
    if most <= fewer:
        return study
    trials = min(design.trials, fewer)
    adaptations.append(Adaptation(f"design: {fewer} blocks instead of {most}", _WHY))
    capped = fewer if design.most_trials is not None else None
    return replace(study, design=replace(design, trials=trials, most_trials=capped))


def published_of_sizes(study: Study) -> Study:
    """The study without published figures of sizes that are not measured.

    A stand-in may have other sizes than the part for which it stands, or none.
    """
    sizes = {each.name: each.sizes for each in study.workloads}
    published = tuple(
        each
        for each in study.published
        if each.size in sizes[each.workload]
        or (each.size is None and not (sizes[each.workload] and each.environment))
    )
    return replace(study, published=published)


def _some(sizes: Sequence[int]) -> tuple[int, ...]:
    """The smallest size, then each size that is _APART times the previous one, and the largest."""
    if len(sizes) <= _SIZES:
        return tuple(sizes)
    ordered = sorted(sizes)
    kept = ordered[:1]
    for size in ordered[1:]:
        if size >= kept[-1] * _APART or size == ordered[-1]:
            kept.append(size)
    return tuple(kept)


def cache_notes(study: Study, facts: HostFacts) -> Iterator[str]:
    """A sentence for each workload whose bandwidths are those of a cache of the machine."""
    cache = facts.cache_bytes
    if not cache:
        return
    for workload in study.workloads:
        used = _used_bytes(workload)
        fitting = [size for size in used if used[size] <= cache]
        if workload.name in study.unavailable or not fitting:
            continue
        largest = max(fitting)
        which = "all sizes" if len(fitting) == len(used) else f"up to {show(largest)}"
        yield (
            f"workload {workload.name}: the memory of messages of {which}, {show(used[largest])} "
            f"of all ranks together, fits in the last-level cache ({show(cache)}): these "
            "bandwidths are the cache's, and larger than bandwidths of data from memory"
        )


def _used_bytes(workload: Workload) -> dict[int, int]:
    """Bytes that all ranks reuse, by size; empty if unknown, or if the workload measures no
    bandwidth.
    """
    if workload.driver != "record" or workload.quantity is not Quantity.BANDWIDTH:
        return {}
    if workload.operation not in ("bandwidth", *_BOTH_WAYS, *_PLACED):
        return {}
    return {size: _messages(workload, size) * size for size in _positive(workload.sizes)}


def _messages(workload: Workload, size: int) -> int:
    """The number of messages with their own place, at both ends and in all pairs."""
    ends = _ENDS * (workload.ranks // 2)
    if workload.operation in _BOTH_WAYS:
        ends *= 2
    if workload.operation not in _PLACED:
        return ends
    window = workload.options.get("window", 1)
    if type(window) is not int:
        return ends  # the driver refuses it
    return ends * max(1, min(window, _MOST_IN_FLIGHT_BYTES // size))


def _positive(sizes: Sequence[int]) -> list[int]:
    return [size for size in sizes if size > 0]
