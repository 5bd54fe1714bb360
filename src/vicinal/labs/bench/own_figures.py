"""Figures that only Vicinal has, which are compared with no other path.

They are the costs of endpoints, connections and idle peers (memory of the region, polls and
messages), and the time that the network path adds to the core provider's. The memory of MPI
libraries is read from the region of a job. The programs in programs/fabric measure all other
figures by libfabric, without MPI.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.labs.bench.bars import (
    ACROSS_NETWORK,
    EMPTY_POLL,
    IDLE_ENDPOINT,
    IDLE_PEERS,
    PEER_MEMORY,
    RING_MEMORY,
    Bar,
    Group,
)
from vicinal.labs.bench.compare import make_row, side_entry
from vicinal.labs.bench.jobs import Stage
from vicinal.labs.bench.sides import Scenario
from vicinal.labs.programs import fabric_program, read_records, run_program
from vicinal.labs.statistics.describe import median_estimate
from vicinal.labs.statistics.ratio import ratio_estimate
from vicinal.mpi.environment import provider_directory
from vicinal.region import Region, RegionState, create, inspect

PEERS = 64
_MEMBERS = PEERS + 1
NETWORK_PEERS = 32
_STARTS = 2
_IDLE_PEERS_STARTS = 7
_ACROSS_STARTS = 7
_REPETITIONS = 5
_TIMEOUT_SECONDS = 150.0
RANKS = 8
"""Ranks of the jobs that show how ring memory grows: many more pairs than neighbours."""


def measure_own(stage: Stage, bar: Bar, group: Group) -> dict[str, Any]:
    """The row of a bar on such a figure. Raises VicinalError if a program fails."""
    scenario = group.sides[bar.ours]
    assert isinstance(scenario, Scenario), "the figures are those of a job or of endpoints"
    return _MEASURES[bar.metric](stage, bar, scenario) | {"group": group.name}


def _job_region(stage: Stage, scenario: Scenario, talking: str, ranks: int) -> RegionState:
    region = stage.run(scenario, "pairs", [talking], ranks).region
    assert region is not None, "jobs on the path region have one"
    return region


def _idle_endpoint(stage: Stage, bar: Bar, scenario: Scenario) -> dict[str, Any]:
    """The region's size without heaps divided by its slots, headers and tables included.

    A member's section is reserved when the member joins, used or not. So this is the memory of an
    endpoint that never sends anything. Bytes do not vary: one trial is enough.
    """
    header = _job_region(stage, scenario, "none", 2).header
    cost = header.first_bytes / header.members
    detail = {"region_bytes": header.first_bytes, "members": header.members}
    side = side_entry(bar.ours, scenario, "B", [[cost]], detail)
    return make_row(bar, median_estimate([cost]), unit="bytes", trials=1, ours=side, theirs=None)


def _rings(stage: Stage, bar: Bar, scenario: Scenario) -> dict[str, Any]:
    """The arena in use if only neighbours talk, against the arena in use if every pair talks."""
    sides = []
    for talking in ("neighbours", "all"):
        region = _job_region(stage, scenario, talking, RANKS)
        used = sum(member.arena_used for member in region.members)
        detail = {
            "talking": talking,
            "ranks": RANKS,
            "connections": len(region.connections),
            "pairs": RANKS * (RANKS - 1),
        }
        sides.append(side_entry(bar.ours, scenario, "B", [[used]], detail))
    neighbours, everybody = sides
    ratio = ratio_estimate([neighbours["median"]["value"]], [everybody["median"]["value"]])
    return make_row(bar, ratio, unit="ratio", trials=1, ours=neighbours, theirs=everybody)


@contextmanager
def _region() -> Iterator[Region]:
    directory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(
            prefix="vicinal-bench-", dir=directory if directory.is_dir() else None
        ) as folder,
        create(Path(folder) / "region", members=_MEMBERS, label="bench peers") as region,
    ):
        yield region


def _run(command: Sequence[str], region: Region) -> list[dict[str, Any]]:
    """The output of a program in programs/fabric with endpoints in a region."""
    name = Path(command[0]).name
    return run_program(
        command,
        _TIMEOUT_SECONDS,
        failed=f"{name} failed ({{}})",
        late=f"{name} did not end",
        remedy="run it by hand",
        variables={
            "FI_PROVIDER": "vicinal",
            "FI_PROVIDER_PATH": str(provider_directory()),
            "VICINAL_REGION": region.name,
        },
    )


def _run_peers(stage: Stage, region: Region, peers: int) -> list[dict[str, Any]]:
    """Run programs/fabric/peers.c: an endpoint and its peers in one region, on one CPU."""
    program = str(fabric_program("peers"))
    pinned = ["taskset", "-c", str(stage.cpus[0]), program]
    with_peers = [*pinned, str(peers), str(_REPETITIONS)]
    return _run(with_peers, region)


def _peers_memory(stage: Stage, bar: Bar, scenario: Scenario) -> dict[str, Any]:
    """The size of a region divided by its members, one of which talked with all others.

    `peers_arena_bytes` is the part of the endpoint's section that its connections use.
    """
    with _region() as region:
        _run_peers(stage, region, PEERS)
        state: RegionState = inspect(region.path, patience=0)
    header = state.header
    cost = header.first_bytes / header.members
    most = max(member.arena_used for member in state.members)
    detail = {
        "region_bytes": header.first_bytes,
        "members": header.members,
        "peers": PEERS,
        "arena_used_bytes": most,
        "connections": len(state.connections),
    }
    side = side_entry(bar.ours, scenario, "B", [[cost]], detail)
    return make_row(bar, median_estimate([cost]), unit="bytes", trials=1, ours=side, theirs=None)


def _poll(stage: Stage, bar: Bar, scenario: Scenario) -> dict[str, Any]:
    """The time in ns of one read of a completion queue that stays empty."""
    starts = []
    for _ in range(_STARTS):
        with _region() as region:
            starts.append(_run_peers(stage, region, PEERS))
    with _region() as region:
        alone = _run_peers(stage, region, 0)
    raw = [[record["steady_nanoseconds"] for record in start] for start in starts]
    values = [float(np.median(values)) for values in raw]
    detail = {
        "peers": PEERS,
        "first_32_reads_ns": float(
            np.median([record["after_nanoseconds"] for start in starts for record in start])
        ),
        "without_peers_ns": float(np.median([record["steady_nanoseconds"] for record in alone])),
    }
    side = side_entry(bar.ours, scenario, "ns", raw, detail)
    row = make_row(
        bar, median_estimate(values), unit="ns", trials=len(starts), ours=side, theirs=None
    )
    row["notes"].append(
        "a read without any peer takes {without_peers_ns:.0f} ns; the first 32 after a completion "
        "look again and again, and take {first_32_reads_ns:.0f} ns each".format(**detail)
    )
    return row


def _idle_peers(stage: Stage, bar: Bar, scenario: Scenario) -> dict[str, Any]:
    """The factor by which idle network peers slow down 8 bytes through the region.

    The program compares two pairs of endpoints, which differ by a few per cent because their rings
    lie elsewhere. So a start with idle peers is compared with a start in which no pair has any.
    """
    raw, times = [], []
    for _ in range(_IDLE_PEERS_STARTS):
        with _region() as region, _region() as other:
            starts = {
                idle: _run(
                    [
                        str(fabric_program("idle_peers")),
                        *map(str, stage.cpus),
                        str(idle),
                        other.name,
                        str(_REPETITIONS),
                    ],
                    region,
                )
                for idle in (0, NETWORK_PEERS)
            }
        slower = {
            idle: [
                each["with_idle_nanoseconds"] / each["without_idle_nanoseconds"] for each in records
            ]
            for idle, records in starts.items()
        }
        raw.append([value / float(np.median(slower[0])) for value in slower[NETWORK_PEERS]])
        times += [each["without_idle_nanoseconds"] for each in starts[NETWORK_PEERS]]
    detail = {
        "network_peers": NETWORK_PEERS,
        "without_them_ns": float(np.median(times)),
    }
    return _ratio_row(bar, scenario, raw, detail)


def _across(stage: Stage, bar: Bar, scenario: Scenario) -> dict[str, Any]:
    """The time of 8 bytes between two hosts / the time of the core provider only, in turn."""
    starts = [_run_across(stage) for _ in range(_ACROSS_STARTS)]
    raw = [[record["ratio"] for record in start] for start in starts]
    cores = {record["core"] for start in starts for record in start}
    detail = {
        "core": ", ".join(sorted(cores)),
        "core_ns": float(
            np.median([record["core_nanoseconds"] for start in starts for record in start])
        ),
    }
    return _ratio_row(bar, scenario, raw, detail)


def _run_across(stage: Stage) -> list[dict[str, Any]]:
    """Run programs/fabric/across.c on two nodes, each a host of its own."""
    meeting = f"{EXCHANGE}/across"
    seen = stage.cluster.seen_from_host(meeting)
    seen.unlink(missing_ok=True)
    program = str(fabric_program("across"))
    variables = ["FI_PROVIDER=vicinal,tcp,net", f"FI_PROVIDER_PATH={provider_directory()}"]

    def run(end: int) -> list[dict[str, Any]]:
        node = stage.cluster.nodes[end].name
        arguments = [str(end), str(stage.cpus[end]), meeting, str(_REPETITIONS)]
        command = ["env", "-u", "VICINAL_REGION", *variables, program, *arguments]
        return read_records(stage.cluster.run_in(node, command, timeout=_TIMEOUT_SECONDS))

    try:
        with ThreadPoolExecutor(max_workers=2) as both:
            left, _ = both.map(run, range(2))
    finally:
        seen.unlink(missing_ok=True)
    return left


def _ratio_row(
    bar: Bar, scenario: Scenario, raw: list[list[float]], detail: Mapping[str, Any]
) -> dict[str, Any]:
    """The row of ratios that the programs compute, with a list of repetitions for each start."""
    side = side_entry(bar.ours, scenario, "ratio", raw, detail)
    measured = median_estimate([float(np.median(values)) for values in raw])
    return make_row(bar, measured, unit="ratio", trials=len(raw), ours=side, theirs=None)


_MEASURES = {
    IDLE_ENDPOINT: _idle_endpoint,
    RING_MEMORY: _rings,
    PEER_MEMORY: _peers_memory,
    EMPTY_POLL: _poll,
    IDLE_PEERS: _idle_peers,
    ACROSS_NETWORK: _across,
}
