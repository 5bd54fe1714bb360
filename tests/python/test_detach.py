"""Members of a region that are moved to the network and back: the command, and jobs meanwhile."""

import json
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil
import pytest
from conftest import CHECKOUT, Vicinal, error_line
from launch_support import GUARD_SECONDS, MPIS

from vicinal import region
from vicinal.cluster.native import NativeCluster
from vicinal.errors import VicinalError
from vicinal.launch.job import Job
from vicinal.launch.running import RunningJob
from vicinal.region.format import SlotState, Way

RANKS = int(os.environ.get("SOAK_RANKS", "4"))
SECONDS = float(os.environ.get("SOAK_SECONDS", "8"))
"""`make check-soak` takes more of both."""
FLIP_SECONDS = 1.0
SEED = 20263


@contextmanager
def soak(
    mpi: str, ranks: int, seconds: float = 0, *, heap: bool = False, **more: str
) -> Iterator[tuple[RunningJob, Path]]:
    """The program soak between nodes that have a network; yields when all ranks talk.

    Without an end of its own it is stopped, and what it counted is lost.
    """
    program = CHECKOUT / "build/programs" / mpi / "soak"
    with NativeCluster(nodes=ranks) as cluster, tempfile.TemporaryFile() as output:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        command = [str(program), str(seconds or GUARD_SECONDS), str(SEED)]
        job = Job(command, ranks, mpi=mpi, heap=heap, environment=more)
        with RunningJob(job, cluster, stdout=output) as running:
            path = await_talk(running, ranks)
            yield running, path
            if not seconds:
                running.stop()
                return
            assert running.wait(seconds + GUARD_SECONDS) == 0
        output.seek(0)
        (line,) = [each for each in output.read().decode().splitlines() if '"soak"' in each]
        result = json.loads(line)
        print(line)
        assert result["errors"] == 0
        assert result["sent"] == result["received"] > 100 * ranks
        assert result["one_sided"] > 10 * ranks


def await_talk(running: RunningJob, ranks: int) -> Path:
    """The region's path, once every rank sends to every other."""
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


@dataclass
class Flips:
    """A thread that moves all members to the network and back, again and again."""

    path: Path
    moved: list[int] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(GUARD_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        network = True
        while not self._over.wait(FLIP_SECONDS):
            try:
                outcome = (region.detach if network else region.attach)(self.path, timeout=30)
            except VicinalError:
                return  # the job is over
            if self._over.is_set() or not outcome.moved:
                return  # it ended under our hands
            self.moved.append(outcome.moved)
            self.troubles += outcome.troubles
            network = not network


@pytest.mark.parametrize(("mpi", "heap"), [(MPIS[0], False), (MPIS[1], True)])
def test_a_job_goes_on_while_paths_flip(mpi: str, heap: bool) -> None:
    """Every message once, whole and in order, and every one-sided operation, over both ways.

    With a heap, single copies and direct access of memory are under way as well.
    """
    with soak(mpi, RANKS, SECONDS, heap=heap) as (_, path), Flips(path) as flips:
        threading.Event().wait(SECONDS - 1)
    print(f"{len(flips.moved)} moves of up to {max(flips.moved)} connections")
    assert len(flips.moved) >= 2  # there and back at least: a loaded machine takes its time
    assert min(flips.moved) >= RANKS * (RANKS - 1)
    assert flips.troubles == []


def test_the_command_moves_one_member(vicinal: Vicinal) -> None:
    """Of four, with what it sends and what is sent to it; it is shown, and moves back."""
    with soak("mpich", 4) as (_, path):
        slot = joined(path)[1]
        done = vicinal("region", "detach", path, "--member", slot)
        assert (done.returncode, done.stderr) == (0, "")
        assert "1 member of" in done.stdout
        assert "6 connections go over the network" in done.stdout
        shown = json.loads(vicinal("region", "show", "--json", path).stdout)
        assert [each["slot"] for each in shown["members"] if each["detached"]] == [slot]
        ways = {(each["sender"], each["receiver"]): each["way"] for each in shown["connections"]}
        talking = {pair: way for pair, way in ways.items() if pair[0] != pair[1]}
        assert len(talking) == 12
        for (sender, receiver), way in talking.items():
            assert way == ("network" if slot in (sender, receiver) else "region")
        assert vicinal("region", "check", path).returncode == 0
        done = vicinal("region", "attach")  # of the job that started last
        assert (done.returncode, done.stderr) == (0, "")
        assert "12 connections go through the region" in done.stdout


def test_who_is_in_no_network_stays_and_is_named(vicinal: Vicinal) -> None:
    with soak("mpich", 2, VICINAL_NET="off") as (_, path):
        done = vicinal("region", "detach", path)
        assert done.returncode == 1
        assert "is in no network and stays in the region" in done.stderr
        assert "VICINAL_NET" in done.stderr
        assert {each.way for each in region.inspect(path).connections} <= {Way.STAYS, Way.REGION}


def test_who_makes_no_progress_is_named_and_moves_later() -> None:
    with soak("mpich", 3) as (_, path):
        stopped = next(ranks_in(path))
        os.kill(stopped, signal.SIGSTOP)
        try:
            outcome = region.detach(path, timeout=1.0)
            assert outcome.troubles
            assert all("makes no progress" in trouble for trouble in outcome.troubles)
        finally:
            os.kill(stopped, signal.SIGCONT)
        outcome = region.detach(path, timeout=30.0)
        assert outcome.troubles == ()
        assert outcome.moved == 3 * 2


def joined(path: Path) -> list[int]:
    """The slots of those who are there now."""
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
    assert "nobody is in region" in error_line(vicinal("region", "detach", region_path))
    trouble = error_line(vicinal("region", "attach", region_path, "--member", "3"))
    assert "there is no member in slot 3" in trouble
