"""Ranks that leave their region while their job runs, and come back to another region or the same.

This happens before and after their machine moves to another host. Here each node has its own name
for one of two region files, the "hosts". Unlike virtual machines, the nodes have no device.
Removing the name stands for unplugging the device, and then no process may have it mapped.
"""

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from command_support import CHECKOUT, Vicinal
from launch_support import GUARD_SECONDS, MPIS, end_soak, in_regions, long_unless

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.cluster.nodes.layout import EXCHANGE
from vicinal.launch.running import RunningJob
from vicinal.mpi.job import Job
from vicinal.region.format import Route, SlotState

RANKS = 4
SEED = 20265
MOVER = 1
"""The rank whose machine moves. Rank 0 is with it on the first host, 2 and 3 on the second."""
ENDPOINTS = {"mpich": 1, "openmpi": 2}
"""Of a rank: Open MPI's one-sided communication has its own. Each rejoins when it polls."""


def region_name(rank: int) -> str:
    """A name that no node of another test has, if several tests run on the machine."""
    return f"here-{os.getpid()}-node{rank}"


@dataclass
class Hosts:
    """Two regions, and the name under which each rank's node finds its region."""

    exchange: Path

    @property
    def west(self) -> Path:
        return self.exchange / "west"

    @property
    def east(self) -> Path:
        return self.exchange / "east"

    def region_file(self, rank: int) -> Path:
        return self.exchange / region_name(rank)

    def unplug(self, rank: int) -> None:
        self.region_file(rank).unlink()

    def plug(self, rank: int, which: Path) -> None:
        os.link(which, self.region_file(rank))


def members_of(path: Path, rank: int) -> list[int]:
    """Slots of the rank's endpoints in a region."""
    members = region.inspect(path, patience=0).members
    return [each.slot for each in members if each.state is SlotState.JOINED and each.rank == rank]


def all_talk(path: Path, ranks: set[int]) -> bool:
    """Whether all of these ranks now send to each other through this region."""
    state = region.inspect(path, patience=0)
    pairs = set()
    for each in state.connections:
        sender, receiver = state.member(each.sender), state.member(each.receiver)
        if (
            each.route is Route.REGION
            and each.messages > 0
            and sender is not None
            and receiver is not None
            and sender.state is SlotState.JOINED
            and receiver.state is SlotState.JOINED
            and each.receiver_epoch == receiver.epoch
        ):
            pairs.add((sender.rank, receiver.rank))
    return {(one, other) for one in ranks for other in ranks if one != other} <= pairs


def messages(path: Path) -> int:
    """How many messages have gone through a region."""
    return sum(each.messages for each in region.inspect(path, patience=0).connections)


def until(what: Callable[[], bool]) -> float:
    """Wait until the condition holds. Returns how long that took."""
    begun = time.monotonic()
    while not what():
        assert time.monotonic() < begun + GUARD_SECONDS, "it did not come about in time"
        threading.Event().wait(0.02)
    return time.monotonic() - begun


