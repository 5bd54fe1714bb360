"""Members of a region that are moved to the network and back: the command, and jobs meanwhile."""

import itertools
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from command_support import CHECKOUT, Vicinal, error_line
from launch_support import GUARD_SECONDS, MPIS, end_soak

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import RunningJob
from vicinal.mpi.job import Job
from vicinal.region.format import Route, SlotState

RANKS = int(os.environ.get("SOAK_RANKS", "4"))
SECONDS = float(os.environ.get("SOAK_SECONDS", "4"))
"""`make check-soak` sets more ranks and more seconds."""
FLIPS = 4
"""The minimum number of flips, on however busy a machine."""
FLIP_SECONDS = 1.0
SEED = 20263


@contextmanager
def soak(
    mpi: str, ranks: int, *, heap: bool = False, least: int = 1, **more: str
) -> Iterator[tuple[RunningJob, Path]]:
    """The program soak between nodes that have a network. Yields when all ranks exchange messages.

    At the end, each rank must have sent at least `least` messages, and all must have arrived.
    """
    program = CHECKOUT / "build/programs" / mpi / "soak"
    with EphemeralCluster(nodes=ranks) as cluster, tempfile.TemporaryFile() as output:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        command = [str(program), str(SECONDS + 4 * GUARD_SECONDS), str(SEED)]
        job = Job(command, ranks, mpi=mpi, heap=heap, environment=more)
        with RunningJob(job, cluster, stdout=output) as running:
            yield running, await_talk(running, ranks)
            end_soak(running)
            assert running.wait(SECONDS + 2 * GUARD_SECONDS) == 0
        output.seek(0)
        (line,) = [each for each in output.read().decode().splitlines() if '"soak"' in each]
        result = json.loads(line)
        print(line)
        assert result["errors"] == 0
        assert result["sent"] == result["received"] >= least * ranks
        assert result["one_sided"] >= least // 10 * ranks


def await_talk(running: RunningJob, ranks: int) -> Path:
    """Wait until every rank sends to every other rank. Returns the region's path."""
    for _ in range(int(GUARD_SECONDS / 0.05)):
        state = running.region_states()[0]
        pairs = {
            (sender.rank, receiver.rank)
            for each in state.connections
            if each.messages > 0
            and (sender := state.member(each.sender))
            and (receiver := state.member(each.receiver))
        }
        if len(pairs - {(rank, rank) for rank in range(ranks)}) == ranks * (ranks - 1):
            return Path(state.path)
        threading.Event().wait(0.05)
    raise AssertionError("not all ranks talk")


@pytest.mark.parametrize(
    ("mpi", "heap"), [pytest.param(MPIS[0], False, marks=pytest.mark.long), (MPIS[1], True)]
)
def test_a_job_goes_on_while_paths_flip(mpi: str, heap: bool) -> None:
    """Every message arrives once, whole and in order, and every one-sided operation works on both
    paths.

    With a heap, single copies and direct accesses to memory are in progress as well.
    """
    moved: list[int] = []
    with soak(mpi, RANKS, heap=heap, least=50) as (_, path):
        begun = time.monotonic()
        for move in itertools.cycle((region.detach, region.attach)):
            time.sleep(FLIP_SECONDS)
            outcome = move(path, timeout=GUARD_SECONDS)
            assert outcome.troubles == ()
            moved.append(outcome.moved)
            if len(moved) >= FLIPS and time.monotonic() > begun + SECONDS:
                break
    print(f"{len(moved)} moves of up to {max(moved)} connections")
    assert min(moved) >= RANKS * (RANKS - 1)


def test_the_command_moves_one_member(vicinal: Vicinal) -> None:
    """One of four members moves with all its connections. It is shown as moved, and moves back."""
    with soak("mpich", 4) as (_, path):
        slot = joined(path)[1]
        done = vicinal("region", "detach", path, "--member", slot)
        assert (done.returncode, done.stderr) == (0, "")
        assert "1 member of" in done.stdout
        assert "6 connections go over the network" in done.stdout
        shown = json.loads(vicinal("region", "show", "--json", path).stdout)
        assert [each["slot"] for each in shown["members"] if each["detached"]] == [slot]
        routes = {
            (each["sender"], each["receiver"]): each["route"] for each in shown["connections"]
        }
        talking = {pair: route for pair, route in routes.items() if pair[0] != pair[1]}
        assert len(talking) == 12
        for (sender, receiver), route in talking.items():
            assert route == ("network" if slot in (sender, receiver) else "region")
        assert vicinal("region", "check", path).returncode == 0
        done = vicinal("region", "attach", path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "12 connections go through the region" in done.stdout


def test_who_is_in_no_network_stays_and_is_named(vicinal: Vicinal) -> None:
    with soak("mpich", 2, VICINAL_NET="off") as (_, path):
        done = vicinal("region", "detach", path)
        assert done.returncode == 1
        assert "has no network address and stays in the region" in done.stderr
        assert "VICINAL_NET" in done.stderr
        routes = {each.route for each in region.inspect(path).connections}
        assert routes <= {Route.STAYS, Route.REGION}


def test_who_makes_no_progress_is_named_and_moves_later() -> None:
    with soak("mpich", 3) as (_, path):
        stopped = next(ranks_in(path))
        os.kill(stopped, signal.SIGSTOP)
        try:
            outcome = region.detach(path, timeout=1.0)
            assert outcome.troubles
            assert all(
                "is stopped, or computes without calling MPI" in trouble
                for trouble in outcome.troubles
            )
        finally:
            os.kill(stopped, signal.SIGCONT)
        outcome = region.detach(path, timeout=GUARD_SECONDS)
        assert outcome.troubles == ()
        assert outcome.moved == 3 * 2


def joined(path: Path) -> list[int]:
    """The slots of the members that have joined."""
    members = region.inspect(path).members
    return [member.slot for member in members if member.state is SlotState.JOINED]


def ranks_in(path: Path) -> Iterator[int]:
    """The processes that have the region mapped."""
    for process in psutil.process_iter():
        with suppress(OSError):
            if path.name in Path(f"/proc/{process.pid}/maps").read_text():
                yield process.pid


def test_nobody_to_move(vicinal: Vicinal, region_path: Path) -> None:
    assert "there is no region" in error_line(vicinal("region", "detach", region_path))
    region.create(region_path, members=4)
    assert f"region {region_path} has no members" in error_line(
        vicinal("region", "detach", region_path)
    )
    trouble = error_line(vicinal("region", "attach", region_path, "--member", "3"))
    assert "there is no member in slot 3" in trouble
