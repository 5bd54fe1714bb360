"""Ranks that are killed, stopped and continued, that leave early, or outnumber the cores.

The other ranks get an error or finish. Nothing hangs, no message between the other ranks is lost,
and the next rank that joins gets a dead member's slot.
"""

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from launch_support import MPIS, ONE_MPI, compile_for_each_mpi, long_unless

from vicinal import region
from vicinal.cluster.nodes.container.ephemeral import EphemeralCluster
from vicinal.launch.running import launch
from vicinal.mpi.environment import MessagePath, mpi_environment, mpi_prefix, provider_directory
from vicinal.mpi.job import Job
from vicinal.region import format as layout

GUARD_SECONDS = 120
"""A guard against hangs: a round takes a second or two."""
SECTION_BYTES = 512 * 1024
LONGEST = 200_000


@dataclass(frozen=True)
class Exchange:
    """A line of `traffic`: what one rank exchanged with one peer."""

    peer: int
    sent: int
    received: int
    error: int


class Traffic:
    """Ranks of tests/api/traffic.c on one region, each a process."""

    def __init__(self, program: Path, path: Path, directory: Path, ranks: int) -> None:
        self.program, self.path, self.directory, self.ranks = program, path, directory, ranks
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def start(self, rank: int, send: int, receive: int, *, seed: int, longest: int) -> None:
        variables = {
            "VICINAL_REGION": f"file:{self.path}",
            "VICINAL_RANK": str(rank),
            "VICINAL_PEER_TIMEOUT": "1",
            "FI_PROVIDER_PATH": str(provider_directory()),
        }
        arguments = [self.directory, rank, self.ranks, send, receive, longest, seed]
        self.processes[rank] = subprocess.Popen(
            [self.program, *map(str, arguments)],
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_all(self, messages: int, *, seed: int, longest: int = LONGEST) -> None:
        for rank in range(self.ranks):
            self.start(rank, messages, messages, seed=seed, longest=longest)

    def wait_for_names(self) -> None:
        """Wait until every rank has joined."""
        deadline = time.monotonic() + GUARD_SECONDS
        while len(list(self.directory.glob("name.*"))) < self.ranks:
            assert time.monotonic() < deadline, "not all ranks joined"
            for process in self.processes.values():
                assert process.poll() in (None, 0), process.communicate()[1]
            time.sleep(0.002)

    def wait_for_talk(self) -> None:
        """Wait until every rank has received a few of many messages from each other rank."""
        deadline = time.monotonic() + GUARD_SECONDS
        while len(list(self.directory.glob("talks.*"))) < self.ranks:
            assert time.monotonic() < deadline, "not all ranks talk"
            time.sleep(0.002)

    def signal(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)

    def kill(self, rank: int) -> None:
        process = self.processes.pop(rank)
        process.kill()
        process.communicate(timeout=GUARD_SECONDS)
        assert process.returncode in (0, -signal.SIGKILL)

    def finish(self, rank: int, warning: str = "") -> dict[int, Exchange]:
        """A rank's results at its end, by peer. The rank must end well.

        `warning` matches its standard error, which is empty by default.
        """
        process = self.processes.pop(rank)
        output, errors = process.communicate(timeout=GUARD_SECONDS)
        assert process.returncode == 0, errors
        assert re.fullmatch(warning, errors), errors
        lines = re.findall(r"^peer (\d+) sent (\d+) received (\d+) (\d+)$", output, re.M)
        exchanges = [Exchange(*map(int, line)) for line in lines]
        assert len(exchanges) == self.ranks - 1
        return {exchange.peer: exchange for exchange in exchanges}

    def close(self) -> None:
        for rank in list(self.processes):
            self.processes.pop(rank).kill()


@pytest.fixture
def traffic_program(checkout: Path) -> Path:
    return checkout / "build/release/tests/api/traffic"


@contextlib.contextmanager
def traffic_job(program: Path, path: Path, directory: Path, ranks: int) -> Iterator[Traffic]:
    directory.mkdir()
    traffic = Traffic(program, path, directory, ranks)
    try:
        yield traffic
    finally:
        traffic.close()


def check_whole(exchanges: dict[int, Exchange], messages: int, without: int = -1) -> None:
    """Check that no message was lost, except in exchanges with one rank."""
    for peer, exchange in exchanges.items():
        if peer != without:
            assert exchange == Exchange(peer, messages, messages, 0)


# --- killed --------------------------------------------------------------------------------


def test_the_others_go_on_when_one_is_killed(
    traffic_program: Path, region_path: Path, tmp_path: Path
) -> None:
    """Six times, on one region that is exactly full: each time the dead rank's slot is needed."""
    ranks, messages = 4, 400
    choose = random.Random(20261120)
    region.create(region_path, members=ranks, section_bytes=SECTION_BYTES)
    deaths = 0
    for number in range(6):
        victim = choose.randrange(ranks)
        with traffic_job(traffic_program, region_path, tmp_path / str(number), ranks) as traffic:
            traffic.start_all(messages, seed=number)
            if number == 0:  # in the middle of its work, on however fast a machine
                traffic.wait_for_talk()
            else:
                traffic.wait_for_names()
                time.sleep(choose.uniform(0, 0.3))
            died = traffic.processes[victim].poll() is None
            traffic.kill(victim)
            for rank in sorted(traffic.processes):
                exchanges = traffic.finish(rank)
                check_whole(exchanges, messages, without=victim)
                lost = exchanges[victim]
                complete = (lost.sent, lost.received) == (messages, messages)
                assert complete or (died and lost.error != 0)
                deaths += lost.error != 0
    assert deaths > 0, "nobody was killed in the middle of its work"
    # All four slots are available again.
    with traffic_job(traffic_program, region_path, tmp_path / "last", ranks) as traffic:
        traffic.start_all(messages, seed=1)
        for rank in range(ranks):
            check_whole(traffic.finish(rank), messages)


def test_who_is_killed_while_joining_keeps_no_slot(
    traffic_program: Path, region_path: Path, tmp_path: Path
) -> None:
    """Many ranks are killed between their start and their work. Then the region fills up."""
    choose = random.Random(7)
    region.create(region_path, members=2, section_bytes=SECTION_BYTES)
    for number in range(40):
        with traffic_job(traffic_program, region_path, tmp_path / str(number), 2) as traffic:
            traffic.start(0, 10, 10, seed=1, longest=1000)
            time.sleep(choose.uniform(0, 0.06))
            traffic.kill(0)
    with traffic_job(traffic_program, region_path, tmp_path / "last", 2) as traffic:
        traffic.start_all(100, seed=2)
        for rank in range(2):
            check_whole(traffic.finish(rank), 100)


def test_a_slot_that_was_claimed_and_never_joined_is_taken(
    traffic_program: Path, region_path: Path, tmp_path: Path
) -> None:
    """Simulates a kill between claim and join of a slot. No real kill hits this window reliably."""
    made = region.create(region_path, members=2, section_bytes=SECTION_BYTES)
    claimed = 5 << 32 | layout.SlotState.CLAIMED
    with made.path.open("r+b") as file:
        for slot in range(2):
            file.seek(layout.slot_offset(slot))
            file.write(claimed.to_bytes(8, "little"))
    with traffic_job(traffic_program, region_path, tmp_path / "job", 2) as traffic:
        traffic.start_all(100, seed=3)
        waits = r"vicinal: warning: region \S+ is full, and \d of its 2 members show no life: .*\n"
        for rank in range(2):
            check_whole(traffic.finish(rank, warning=waits), 100)
    assert {member.epoch for member in region.inspect(region_path).members} == {6}


# --- stopped -------------------------------------------------------------------------------


def test_who_was_stopped_loses_nothing(
    traffic_program: Path, region_path: Path, tmp_path: Path
) -> None:
    """Ranks stop at random, for longer and for shorter than the heartbeat's timeout."""
    ranks, messages = 3, 4000
    choose = random.Random(11)
    region.create(region_path, members=ranks, section_bytes=SECTION_BYTES)
    with traffic_job(traffic_program, region_path, tmp_path / "job", ranks) as traffic:
        traffic.start_all(messages, seed=4)
        traffic.wait_for_names()
        for pause in (0.01, 0.4, 0.05, 1.5, 0.1, 0.3):
            rank = choose.randrange(ranks)
            if traffic.processes[rank].poll() is None:
                traffic.signal(rank, signal.SIGSTOP)
                time.sleep(pause)
                traffic.signal(rank, signal.SIGCONT)
            time.sleep(choose.uniform(0, 0.1))
        for rank in range(ranks):
            check_whole(traffic.finish(rank), messages)


def test_what_was_sent_before_leaving_is_received(
    traffic_program: Path, region_path: Path, tmp_path: Path
) -> None:
    """The receiver is stopped until the sender has left, and only then polls for the first time."""
    messages = 40
    region.create(region_path, members=2, section_bytes=SECTION_BYTES)
    with traffic_job(traffic_program, region_path, tmp_path / "job", 2) as traffic:
        traffic.start(1, 0, messages, seed=5, longest=2000)
        while not (traffic.directory / "name.1").exists():
            time.sleep(0.002)
        traffic.signal(1, signal.SIGSTOP)
        traffic.start(0, messages, 0, seed=5, longest=2000)
        assert traffic.finish(0) == {1: Exchange(1, messages, 0, 0)}
        traffic.signal(1, signal.SIGCONT)
        assert traffic.finish(1) == {0: Exchange(0, 0, messages, 0)}


def test_a_stopped_rank_that_is_killed_is_missed(
    traffic_program: Path, region_path: Path, tmp_path: Path
) -> None:
    """Peers wait for a stopped rank, but not for a dead one."""
    messages = 2000
    region.create(region_path, members=3, section_bytes=SECTION_BYTES)
    with traffic_job(traffic_program, region_path, tmp_path / "job", 3) as traffic:
        traffic.start_all(messages, seed=6)
        traffic.wait_for_names()
        traffic.signal(2, signal.SIGSTOP)
        time.sleep(1.5)
        assert [traffic.processes[rank].poll() for rank in range(3)] == [None] * 3
        traffic.kill(2)
        for rank in range(2):
            exchanges = traffic.finish(rank)
            check_whole(exchanges, messages, without=2)
            assert exchanges[2].error != 0


# --- more than the cores -------------------------------------------------------------------


def test_eight_ranks_finish(traffic_program: Path, region_path: Path, tmp_path: Path) -> None:
    region.create(region_path, members=8, section_bytes=SECTION_BYTES)
    with traffic_job(traffic_program, region_path, tmp_path / "job", 8) as traffic:
        traffic.start_all(300, seed=8)
        for rank in range(8):
            check_whole(traffic.finish(rank), 300)


# --- MPI jobs ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mpi_programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return compile_for_each_mpi(
        Path(__file__).with_name("death_ranks.c"), tmp_path_factory.mktemp("death")
    )