def maps(name: str) -> list[int]:
    """Processes that have a file of this name mapped or open."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            own = Path(f"/proc/{process.pid}")
            opened = [str(each.readlink()) for each in (own / "fd").iterdir()]
            if any(name in each for each in [(own / "maps").read_text(), *opened]):
                found.append(process.pid)
    return found


@contextmanager
def soak(mpi: str) -> Iterator[Hosts]:
    """The program soak on two "hosts". It checks every message, and reports at its end."""
    program = str(CHECKOUT / "build/programs" / mpi / "soak")
    with EphemeralCluster(nodes=RANKS) as cluster, tempfile.TemporaryFile() as output:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        hosts = Hosts(cluster.exchange)
        region.create(hosts.west, members=12)
        region.create(hosts.east, members=12)
        for rank in range(RANKS):
            hosts.plug(rank, hosts.west if rank < RANKS // 2 else hosts.east)
        names = {f"node{rank}": f"file:{EXCHANGE}/{region_name(rank)}" for rank in range(RANKS)}
        command = in_regions(names, [program, str(4 * GUARD_SECONDS), str(SEED)])
        job = Job(command, RANKS, mpi=mpi, region=names["node0"])
        with RunningJob(job, cluster, stdout=output, stderr=output) as running:
            until(lambda: all_talk(hosts.west, {0, 1}) and all_talk(hosts.east, {2, 3}))
            # MPI_Init sends some dozens of messages. Its ranks have not begun the soak yet.
            until(lambda: min(map(messages, (hosts.west, hosts.east))) > 100 * RANKS)
            yield hosts
            end_soak(running)
            status = running.wait(2 * GUARD_SECONDS)
        output.seek(0)
        said = output.read().decode()
        assert status == 0, said
        (line,) = [each for each in said.splitlines() if '"soak"' in each]
        print(line)
        result = json.loads(line)
        assert result["errors"] == 0
        assert result["sent"] == result["received"] > 10 * RANKS
        assert result["one_sided"] > 0
        assert "vicinal" not in said, said


def leave_it(hosts: Hosts, path: Path, mpi: str) -> float:
    """The rank leaves the region with all its endpoints, and then holds nothing of it."""
    until(lambda: len(members_of(path, MOVER)) == ENDPOINTS[mpi])
    slots = members_of(path, MOVER)
    begun = time.monotonic()
    outcome = region.leave(path, slots, timeout=GUARD_SECONDS)
    took = time.monotonic() - begun
    assert outcome.troubles == ()
    assert outcome.moved == len(slots)
    assert members_of(path, MOVER) == []
    assert maps(hosts.region_file(MOVER).name) == []
    return took


@pytest.mark.parametrize(
    "mpi", [pytest.param(mpi, marks=long_unless(mpi == "openmpi")) for mpi in MPIS]
)
def test_a_rank_goes_to_another_region(mpi: str) -> None:
    """The other region has other ranks of the job. The rank comes back. Messages arrive once."""
    with soak(mpi) as hosts:
        left = leave_it(hosts, hosts.west, mpi)
        hosts.unplug(MOVER)
        threading.Event().wait(0.5)  # the machine is moving
        hosts.plug(MOVER, hosts.east)
        joined = until(lambda: all_talk(hosts.east, {1, 2, 3}))
        print(f"left within {left:.2f} s, talks through the new region within {joined:.2f} s")
        assert all_talk(hosts.east, {1, 2, 3})
        leave_it(hosts, hosts.east, mpi)
        hosts.unplug(MOVER)
        hosts.plug(MOVER, hosts.west)
        until(lambda: all_talk(hosts.west, {0, 1}))
        for path in (hosts.west, hosts.east):
            assert not [each for each in region.check(path) if each.fault]


def test_a_rank_stays_after_all(vicinal: Vicinal) -> None:
    """The rank left, its machine could not be moved, and it gets the same region again."""
    with soak("mpich") as hosts:
        slots = members_of(hosts.west, MOVER)
        named = [text for each in slots for text in ("--member", str(each))]
        done = vicinal("region", "detach", hosts.west, "--leave", *named)
        assert (done.returncode, done.stderr) == (0, "")
        assert "have left the region" in done.stdout
        assert maps(hosts.region_file(MOVER).name) == []
        hosts.unplug(MOVER)
        hosts.plug(MOVER, hosts.west)
        threading.Event().wait(2.5)
        assert members_of(hosts.west, MOVER) == []  # it may be about to be unplugged
        done = vicinal("region", "attach", hosts.west)
        assert (done.returncode, done.stderr) == (0, "")
        until(lambda: all_talk(hosts.west, {0, 1}))


def test_who_makes_no_progress_is_named() -> None:
    """Nothing has happened if the manager then withdraws its request."""
    with soak("mpich") as hosts:
        stopped = maps(hosts.region_file(0).name)
        for pid in stopped:
            psutil.Process(pid).suspend()
        try:
            outcome = region.leave(hosts.west, members_of(hosts.west, MOVER), timeout=1.0)
        finally:
            for pid in stopped:
                psutil.Process(pid).resume()
        assert any("has not left the region within 1 s" in each for each in outcome.troubles)
        region.attach(hosts.west)
        until(lambda: all_talk(hosts.west, {0, 1}))
