"""Collectives go through the region, and go on when a member leaves it, dies or writes anything."""

import mmap
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from launch_support import GUARD_SECONDS, MPIS, compile_for_each_mpi

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import RunningJob, launch
from vicinal.mpi.job import Job
from vicinal.region.format import SlotState, sections_offset
from vicinal.region.inspection import Header

ROUNDS_SECONDS = 1.0


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    source = Path(__file__).with_name("endless_collectives.c")
    return compile_for_each_mpi(source, tmp_path_factory.mktemp("endless"))


@dataclass
class Running:
    """A job in the middle of its rounds."""

    job: RunningJob
    path: Path
    end: Path
    output: Path

    def messages(self) -> int:
        return sum(each.messages for each in self.job.region_states()[0].connections)

    def slots(self) -> Sequence[tuple[int, int]]:
        """Rank and slot of each member."""
        state = region.inspect(self.path)
        return [
            (each.rank, each.slot)
            for each in state.members
            if each.state is SlotState.JOINED and each.rank is not None
        ]

    def finish(self) -> int:
        """End the rounds. Returns their number."""
        self.end.touch()
        assert self.job.wait(GUARD_SECONDS) == 0, self.output.read_text()
        found = re.search(r"(\d+) rounds", self.output.read_text())
        assert found is not None
        return int(found[1])


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, or for GUARD_SECONDS."""
    until = time.monotonic() + GUARD_SECONDS
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)


@contextmanager
def running(
    program: Path, tmp_path: Path, *options: str, ranks: int = 3, **variables: str
) -> Iterator[Running]:
    end = tmp_path / "end"
    output = tmp_path / "output"
    with EphemeralCluster(nodes=ranks) as cluster, output.open("wb") as stream:
        if not cluster.network:
            pytest.skip("the nodes have no network of their own here")
        job = Job([str(program), str(end), *options], ranks, environment=variables)
        with RunningJob(job, cluster, stdout=stream, stderr=stream) as started:
            wait_until(lambda: "running" in output.read_text())
            yield Running(started, Path(started.region_states()[0].path), end, output)


@pytest.mark.parametrize("mpi", MPIS)
def test_collectives_send_no_messages(programs: dict[str, Path], tmp_path: Path, mpi: str) -> None:
    """The provider's own counts of messages tell which way the collectives went."""
    with running(programs[mpi], tmp_path, ranks=2) as through:
        before = through.messages()
        time.sleep(ROUNDS_SECONDS)
        sent = through.messages() - before
        rounds = through.finish()
    assert rounds > 1000
    assert sent < 20
    (tmp_path / "end").unlink()
    with running(programs[mpi], tmp_path, ranks=2, VICINAL_COLLECTIVES="off") as messages:
        before = messages.messages()
        time.sleep(ROUNDS_SECONDS)
        assert messages.messages() - before > 1000
        messages.finish()