@pytest.mark.parametrize("mpi", ONE_MPI)
def test_an_mpi_job_with_a_killed_rank_ends(mpi_programs: dict[str, Path], mpi: str) -> None:
    """The job ends, whatever the launcher does. The next job on the nodes works."""
    choose = random.Random(5)
    with EphemeralCluster(nodes=3) as cluster:
        for victim in range(3):
            moment = str(choose.randrange(1, 300))
            program = [str(mpi_programs[mpi]), str(victim), moment]
            done = launch(Job(program, ranks=3), cluster, timeout=GUARD_SECONDS)
            assert done.returncode != 0
            assert "wrong" not in done.stderr
            assert "good" not in done.stdout
        well = launch(
            Job([str(mpi_programs[mpi]), "-1", "0"], ranks=3), cluster, timeout=GUARD_SECONDS
        )
        assert well.returncode == 0
        assert sorted(well.stdout.splitlines()) == [f"rank {rank}: good" for rank in range(3)]


def wait_for_nobody(path: Path) -> None:
    """Wait until no member of the region is alive."""
    deadline = time.monotonic() + GUARD_SECONDS
    while any(member.alive for member in region.inspect(path).members):
        assert time.monotonic() < deadline, "a rank is left"
        time.sleep(0.01)


def test_ranks_of_mpi_find_out_by_themselves(
    mpi_programs: dict[str, Path], region_path: Path, tmp_path: Path
) -> None:
    """The launcher kills no rank here, so MPI itself ends the job, and says why."""
    region.create(region_path, members=4)
    prefix = mpi_prefix("mpich")
    # Killed ranks of MPICH leave files in /dev/shm. A /dev/shm of their own is removed with them.
    seen = tmp_path / "region"
    seen.touch()
    enter = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c"]
    enter += ['mount --bind "$0" "$1" && mount -t tmpfs none /dev/shm && shift && exec "$@"']
    enter += [str(region_path), str(seen)]
    variables = mpi_environment("mpich", MessagePath.REGION, f"file:{seen}")
    # A shell around each rank hides its death from the launcher, and keeps the rank's output.
    script = '"$0" "$@" 2>"$OUTPUT/rank-$PMI_RANK"; sleep 0.5; exit 0'
    command = [str(prefix / "bin/mpiexec"), "-disable-auto-cleanup", "-n", "3", "sh", "-c", script]
    for moment in (1, 40, 200):
        output = tmp_path / str(moment)
        output.mkdir()
        subprocess.run(
            [*enter, *command, mpi_programs["mpich"], "1", str(moment)],
            env=os.environ | variables | {"MPIR_CVAR_NOLOCAL": "1", "OUTPUT": str(output)},
            capture_output=True,
            check=False,
            timeout=GUARD_SECONDS,
        )
        said = {file.name: file.read_text() for file in output.iterdir()}
        # The rank that notices first ends the job, and may end the other rank before it looks. An
        # error of a progress call is fatal to MPICH, which then says why. An error of a send to the
        # dead rank is returned, and the rank itself prints the error.
        left = said["rank-0"] + said["rank-2"]
        reasons = re.findall(r"OFI poll failed \(.*: (.*)\)", left)
        assert set(reasons) <= {"Connection reset by peer"}
        assert reasons or re.search(r"^rank [02]: error$", left, re.M), left
        assert not any("wrong" in text for text in said.values())
        # The other rank ends too, though no process ends it.
        wait_for_nobody(region_path)


@pytest.mark.parametrize(
    "mpi", [pytest.param(mpi, marks=long_unless(mpi == "openmpi")) for mpi in MPIS]
)
def test_an_mpi_job_of_more_ranks_than_cores_ends(mpi_programs: dict[str, Path], mpi: str) -> None:
    with EphemeralCluster(nodes=4) as cluster:
        job = Job([str(mpi_programs[mpi]), "-1", "0"], ranks=8)
        done = launch(job, cluster, timeout=GUARD_SECONDS)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank}: good" for rank in range(8)]
