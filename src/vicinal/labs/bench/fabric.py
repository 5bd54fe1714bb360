"""What is measured by libfabric alone, without any MPI.

What idle peers cost: memory of the region, polls, and messages; and what the network path adds to
the core's own time.
"""

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.labs.bench.bars import (
    ACROSS_NETWORK,
    BESIDE_NETWORK,
    EMPTY_POLL,
    PEER_MEMORY,
    Bar,
    Group,
)
from vicinal.labs.bench.compare import make_row
from vicinal.labs.bench.jobs import Stage
from vicinal.labs.bench.sides import Scenario
from vicinal.labs.programs import fabric_program, read_records, run_program
from vicinal.labs.statistics.describe import median_estimate
from vicinal.mpi.environment import provider_directory
from vicinal.region import Region, RegionState, create, inspect

PEERS = 64
_MEMBERS = PEERS + 1
NETWORK_PEERS = 32
_STARTS = 2
_BESIDE_STARTS = 7
_ACROSS_STARTS = 7
_REPETITIONS = 5
_TIMEOUT_SECONDS = 150.0


def is_fabric(bar: Bar) -> bool:
    """Whether measure_fabric() measures it, by the programs in programs/fabric."""
    return bar.metric in _MEASURES


def measure_fabric(stage: Stage, bar: Bar, group: Group) -> dict[str, Any]:
    """The row for such a bar. Raises VicinalError if the program fails."""
    return _MEASURES[bar.metric](stage, bar, group) | {"group": group.name}


@contextmanager
def _region() -> Iterator[Region]:
    directory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(
            prefix="vicinal-bench-", dir=directory if directory.is_dir() else None
        ) as place,
        create(Path(place) / "region", members=_MEMBERS, label="bench peers") as region,
    ):
        yield region


def _run(command: Sequence[str], region: Region) -> list[dict[str, Any]]:
    """What one of the programs in programs/fabric prints, with endpoints in a region."""
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
    """programs/fabric/peers.c: an endpoint and its peers in one region, on one CPU."""
    program = str(fabric_program("peers"))
    pinned = ["taskset", "-c", str(stage.cpus[0]), program]
    with_peers = [*pinned, str(peers), str(_REPETITIONS)]
    return _run(with_peers, region)


def _memory(stage: Stage, bar: Bar, group: Group) -> dict[str, Any]:
    """The region, shared out over its members, in which one talked with all of the others.

    `peers_arena_bytes` is what the endpoint took of its section for its connections.
    """
    with _region() as region:
        _run_peers(stage, region, PEERS)
        state: RegionState = inspect(region.path, patience=0)
    header = state.header
    cost = header.region_bytes / header.members
    most = max(member.arena_used for member in state.members)
    side = _side(bar, group, "B", [[cost]])
    side["detail"] = {
        "region_bytes": header.region_bytes,
        "members": header.members,
        "peers": PEERS,
        "arena_used_bytes": most,
        "connections": len(state.connections),
    }
    return make_row(bar, median_estimate([cost]), unit="bytes", trials=1, ours=side, theirs=None)


def _poll(stage: Stage, bar: Bar, group: Group) -> dict[str, Any]:
    """Nanoseconds of one read of a completion queue that stays empty."""
    starts = []
    for _ in range(_STARTS):
        with _region() as region:
            starts.append(_run_peers(stage, region, PEERS))
    with _region() as region:
        alone = _run_peers(stage, region, 0)
    raw = [[record["steady_nanoseconds"] for record in start] for start in starts]
    values = [float(np.median(values)) for values in raw]
    side = _side(bar, group, "ns", raw)
    side["detail"] = {
        "peers": PEERS,
        "first_32_reads_ns": float(
            np.median([record["after_nanoseconds"] for start in starts for record in start])
        ),
        "without_peers_ns": float(np.median([record["steady_nanoseconds"] for record in alone])),
    }
    row = make_row(
        bar, median_estimate(values), unit="ns", trials=len(starts), ours=side, theirs=None
    )
    row["notes"].append(
        "a read without any peer takes {without_peers_ns:.0f} ns; the first 32 after a completion "
        "look again and again, and take {first_32_reads_ns:.0f} ns each".format(**side["detail"])
    )
    return row


def _beside(stage: Stage, bar: Bar, group: Group) -> dict[str, Any]:
    """How many times longer 8 bytes through the region take beside idle network peers.

    The program compares two pairs of endpoints, which differ by a few per cent by where their rings
    lie; so a start with idle peers is compared with one in which neither pair has any.
    """
    raw, times = [], []
    for _ in range(_BESIDE_STARTS):
        with _region() as region, _region() as other:
            starts = {
                idle: _run(
                    [
                        str(fabric_program("beside")),
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
            idle: [each["beside_nanoseconds"] / each["plain_nanoseconds"] for each in records]
            for idle, records in starts.items()
        }
        raw.append([value / float(np.median(slower[0])) for value in slower[NETWORK_PEERS]])
        times += [each["plain_nanoseconds"] for each in starts[NETWORK_PEERS]]
    side = _side(bar, group, "ratio", raw)
    side["detail"] = {
        "network_peers": NETWORK_PEERS,
        "without_them_ns": float(np.median(times)),
    }
    measured = median_estimate([float(np.median(values)) for values in raw])
    return make_row(bar, measured, unit="ratio", trials=len(raw), ours=side, theirs=None)


def _across(stage: Stage, bar: Bar, group: Group) -> dict[str, Any]:
    """How many times longer 8 bytes take between two hosts than by the core alone, in turn."""
    starts = [_run_across(stage) for _ in range(_ACROSS_STARTS)]
    raw = [[record["ratio"] for record in start] for start in starts]
    cores = {record["core"] for start in starts for record in start}
    side = _side(bar, group, "ratio", raw)
    side["detail"] = {
        "core": ", ".join(sorted(cores)),
        "core_ns": float(
            np.median([record["core_nanoseconds"] for start in starts for record in start])
        ),
    }
    measured = median_estimate([float(np.median(values)) for values in raw])
    return make_row(bar, measured, unit="ratio", trials=len(raw), ours=side, theirs=None)


def _run_across(stage: Stage) -> list[dict[str, Any]]:
    """programs/fabric/across.c on two nodes, each a host of its own."""
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


def _side(bar: Bar, group: Group, unit: str, raw: list[list[float]]) -> dict[str, Any]:
    scenario = group.sides[bar.ours]
    assert isinstance(scenario, Scenario)
    return {
        "name": bar.ours,
        "scenario": scenario.to_dict(),
        "unit": unit,
        "median": median_estimate([float(np.median(values)) for values in raw]).to_dict(),
        "raw": raw,
    }


_MEASURES = {
    PEER_MEMORY: _memory,
    EMPTY_POLL: _poll,
    BESIDE_NETWORK: _beside,
    ACROSS_NETWORK: _across,
}