def test_a_member_leaves_the_region_in_the_middle(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    """All members agree on the last collective through the region. Later ones are messages.

    Only with MPICH: Open MPI has a second endpoint, for one-sided operations, which it polls only
    in programs with windows. So a program without windows cannot leave, with the library or not.
    """
    with running(programs["mpich"], tmp_path) as job:
        slots = [slot for rank, slot in job.slots() if rank == 1]
        assert slots
        outcome = region.leave(job.path, slots, timeout=GUARD_SECONDS)
        assert outcome.troubles == ()
        assert not [slot for _, slot in job.slots() if slot in slots]
        # Now and then the others try again, all in the same collective: at the latest after 1024.
        lines = job.output.read_text().count("running")
        wait_until(lambda: job.output.read_text().count("running") >= lines + 2)
        assert job.output.read_text().count("running") >= lines + 2
        job.finish()


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    source = Path(__file__).with_name("sessions.c")
    return compile_for_each_mpi(source, tmp_path_factory.mktemp("sessions"))


def test_sessions_one_after_the_other(sessions: dict[str, Path]) -> None:
    """Each has an endpoint of its own. Open MPI 5.0.11 fails in the second one, without us too."""
    with EphemeralCluster(nodes=2) as cluster:
        job = Job([str(sessions["mpich"]), "sessions", "4"], 2)
        done = launch(job, cluster, timeout=GUARD_SECONDS)
    assert sorted(done.stdout.splitlines()) == ["rank 0: good", "rank 1: good"], done.stderr


@pytest.mark.parametrize("mpi", MPIS)
def test_a_process_leaves_the_region_by_mpi_finalize(
    sessions: dict[str, Path], tmp_path: Path, mpi: str
) -> None:
    """Blocks that nobody released would keep the slots until the processes end."""
    end, output = tmp_path / "end", tmp_path / "output"
    with EphemeralCluster(nodes=2) as cluster, output.open("wb") as stream:
        job = Job([str(sessions[mpi]), "stay", str(end)], 2)
        with RunningJob(job, cluster, stdout=stream, stderr=stream) as started:
            wait_until(lambda: output.read_text().count("finalized") == 2)
            members = started.region_states()[0].members
            end.touch()
            assert started.wait(GUARD_SECONDS) == 0, output.read_text()
    assert {each.state for each in members} <= {SlotState.FREE}


@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_that_call_different_collectives_end_with_a_line(
    programs: dict[str, Path], tmp_path: Path, mpi: str
) -> None:
    with running(programs[mpi], tmp_path, "mismatch", ranks=2) as job:
        assert job.job.wait(GUARD_SECONDS) != 0
    said = job.output.read_text()
    assert "vicinal: error: a collective among 2 ranks cannot be completed: rank " in said
    assert "called another collective, or one with another root or length" in said


@pytest.fixture(scope="module")
def mismatched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    source = Path(__file__).with_name("mismatched_counts.c")
    return compile_for_each_mpi(source, tmp_path_factory.mktemp("mismatched"))


def failing_ranks(name: str, sent: int, room: int) -> set[int]:
    """Of three ranks, if two of them disagree about the length of a block."""
    if name in {"allgatherv", "reduce_scatter"}:
        return {0, 1, 2}
    return set() if sent <= room else {0 if name == "gatherv" else 1}


@pytest.mark.parametrize("mpi", MPIS)
def test_counts_that_do_not_match(mismatched: dict[str, Path], mpi: str) -> None:
    """If all ranks have all counts, all fail. Otherwise only a rank with too little room fails."""
    with EphemeralCluster(nodes=3) as cluster:
        done = launch(Job([str(mismatched[mpi])], 3), cluster, timeout=GUARD_SECONDS)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert [line for line in lines if "broken" in line] == []
    cases = [line.split() for line in lines if " rank " in line]
    assert len(cases) == 6 * 7 * 3
    for name, sent, room, _, rank, outcome in cases:
        fails = int(rank.rstrip(":")) in failing_ranks(name, int(sent), int(room))
        assert outcome == ("error" if fails else "done"), (name, sent, room, rank)
    assert "sends 16 bytes in a collective to rank 0, which receives at most 8" in done.stderr


@pytest.mark.parametrize("mpi", MPIS)
def test_what_a_member_writes_crashes_nobody(
    programs: dict[str, Path], tmp_path: Path, mpi: str
) -> None:
    """Random bytes in all heaps, where the collectives' words and data lie.

    Ranks may wait for ever for a word that was overwritten, or end with an error, but a signal
    would be a crash.
    """
    numbers = random.Random(27)
    with running(programs[mpi], tmp_path, "errors") as job:
        state = region.inspect(job.path)
        with job.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            slots = [slot for _, slot in job.slots()]
            until = time.monotonic() + ROUNDS_SECONDS
            while time.monotonic() < until:
                for slot in slots:
                    begin = heap_begin(state.header, slot)
                    at = begin + numbers.randrange(0, 1 << 15) // 8 * 8
                    memory[at : at + 8] = numbers.randbytes(8)
        time.sleep(0.2)
        said = job.output.read_text()
    assert "Segmentation" not in said
    assert "signal 11" not in said
    assert "Bus error" not in said


def heap_begin(header: Header, slot: int) -> int:
    """The file offset of a member's heap, the end of its section."""
    begin = sections_offset(header.members) + (slot + 1) * header.section_bytes
    return begin - header.heap_bytes
